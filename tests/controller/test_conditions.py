"""How conditions go into the list that is there."""

from __future__ import annotations

from gputask.api.conditions import ReservedReason, TaskCondition
from gputask.controller.conditions import MESSAGE_LENGTH, Condition, merged

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def reserved(holds: bool, message: str = "") -> Condition:
    return Condition(TaskCondition.RESERVED, holds, ReservedReason.RESERVED if holds else ReservedReason.SHORT, message)


def test_a_new_text_for_the_same_status_keeps_the_transition_time() -> None:
    before = merged([], [reserved(False, "free 1")], now=THEN)
    (after,) = merged(before, [reserved(False, "free 2")], now=NOW)
    assert (after["message"], after["lastTransitionTime"]) == ("free 2", THEN)


def test_another_status_is_a_transition() -> None:
    before = merged([], [reserved(False)], now=THEN)
    (after,) = merged(before, [reserved(True)], now=NOW)
    assert (after["status"], after["lastTransitionTime"]) == ("True", NOW)


def test_a_condition_that_is_not_mentioned_stays_as_it_is() -> None:
    foreign = {"type": "Approved", "status": "True", "reason": "ByHand", "message": "", "lastTransitionTime": THEN}
    assert merged([foreign], [reserved(True)], now=NOW)[0] == foreign


def test_nothing_changes_when_the_same_is_said_again() -> None:
    before = merged([], [reserved(False, "free 1")], now=THEN)
    assert merged(before, [reserved(False, "free 1")], now=NOW) == before


def test_a_message_is_never_longer_than_the_schema_allows() -> None:
    (after,) = merged([], [reserved(False, "x" * 10_000)], now=NOW)
    assert len(after["message"]) == MESSAGE_LENGTH
