"""Which nodes a task accepts at all: each filter is one function, and another filter is one more here.

The rules are those of kube-scheduler's filters of the same names; a node that one of them refuses is out
(cause NodeOut) for every variant of the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gputask.planner.model import Node, NodeConstraints, Requirement, SelectorTerm, Taint, Toleration

Filter = Callable[[Node, NodeConstraints], str | None]

_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable")
_REPELLING = {"NoSchedule", "NoExecute"}


def refusal(node: Node, constraints: NodeConstraints) -> str | None:
    """Why this node is out for tasks with these constraints: one short sentence, or None if it is usable."""
    return next((message for admit in FILTERS if (message := admit(node, constraints)) is not None), None)


def _declared_out(node: Node, _constraints: NodeConstraints) -> str | None:
    return node.out


def _ready(node: Node, _constraints: NodeConstraints) -> str | None:
    return None if node.ready else "the node is not Ready"


def _cordon(node: Node, constraints: NodeConstraints) -> str | None:
    if not node.unschedulable or any(_tolerates(t, _UNSCHEDULABLE) for t in constraints.tolerations):
        return None
    return "the node is cordoned (unschedulable)"


def _taints(node: Node, constraints: NodeConstraints) -> str | None:
    for taint in node.taints:
        if taint.effect in _REPELLING and not any(_tolerates(t, taint) for t in constraints.tolerations):
            value = f"={taint.value}" if taint.value else ""
            return f"taint {taint.key}{value}:{taint.effect} is not tolerated"
    return None


def _node_selector(node: Node, constraints: NodeConstraints) -> str | None:
    for key, value in constraints.node_selector:
        if node.labels.get(key) != value:
            found = f"is {node.labels[key]!r}" if key in node.labels else "is absent"
            return f"nodeSelector asks label {key}={value}, which {found}"
    return None


def _node_affinity(node: Node, constraints: NodeConstraints) -> str | None:
    if constraints.affinity is None or any(_matches(term, node) for term in constraints.affinity):
        return None
    return "no term of the required node affinity matches"


FILTERS: tuple[Filter, ...] = (_declared_out, _ready, _cordon, _taints, _node_selector, _node_affinity)
"""In the order in which their messages are preferred."""


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return not toleration.key or toleration.key == taint.key
    return toleration.key == taint.key and toleration.value == taint.value


def _matches(term: SelectorTerm, node: Node) -> bool:
    if not term.expressions and not term.fields:
        return False
    return all(holds(r, node.labels) for r in term.expressions) and all(
        holds(r, {"metadata.name": node.name}) for r in term.fields
    )


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy one expression."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
    return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    """Gt and Lt compare integers; what is no integer matches nothing, as in kube-scheduler."""
    if value is None or len(requirement.values) != 1:
        return False
    try:
        ours, bound = int(value), int(requirement.values[0])
    except ValueError:
        return False
    return ours > bound if requirement.operator == "Gt" else ours < bound
