"""What a simulation tells: events for everybody, and marks of passes for those who judge them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gputask.planner.model import HOST_PORT, PODS, Hold
from gputask.resources.amounts import format_amount
from gputask.resources.pools import Allocation
from gputask.simulate.scenario import Millis, Placement


class Kind(StrEnum):
    """What an event is about."""

    SUBMITTED = "submitted"
    BOUND = "bound"
    HELD = "held"
    PREEMPTED = "preempted"
    REQUEUED = "requeued"
    FINISHED = "finished"
    NODE_ADDED = "node-added"
    NODE_REMOVED = "node-removed"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. ``reason`` of finished: Succeeded, Failed, DeadlineExceeded, Cancelled; of requeued:
    Crashed, NodeLost, Drained, Preempted; of preempted: the task that the room is for; of node-added: Replaced, when
    the node was there before."""

    t: Millis
    kind: Kind
    task: str | None = None
    node: str | None = None
    place: Placement | None = None
    """Where the task starts, is held, or was until now."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """The events that follow are decisions of one pass, which ended with these holds."""

    t: Millis
    holds: tuple[Hold, ...]
    faults: tuple[str, ...] = ()
    """What the planner skipped because handling it raised (R10)."""


@dataclass(frozen=True, slots=True)
class Settled:
    """All changes of this instant are in, and the last pass placed nothing."""

    t: Millis


Record = Event | Pass | Settled


def event_json(event: Event) -> dict[str, Any]:
    """The JSON shape of an event: every key always, ``t`` in seconds, amounts as decimal strings."""
    place = event.place
    return {
        "t": json_seconds(event.t),
        "event": event.kind.value,
        "task": event.task,
        "node": event.node,
        "variant": place.variant if place else None,
        "variantIndex": place.variant_index if place else None,
        "devices": list(place.allocation.devices) if place else [],
        "amounts": amounts_json(place.allocation) if place else None,
        "labels": labels_json(place.allocation) if place else None,
        "reason": event.reason,
    }


def amounts_json(allocation: Allocation) -> dict[str, str]:
    """Amounts by flat key as decimal strings; pods and host ports, which every pod implies, are left out."""
    return {
        key: format_amount(units)
        for key, units in sorted(allocation.amounts.items())
        if key != PODS and not key.startswith(HOST_PORT)
    }


def labels_json(allocation: Allocation) -> dict[str, list[str]]:
    """Labels by flat key of the indexed pools."""
    return {key: list(labels) for key, labels in sorted(allocation.labels.items())}


def json_seconds(t: Millis) -> float | int:
    """Seconds with at most 3 decimals; whole ones without any."""
    whole, rest = divmod(t, 1000)
    return whole if rest == 0 else t / 1000
