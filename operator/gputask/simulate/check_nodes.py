"""The checker's own reading of which nodes a task accepts, and which nodes accept anybody.

Written against the Kubernetes documentation of taints, tolerations and node affinity, not against the planner.
"""

from __future__ import annotations

from collections.abc import Mapping

from gputask.planner.model import Node, NodeConstraints, Requirement, SelectorTerm, Taint, Toleration

CORDON = Taint("node.kubernetes.io/unschedulable")
"""A cordoned node counts as tainted by this, as the scheduler of Kubernetes sees it."""


def refusal(node: Node, constraints: NodeConstraints) -> str | None:
    """Why a node takes no new pod with these constraints, or None."""
    if not node.ready:
        return "not Ready"
    if node.out:
        return node.out
    for taint in (*node.taints, *((CORDON,) if node.unschedulable else ())):
        if taint.effect in {"NoSchedule", "NoExecute"} and not any(
            _tolerates(toleration, taint) for toleration in constraints.tolerations
        ):
            return f"taint {taint.key} is not tolerated"
    for key, value in constraints.node_selector:
        if node.labels.get(key) != value:
            return f"nodeSelector {key}={value} does not match"
    if constraints.affinity is not None and not any(_matches(term, node) for term in constraints.affinity):
        return "required node affinity does not match"
    return None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    return toleration.key == taint.key and toleration.value == taint.value


def _matches(term: SelectorTerm, node: Node) -> bool:
    if not term.expressions and not term.fields:
        return False
    return all(_holds(requirement, node.labels) for requirement in term.expressions) and all(
        _holds(requirement, {"metadata.name": node.name}) for requirement in term.fields
    )


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Gt" | "Lt":
            return _compares(value, requirement)
    return False


def _compares(value: str | None, requirement: Requirement) -> bool:
    try:
        left, right = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return left > right if requirement.operator == "Gt" else left < right
