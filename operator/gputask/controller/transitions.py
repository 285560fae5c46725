"""Every phase of a task, and what each thing that can be seen of it makes of that phase: a total table (B07, B33).

The operator looks at levels and not at edges: an event is what is seen now, however many others went before unseen, and
in whatever order they come. A pod that failed before anybody saw it bound is an end like any other, what is seen twice
changes nothing, and a status that was lost or forged is made right by the next look. What is final stays so.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from gputask.api.conditions import Phase


class Event(StrEnum):
    """What is seen of a task."""

    NOTHING_HELD = "NothingHeld"
    """It has no reservation; it waits, is suspended, or is not understood."""
    ROOM_KEPT = "RoomKept"
    """Others are evicted for it."""
    RESERVED = "Reserved"
    """Its entry is in a ledger, and its pod is not bound."""
    BOUND = "Bound"
    RUNNING = "Running"
    TRIED = "Tried"
    """Its attempt is proven dead, and it may try again: crashed, refused, evicted, stopped, given back."""
    SUCCEEDED = "Succeeded"
    GAVE_UP = "GaveUp"
    """Its attempt is proven dead, and it may not try again: a limit is reached, its time is over, or it is a lease that
    nobody renewed."""


_ALIVE: Mapping[Event, Phase] = MappingProxyType(
    {
        Event.NOTHING_HELD: Phase.PENDING,
        Event.ROOM_KEPT: Phase.PREEMPTING,
        Event.RESERVED: Phase.RESERVED,
        Event.BOUND: Phase.BOUND,
        Event.RUNNING: Phase.RUNNING,
        Event.TRIED: Phase.PENDING,
        Event.SUCCEEDED: Phase.SUCCEEDED,
        Event.GAVE_UP: Phase.FAILED,
    }
)

TABLE: Mapping[Phase, Mapping[Event, Phase]] = MappingProxyType(
    {phase: MappingProxyType(dict.fromkeys(Event, phase)) if phase.terminal else _ALIVE for phase in Phase}
)


def phase_after(before: str | None, event: Event) -> Phase:
    """The phase of a task after this was seen of it. ``before`` is its ``status.phase``; what is no phase, also
    None, is Pending."""
    known = Phase(before) if before in set(Phase) else Phase.PENDING
    return TABLE[known][event]
