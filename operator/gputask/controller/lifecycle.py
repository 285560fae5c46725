"""What the end of an attempt means for its task. Pure; the ledger writes it, once the pod is proven dead (line 12).

========================================  ==================================
the dead pod                              the task
========================================  ==================================
Succeeded                                 Succeeded
Failed, activeDeadlineSeconds were over   Failed, DeadlineExceeded
Failed while it was being deleted         waits again: somebody stopped it
Failed, refused by the kubelet            waits again, not on that node for a while
Failed, disrupted (drain, eviction)       waits again
Failed otherwise                          Failed
vanished                                  waits again
========================================  ==================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gputask.api.conditions import (
    BoundReason,
    FinishedReason,
    Phase,
    ReadyReason,
    ReservedReason,
    TaskCondition,
)
from gputask.controller.conditions import Condition, merged
from gputask.ledger.pods import Manifest, is_terminating

_REFUSALS = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "NodeName")
"""How ``status.reason`` begins when the kubelet did not take the pod: a placement failure, never a crash."""


class End(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    REFUSED = "Refused"
    STOPPED = "Stopped"

    @property
    def final(self) -> bool:
        return self in (End.SUCCEEDED, End.FAILED, End.DEADLINE_EXCEEDED)


@dataclass(frozen=True, slots=True)
class Ended:
    """How, and one line for people."""

    end: End
    message: str


def end_of(pod: Manifest | None) -> Ended:
    """How the attempt of this dead pod ended; None is a pod that vanished before anybody saw it end."""
    if pod is None:
        return Ended(End.STOPPED, "the pod was deleted")
    status = pod.get("status") or {}
    reason = str(status.get("reason") or "")
    if status.get("phase") == "Succeeded":
        return Ended(End.SUCCEEDED, "")
    if status.get("phase") != "Failed":
        return Ended(End.STOPPED, "the pod was deleted")
    text = _why_failed(status)
    if reason == "DeadlineExceeded":
        return Ended(End.DEADLINE_EXCEEDED, text)
    if reason.startswith(_REFUSALS):
        return Ended(End.REFUSED, f"refused by the kubelet of {pod['spec'].get('nodeName')}: {text}")
    if is_terminating(pod) or reason == "Evicted" or _is_disrupted(status):
        return Ended(End.STOPPED, f"the pod was stopped: {text}")
    return Ended(End.FAILED, text)


def end_status(task: Manifest, ended: Ended, *, now: str) -> Mapping[str, Any]:
    """The status (a merge patch, without the claim) of a task whose claimed pod ended so."""
    phase = Phase.PENDING
    if ended.end.final:
        phase = Phase.SUCCEEDED if ended.end is End.SUCCEEDED else Phase.FAILED
    current: Sequence[Mapping[str, Any]] = (task.get("status") or {}).get("conditions") or []
    return {"phase": phase.value, "replicas": 0, "conditions": merged(current, _conditions(ended), now=now)}


def _conditions(ended: Ended) -> list[Condition]:
    conditions = [
        Condition(TaskCondition.RESERVED, False, ReservedReason.RELEASED, ended.message),
        Condition(TaskCondition.BOUND, False, BoundReason.NOT_BOUND),
        Condition(TaskCondition.READY, False, ReadyReason.NOT_RUNNING),
    ]
    if ended.end.final:
        conditions.append(Condition(TaskCondition.FINISHED, True, FinishedReason(ended.end.value), ended.message))
    return conditions


def _is_disrupted(status: Mapping[str, Any]) -> bool:
    return any(
        c.get("type") == "DisruptionTarget" and c.get("status") == "True" for c in status.get("conditions") or ()
    )


def _why_failed(status: Mapping[str, Any]) -> str:
    """The kubelet's own words, and what became of the containers that did not end well."""
    said = [str(status[name]) for name in ("reason", "message") if status.get(name)]
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        ended = (container.get("state") or {}).get("terminated")
        if ended and ended.get("exitCode"):
            said.append(f"container {container['name']} exited with {ended['exitCode']}")
    return ": ".join(said[:2]) if len(said) < 3 else f"{said[0]}: {'; '.join(said[1:])}"
