"""Pods: which are ours, what the others use, which nodes a pod spec accepts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gputask.api import names
from gputask.planner.model import HOST_PORT, PODS, Foreign, NodeConstraints, Requirement, SelectorTerm, Toleration
from gputask.resources.amounts import SCALE
from gputask.resources.effective import effective_requests

Manifest = Mapping[str, Any]

_ANY_ADDRESS = ("", "0.0.0.0", "::")

_ADDED_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints (NoExecute) that the API server lets every pod tolerate for a while, unless it says otherwise itself."""


def is_terminal(pod: Manifest) -> bool:
    """Whether a pod has ended: it uses nothing any more. A terminating pod has not."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def task_uid(pod: Manifest) -> str | None:
    """The UID of the GpuTask whose pod this says it is. Whether that is true, only the claim tells."""
    label = (pod["metadata"].get("labels") or {}).get(names.TASK_UID_LABEL)
    return None if label is None else str(label)


def foreign(pod: Manifest) -> Foreign | None:
    """What a pod that is not ours uses of its node; None once it has ended.

    :raises AmountError: a request is no quantity (an API server accepts no such pod).
    """
    if is_terminal(pod):
        return None
    metadata = pod["metadata"]
    owner = f"pod:{metadata.get('namespace', 'default')}/{metadata['name']}"
    return Foreign(owner, tuple(sorted(pod_amounts(pod.get("spec") or {}).items())))


def pod_amounts(spec: Manifest) -> dict[str, int]:
    """All that a pod takes of its node: effective requests, its place among the pods, its host ports."""
    return {**effective_requests(spec), PODS: SCALE, **_host_ports(spec)}


def constraints(spec: Manifest) -> NodeConstraints:
    """Which nodes a pod spec accepts."""
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return NodeConstraints(
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        affinity=None if affinity is None else tuple(map(_term, affinity.get("nodeSelectorTerms") or ())),
        tolerations=tuple(_tolerations(spec.get("tolerations") or ())),
    )


def _tolerations(given: Iterable[Manifest]) -> Iterator[Toleration]:
    written = [
        Toleration(t.get("key") or "", t.get("operator") or "Equal", t.get("value") or "", t.get("effect") or "")
        for t in given
    ]
    yield from written
    for key in _ADDED_TOLERATIONS:
        if not any(t.key in ("", key) and t.effect in ("", "NoExecute") for t in written):
            yield Toleration(key, "Exists", "", "NoExecute")


def _term(term: Manifest) -> SelectorTerm:
    return SelectorTerm(
        tuple(map(_requirement, term.get("matchExpressions") or ())),
        tuple(map(_requirement, term.get("matchFields") or ())),
    )


def _requirement(expression: Manifest) -> Requirement:
    return Requirement(expression["key"], expression["operator"], tuple(expression.get("values") or ()))


def _host_ports(spec: Manifest) -> dict[str, int]:
    """Host ports as amounts: a wildcard port asks all of its pool, one on an address a single unit of it, so that they
    exclude each other as in kube-scheduler's NodePorts."""
    asked: Counter[str] = Counter()
    sidecars = (c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always")
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else None)
            if not number:
                continue
            pool = f"{HOST_PORT}{port.get('protocol') or 'TCP'}:{number}"
            address = port.get("hostIP") or ""
            if address in _ANY_ADDRESS:
                asked[pool] = SCALE
            elif asked[pool] < SCALE:
                asked[pool] += 1
                asked[f"{pool}:{address}"] = SCALE
    return dict(asked)
