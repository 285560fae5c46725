"""Pauses after errors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gputask.api.conditions import ReservedReason
from gputask.controller.backoff import LARGEST_SECONDS, Backoff, Refusal
from support.controller import FakeClock

QUOTA = Refusal(ReservedReason.POD_REFUSED, "exceeded quota")


def test_the_pause_grows_with_each_failure_and_says_why() -> None:
    clock = FakeClock()
    backoff = Backoff(clock)
    assert [backoff.refuse("t", QUOTA) for _ in range(4)] == [1, 2, 4, 8]
    assert backoff.refusal("t") is QUOTA
    clock.advance(8)
    assert backoff.refusal("t") is None


def test_a_pause_on_one_node_leaves_the_others_free() -> None:
    backoff = Backoff(FakeClock())
    backoff.refuse_on("t", "n1", QUOTA)
    assert backoff.excluded_nodes("t") == {"n1"}
    assert backoff.refusal("t") is None
    assert backoff.excluded_nodes("other") == frozenset()


def test_a_task_that_was_placed_starts_anew() -> None:
    backoff = Backoff(FakeClock())
    for _ in range(5):
        backoff.refuse("t", QUOTA)
    backoff.forget("t")
    assert backoff.refusal("t") is None
    assert backoff.refuse("t", QUOTA) == 1


def test_the_end_of_a_pause_is_told_once() -> None:
    clock = FakeClock()
    backoff = Backoff(clock)
    backoff.refuse("t", QUOTA)
    assert backoff.due() == set()
    assert backoff.next_end() == 1
    clock.advance(1)
    assert backoff.due() == {"t"}
    assert backoff.due() == set()
    assert backoff.next_end() is None


@given(st.integers(min_value=1, max_value=200))
def test_no_pause_is_longer_than_the_largest(failures: int) -> None:
    backoff = Backoff(FakeClock())
    pauses = [backoff.refuse("t", QUOTA) for _ in range(failures)]
    assert pauses == sorted(pauses)
    assert pauses[-1] <= LARGEST_SECONDS


def test_b25_a_pause_for_want_of_room_ends_with_the_next_release_there_and_one_after_an_error_does_not() -> None:
    backoff = Backoff(FakeClock())
    backoff.no_room_on("full", "n1", QUOTA, since=0)
    backoff.refuse_on("sick", "n1", QUOTA)
    assert backoff.released_on("n2") == set()
    assert backoff.released_on("n1") == {"full"}
    assert backoff.released_on("n1") == set()
    assert backoff.excluded_nodes("full") == frozenset()
    assert backoff.excluded_nodes("sick") == {"n1"}


def test_b25_an_error_after_a_want_of_room_is_a_pause_like_any_other() -> None:
    backoff = Backoff(FakeClock())
    backoff.no_room_on("t", "n1", QUOTA, since=0)
    backoff.refuse_on("t", "n1", QUOTA)
    assert backoff.released_on("n1") == set()
    assert backoff.excluded_nodes("t") == {"n1"}


def test_b25_a_release_during_the_try_is_not_missed() -> None:
    backoff = Backoff(FakeClock())
    planned = backoff.releases_on("n1")
    backoff.released_on("n1")
    backoff.no_room_on("t", "n1", QUOTA, since=planned)
    assert backoff.excluded_nodes("t") == frozenset()
