"""What the status of a GpuTask should say, computed anew from what is known; written only where it differs.

Everything here can be recomputed from the claim, the ledger and the pod, so a status that was lost, forged or left
half-written is repaired by the next look (B67, B106). The one exception is an end: once written it is final, and it
is written under the rules of protocol line 12 by :mod:`gputask.controller.lifecycle`, not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputask.api.conditions import (
    AcceptedReason,
    BoundReason,
    EvictedReason,
    FeasibleReason,
    Phase,
    ReadyReason,
    ReservedReason,
    TaskCondition,
)
from gputask.api.names import TASK_UID_LABEL
from gputask.controller.backoff import Refusal
from gputask.controller.conditions import Condition, merged
from gputask.controller.leases import late_renewal
from gputask.controller.queue import Known, Standing
from gputask.controller.transitions import Event, phase_after
from gputask.controller.verdicts import Verdict
from gputask.ledger.entries import Entry, State
from gputask.ledger.pods import Manifest, is_terminal, is_terminating, uid_of


@dataclass(frozen=True, slots=True)
class View:
    """All that decides what a status says. ``entry`` is the ledger's, ``refusal`` why it is in a pause."""

    task: Manifest
    known: Known
    verdict: Verdict | None = None
    entry: Entry | None = None
    pod: Manifest | None = None
    refusal: Refusal | None = None
    refused_on: Sequence[Refusal] = ()
    """Why it pauses on single nodes."""
    room: str | None = None
    """One line about the room that is being made for it by evictions."""
    preemptor: str | None = None
    """For whom its pod was evicted."""


def patch(view: View, *, now: str) -> dict[str, Any]:
    """The merge patch that makes the status say what it should; empty if it says so already."""
    current = view.task.get("status") or {}
    if current.get("phase") in (Phase.SUCCEEDED, Phase.FAILED):
        return late_renewal(view.task, now=now)  # an end is final (B33)
    wanted: dict[str, Any] = {
        "phase": phase_after(current.get("phase"), event(view)).value,
        "replicas": 1 if view.pod is not None else 0,
        "selector": f"{TASK_UID_LABEL}={uid_of(view.task)}",
        "conditions": merged(current.get("conditions") or [], conditions(view), now=now),
    }
    if wanted["phase"] == Phase.RUNNING and current.get("placementFailures"):
        wanted["placementFailures"] = 0  # they are counted in a row
    claim = current.get("reservation") or {}
    if view.entry is not None and view.entry.state is State.BOUND and claim.get("node") != view.entry.node:
        # Somebody else bound the pod, and not where it was claimed: what its own node says is the truth (B23).
        wanted["reservation"] = {**claim, "node": view.entry.node}
    if view.known.reading.planned is not None:
        wanted["priority"] = view.known.reading.planned.priority
    if generation := view.task["metadata"].get("generation"):
        wanted["observedGeneration"] = generation
    return {name: value for name, value in wanted.items() if current.get(name) != value}


def event(view: View) -> Event:
    """What is seen of a task whose end is not recorded."""
    if view.entry is None:
        return Event.NOTHING_HELD if view.room is None else Event.ROOM_KEPT
    if view.pod is not None and (view.pod.get("status") or {}).get("phase") == "Running":
        return Event.RUNNING
    return Event.BOUND if _is_bound(view) else Event.RESERVED


def conditions(view: View) -> list[Condition]:
    """The conditions that can be said of the task now, in the order in which they come about."""
    found = [_accepted(view)]
    if view.known.reading.planned is not None and view.known.standing is not Standing.REFUSED:
        if view.verdict is not None or view.entry is not None:
            found.append(_feasible(view.verdict))
        found += [_reserved(view), _bound(view)]
        if not _is_lease(view):
            found.append(_ready(view))
    if view.preemptor is not None and view.pod is not None and is_terminating(view.pod):
        found.append(Condition(TaskCondition.EVICTED, True, EvictedReason.PREEMPTED, f"for {view.preemptor}"))
    elif _was_evicted(view) and event(view) is Event.RUNNING:
        found.append(Condition(TaskCondition.EVICTED, False, EvictedReason.RUNNING))
    return found


def is_urgent(current: Mapping[str, Any], change: Mapping[str, Any]) -> bool:
    """Whether a change is more than another reason or text for the same state: then people and scripts wait for it."""
    if "phase" in change:
        return True
    before = {c["type"]: c["status"] for c in current.get("conditions") or []}
    after = {c["type"]: c["status"] for c in change.get("conditions") or []}
    return any(before.get(kind) != status for kind, status in after.items())


# --- one condition each ---------------------------------------------------------------------------------


def _accepted(view: View) -> Condition:
    reading = view.known.reading
    if reading.planned is None:
        return Condition(TaskCondition.ACCEPTED, False, AcceptedReason.INVALID, "; ".join(reading.problems))
    if reading.planned.unsupported:
        text = "; ".join(reading.planned.unsupported)
        return Condition(TaskCondition.ACCEPTED, False, AcceptedReason.UNSUPPORTED, text)
    if view.known.standing is Standing.REFUSED:
        text = "as many tasks wait as --max-waiting allows; it is taken in when others have left"
        return Condition(TaskCondition.ACCEPTED, False, AcceptedReason.QUEUE_FULL, text)
    return Condition(TaskCondition.ACCEPTED, True, AcceptedReason.VALID)


def _feasible(verdict: Verdict | None) -> Condition:
    if verdict is None or verdict.feasible:  # what has a reservation fits
        return Condition(TaskCondition.FEASIBLE, True, FeasibleReason.FITS_SOME_NODE)
    return Condition(TaskCondition.FEASIBLE, False, FeasibleReason.FITS_NO_NODE, verdict.message)


def _reserved(view: View) -> Condition:
    if view.entry is not None:
        devices = ", ".join(view.entry.allocation.devices) or "no device"
        text = f"variant {view.entry.variant} on {view.entry.node} ({devices})"
        return Condition(TaskCondition.RESERVED, True, ReservedReason.RESERVED, text)
    if view.known.standing is Standing.SUSPENDED:
        return Condition(TaskCondition.RESERVED, False, ReservedReason.SUSPENDED, "spec.suspend is true")
    if view.known.standing is Standing.HELD:
        text = "its namespace is paused; gputask queue resume lets it run"
        return Condition(TaskCondition.RESERVED, False, ReservedReason.PAUSED, text)
    if view.refusal is not None:
        return Condition(TaskCondition.RESERVED, False, view.refusal.reason, view.refusal.message)
    if view.room is not None:
        return Condition(TaskCondition.RESERVED, False, ReservedReason.HOLDING, view.room)
    if view.verdict is not None:
        text = view.verdict.message
        if view.refused_on and view.verdict.reason is ReservedReason.NODE_OUT:
            text = f"{text}; {view.refused_on[0].message}"
        return Condition(TaskCondition.RESERVED, False, view.verdict.reason, text)
    return Condition(TaskCondition.RESERVED, False, ReservedReason.RELEASED, "not decided yet")


def _bound(view: View) -> Condition:
    if view.entry is not None and view.entry.is_lease:
        return Condition(TaskCondition.BOUND, True, BoundReason.LEASED, f"its holder may use it on {view.entry.node}")
    if view.entry is not None and _is_bound(view):
        return Condition(TaskCondition.BOUND, True, BoundReason.BOUND, f"to {view.entry.node}")
    for condition in (view.task.get("status") or {}).get("conditions") or ():
        if view.entry is None and condition["reason"] == BoundReason.BIND_REFUSED:  # until the next attempt
            return Condition(TaskCondition.BOUND, False, BoundReason.BIND_REFUSED, condition["message"])
    return Condition(TaskCondition.BOUND, False, BoundReason.NOT_BOUND)


def _ready(view: View) -> Condition:
    pod = view.pod
    runs = pod is not None and (pod.get("status") or {}).get("phase") == "Running"
    if view.entry is not None and not runs and (late := _start_timeout(view)) is not None:
        return late
    if pod is None or not _is_bound(view) or is_terminal(pod):
        return Condition(TaskCondition.READY, False, ReadyReason.NOT_RUNNING)
    stops = is_terminating(pod)
    if runs and not stops:
        return Condition(TaskCondition.READY, True, ReadyReason.RUNNING)
    if stops:
        return Condition(TaskCondition.READY, False, ReadyReason.STOPPING)
    return Condition(TaskCondition.READY, False, ReadyReason.STARTING, _waiting_reason(pod))


def _is_lease(view: View) -> bool:
    """Of a lease nothing runs, so nothing of it is ever ready."""
    return "lease" in view.task["spec"]


def _start_timeout(view: View) -> Condition | None:
    """What was written before its pod was stopped stays until the end of it is recorded: that is how the end counts."""
    for condition in (view.task.get("status") or {}).get("conditions") or ():
        if condition["type"] == TaskCondition.READY and condition["reason"] == ReadyReason.START_TIMEOUT:
            return Condition(TaskCondition.READY, False, ReadyReason.START_TIMEOUT, condition["message"])
    return None


def _was_evicted(view: View) -> bool:
    known = (view.task.get("status") or {}).get("conditions") or ()
    return any(c["type"] == TaskCondition.EVICTED for c in known)


def _is_bound(view: View) -> bool:
    """Also of a pod that has vanished: until its end is recorded, that it was bound is all that is known of it."""
    if view.entry is not None and view.entry.state is State.BOUND:
        return True
    return view.pod is not None and bool((view.pod.get("spec") or {}).get("nodeName"))


def _waiting_reason(pod: Manifest) -> str:
    """What the kubelet says a container waits for (ContainerCreating, ImagePullBackOff), if it says so."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return f"{container['name']}: {waiting.get('reason', 'waiting')}"
    return ""
