"""What the end of an attempt means for its task. Pure; the ledger writes it, once the pod is proven dead (line 12).

========================================  ====================================================================
the dead pod                              the task
========================================  ====================================================================
Succeeded                                 Succeeded
Failed, activeDeadlineSeconds were over   Failed, DeadlineExceeded
Failed while it was being deleted         waits again: somebody stopped it, which is no crash
Failed, refused by the kubelet            a placement failure: waits again, not on that node for a while; Failed at
                                          the ``placementFailureLimit``-th in a row
stopped before it ran, at startTimeout    a placement failure
its bind was refused for good             a placement failure; the whole task pauses
Failed, disrupted (drain, eviction)       waits again: no crash
Failed, as its node is gone               waits again: no crash; the condition Evicted says NodeLost
Failed otherwise                          a crash: waits again after ``restartPolicy.backoffSeconds``; Failed at crash
                                          ``restartPolicy.limit`` + 1
vanished                                  waits again: no crash
========================================  ====================================================================

The counters are written in the very write that records the end, so each end is counted once whoever dies in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gputask.api.conditions import (
    BoundReason,
    EvictedReason,
    FinishedReason,
    Phase,
    ReadyReason,
    ReservedReason,
    TaskCondition,
)
from gputask.api.gputask import PLACEMENT_FAILURE_LIMIT, RestartPolicy
from gputask.api.times import rfc3339
from gputask.controller.conditions import Condition, merged
from gputask.controller.transitions import Event, phase_after
from gputask.ledger.pods import Manifest, is_terminating

_REFUSALS = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "NodeName")
"""How ``status.reason`` begins when the kubelet did not take the pod: a placement failure, never a crash."""


_NODE_GONE = "DeletionByPodGC"
"""How Kubernetes' pod collector marks the pods of a node that is gone."""

NOT_BOUND = BoundReason.NOT_BOUND


class End(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    REFUSED = "Refused"
    BIND_REFUSED = "BindRefused"
    STOPPED = "Stopped"
    NODE_LOST = "NodeLost"


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
    if _NODE_GONE in (disruptions := _disruptions(status)):
        return Ended(End.NODE_LOST, f"node {pod['spec'].get('nodeName')} is gone")
    if is_terminating(pod) or reason == "Evicted" or disruptions:
        return Ended(End.STOPPED, f"the pod was stopped: {text}")
    return Ended(End.FAILED, text)


def attempt_end(task: Manifest, pod: Manifest | None, refusal: str | None) -> Ended:
    """How the attempt of this task's claimed pod ended, with what only we know: that its bind was refused (one line),
    or that it was stopped because it did not start in time."""
    if refusal is not None:
        return Ended(End.BIND_REFUSED, f"the bind was refused: {refusal}")
    ended = end_of(pod)
    conditions = (task.get("status") or {}).get("conditions") or ()
    timeout = next((c for c in conditions if c["reason"] == ReadyReason.START_TIMEOUT), None)
    return Ended(End.REFUSED, str(timeout["message"])) if timeout and ended.end is End.STOPPED else ended


@dataclass(frozen=True, slots=True)
class Consequence:
    """What becomes of the task. ``finished`` is None if it waits again, ``fields`` what its status counts."""

    finished: FinishedReason | None
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    evicted: EvictedReason | None = None
    bound: BoundReason = NOT_BOUND


def consequence(task: Manifest, ended: Ended, *, now: float, preemptor: str | None = None) -> Consequence:
    """What this end means for this very version of the task. ``now`` is seconds since the epoch; ``preemptor`` the task
    for which the pod was evicted by us."""
    match ended.end:
        case End.FAILED:
            return _crashed(task, ended, now)
        case End.REFUSED | End.BIND_REFUSED:
            return _refused(task, ended)
        case End.STOPPED:
            return _stopped(task, ended, preemptor or _preemptor_told(task))
        case End.NODE_LOST:
            return _stopped(task, ended, None)
        case End.SUCCEEDED | End.DEADLINE_EXCEEDED:
            return Consequence(FinishedReason(ended.end.value), ended.message)


def end_status(task: Manifest, ended: Ended, *, now: float, preemptor: str | None = None) -> Mapping[str, Any]:
    """The status (a merge patch, without the claim) of a task whose claimed pod ended so; the rest as above."""
    found = consequence(task, ended, now=now, preemptor=preemptor)
    event = Event.TRIED
    fields = dict(found.fields)
    if found.finished is not None:
        event = Event.SUCCEEDED if found.finished is FinishedReason.SUCCEEDED else Event.GAVE_UP
        fields["finishTime"] = rfc3339(int(now))
    phase = phase_after((task.get("status") or {}).get("phase"), event)
    current: Sequence[Mapping[str, Any]] = (task.get("status") or {}).get("conditions") or []
    conditions = merged(current, _conditions(found), now=rfc3339(int(now)))
    return {"phase": phase.value, "replicas": 0, "conditions": conditions, **fields}


def _crashed(task: Manifest, ended: Ended, now: float) -> Consequence:
    policy = task["spec"].get("restartPolicy") or {}
    crashes, limit = _count(task, "crashes"), policy.get("limit", 0)
    if crashes > limit:
        text = f"{ended.message}; crash {crashes}, restartPolicy.limit is {limit}" if limit else ended.message
        return Consequence(FinishedReason.FAILED, text, {"crashes": crashes})
    retry = rfc3339(now + policy.get("backoffSeconds", RestartPolicy().backoff_seconds))
    return Consequence(
        None, f"crash {crashes} of at most {limit}: {ended.message}", {"crashes": crashes, "retryTime": retry}
    )


def _refused(task: Manifest, ended: Ended) -> Consequence:
    failures, limit = (
        _count(task, "placementFailures"),
        task["spec"].get("placementFailureLimit", PLACEMENT_FAILURE_LIMIT),
    )
    finished = FinishedReason.FAILED if failures >= limit else None
    bound = BoundReason.BIND_REFUSED if ended.end is End.BIND_REFUSED else NOT_BOUND
    text = f"placement failure {failures} of {limit}: {ended.message}"
    return Consequence(finished, text, {"placementFailures": failures}, bound=bound)


def _preemptor_told(task: Manifest) -> str | None:
    """Its status says for whom it is evicted: then perhaps an operator that is no more has done it."""
    for condition in (task.get("status") or {}).get("conditions") or ():
        if condition["type"] == TaskCondition.EVICTED and condition["status"] == "True":
            preempted = condition["reason"] == EvictedReason.PREEMPTED
            return str(condition["message"]).removeprefix("for ") if preempted else None
    return None


def _stopped(task: Manifest, ended: Ended, preemptor: str | None) -> Consequence:
    status = task.get("status") or {}
    if status.get("phase") not in (Phase.BOUND, Phase.RUNNING) or task["spec"].get("suspend"):
        return Consequence(None, ended.message)  # never bound, or stopped by its own user's wish
    fields = {"evictions": _count(task, "evictions")}
    if preemptor is not None:
        return Consequence(None, f"for {preemptor}", fields, EvictedReason.PREEMPTED)
    reason = EvictedReason.NODE_LOST if ended.end is End.NODE_LOST else EvictedReason.DISRUPTED
    return Consequence(None, ended.message, fields, reason)


def _count(task: Manifest, name: str) -> int:
    """The counter with this end in it."""
    return int((task.get("status") or {}).get(name) or 0) + 1


def _conditions(found: Consequence) -> list[Condition]:
    conditions = [
        Condition(TaskCondition.RESERVED, False, ReservedReason.RELEASED, found.message),
        Condition(TaskCondition.BOUND, False, found.bound, found.message if found.bound is not NOT_BOUND else ""),
        Condition(TaskCondition.READY, False, ReadyReason.NOT_RUNNING),
    ]
    if found.evicted is not None:
        conditions.append(Condition(TaskCondition.EVICTED, True, found.evicted, found.message))
    if found.finished is not None:
        conditions.append(Condition(TaskCondition.FINISHED, True, found.finished, found.message))
    return conditions


def _disruptions(status: Mapping[str, Any]) -> list[str]:
    """The reasons for which somebody stopped the pod from outside."""
    conditions = status.get("conditions") or ()
    disrupted = (c for c in conditions if c.get("type") == "DisruptionTarget" and c.get("status") == "True")
    return [str(c.get("reason") or "") for c in disrupted]


def _why_failed(status: Mapping[str, Any]) -> str:
    """The kubelet's own words, and what became of the containers that did not end well."""
    said = [str(status[name]) for name in ("reason", "message") if status.get(name)]
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        ended = (container.get("state") or {}).get("terminated")
        if ended and ended.get("exitCode"):
            said.append(f"container {container['name']} exited with {ended['exitCode']}")
    return ": ".join(said[:2]) if len(said) < 3 else f"{said[0]}: {'; '.join(said[1:])}"
