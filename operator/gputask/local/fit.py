"""What a kubelet admits: the last fence for cpu, memory, pod count and extended resources of its node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gputask.resources.amounts import SCALE, AmountError, is_kubernetes_bytes, parse_quantity
from gputask.resources.effective import effective_requests

Object = Mapping[str, Any]

_FIRST = ("pods", "cpu", "memory", "ephemeral-storage")
"""The order in which the kubelet looks; it names the first that is short."""
_MIB = 2**20


def requests_of(pod: Object) -> dict[str, int]:
    """What a pod takes of its node, in units of 1/10000 (of MiB for memory), its place among the pods included."""
    try:
        return {"pods": SCALE, **effective_requests(pod["spec"])}
    except AmountError:
        # A real API server takes no such pod.
        return {"pods": SCALE}


def refusal(node: Object, requests: Mapping[str, int], others: Iterable[Mapping[str, int]]) -> tuple[str, str] | None:
    """Reason and message with which a kubelet fails a pod that does not fit beside the others; None if it fits.

    What a node does not list in allocatable has no limit: a real kubelet ignores extended resources that its node does
    not have, and lists all others.
    """
    used: Counter[str] = Counter()
    for other in others:
        used.update(other)
    offered = (node.get("status") or {}).get("allocatable") or {}
    for name in sorted(requests.keys() & offered.keys(), key=_place):
        try:
            capacity = parse_quantity(offered[name], name, rounding="down")
        except AmountError:
            continue
        if requests[name] > capacity - used[name]:
            asked, taken, whole = (_counted(name, units) for units in (requests[name], used[name], capacity))
            said = f"{name}, requested: {asked}, used: {taken}, capacity: {whole}"
            return f"OutOf{name}", f"Pod was rejected: Node didn't have enough resource: {said}"
    return None


def _place(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)


def _counted(name: str, units: int) -> int:
    """As the kubelet counts: cpu in thousandths, memory in bytes, all others in whole ones."""
    if name == "cpu":
        return -(-units * 1000 // SCALE)
    return units * _MIB // SCALE if is_kubernetes_bytes(name) else units // SCALE
