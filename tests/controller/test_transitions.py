"""The phases of a task: each one with each event has a result, and an end is final."""

from __future__ import annotations

from itertools import permutations

import pytest

from gputask.api.conditions import Phase
from gputask.controller.transitions import TABLE, Event, phase_after

ENDS = {Event.SUCCEEDED, Event.GAVE_UP}


def after(*events: Event) -> Phase:
    phase = Phase.PENDING
    for event in events:
        phase = phase_after(phase, event)
    return phase


def test_the_table_is_total() -> None:
    assert {(phase, event) for phase, row in TABLE.items() for event in row} == {
        (phase, event) for phase in Phase for event in Event
    }


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase.terminal])
@pytest.mark.parametrize("event", Event)
def test_b33_an_end_is_final(phase: Phase, event: Event) -> None:
    assert phase_after(phase, event) is phase


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.terminal])
@pytest.mark.parametrize("end", sorted(ENDS))
def test_every_phase_can_end(phase: Phase, end: Event) -> None:
    assert phase_after(phase, end).terminal


def test_b07_an_end_that_comes_before_the_start_was_recorded_is_the_end() -> None:
    assert after(Event.RESERVED, Event.GAVE_UP, Event.BOUND) is Phase.FAILED
    assert after(Event.RUNNING, Event.RUNNING) is Phase.RUNNING
    assert after(Event.SUCCEEDED, Event.RUNNING) is Phase.SUCCEEDED


@pytest.mark.parametrize("events", list(permutations(Event, 3)))
def test_whatever_the_order_the_first_end_or_else_the_last_event_decides(events: tuple[Event, ...]) -> None:
    decisive = next((event for event in events if event in ENDS), events[-1])
    assert after(*events) is after(decisive)


@pytest.mark.parametrize("forged", [None, "", "Done"])
def test_a_phase_that_is_none_of_ours_is_made_right_by_the_next_look(forged: str | None) -> None:
    assert phase_after(forged, Event.RUNNING) is Phase.RUNNING
