"""The recovery table, row by row."""

from __future__ import annotations

import itertools

import pytest

from gputask.ledger.classify import Action, Found, Relation, classify
from gputask.ledger.pods import Place

CLAIMED, ENDED, STRANGER, ORPHAN = Relation.CLAIMED, Relation.ENDED, Relation.STRANGER, Relation.ORPHAN


def found(relation: Relation, place: Place, *, wanted: bool = True, **more: bool) -> Found:
    return Found(relation=relation, wanted=wanted and relation is not ORPHAN, place=place, **more)


@pytest.mark.parametrize(
    ("row", "case", "action"),
    [
        ("unclaimed unbound pod, whatever its attempt", found(STRANGER, Place.UNBOUND), Action.DELETE),
        ("unclaimed unbound pod that an entry names", found(STRANGER, Place.UNBOUND, entry=True), Action.DELETE),
        ("unbound pod whose task is gone", found(ORPHAN, Place.UNBOUND), Action.DELETE),
        ("unclaimed pod that is terminating", found(STRANGER, Place.UNBOUND, terminating=True), Action.NOTHING),
        ("claimed pod gone", found(CLAIMED, Place.GONE), Action.END),
        ("claimed pod gone, with an entry", found(CLAIMED, Place.GONE, entry=True), Action.END),
        ("claimed pod terminal", found(CLAIMED, Place.TERMINAL, entry=True, confirmed=True), Action.END),
        ("claimed pod unbound, no entry", found(CLAIMED, Place.UNBOUND), Action.RESUME),
        ("entry, claimed pod unbound", found(CLAIMED, Place.UNBOUND, entry=True), Action.RESUME),
        ("claimed pod unbound, task suspended", found(CLAIMED, Place.UNBOUND, wanted=False), Action.TAKE_BACK),
        (
            "entry, claimed pod terminating before its bind",
            found(CLAIMED, Place.UNBOUND, entry=True, terminating=True),
            Action.RELEASE,
        ),
        ("entry in flight, pod bound here", found(CLAIMED, Place.HERE, entry=True), Action.CONFIRM),
        ("entry confirmed, pod bound here", found(CLAIMED, Place.HERE, entry=True, confirmed=True), Action.NOTHING),
        (
            "a suspended task's pod runs",
            found(CLAIMED, Place.HERE, wanted=False, entry=True, confirmed=True),
            Action.STOP,
        ),
        (
            "a suspended task's pod is stopping",
            found(CLAIMED, Place.HERE, wanted=False, entry=True, confirmed=True, terminating=True),
            Action.NOTHING,
        ),
        ("entry, pod bound elsewhere", found(CLAIMED, Place.ELSEWHERE, entry=True), Action.RELEASE),
        ("bound live pod of ours without entry", found(CLAIMED, Place.HERE), Action.BOOK),
        ("bound live pod without entry, its task gone", found(ORPHAN, Place.HERE), Action.BOOK),
        ("b67 a bound pod that only says it is ours", found(STRANGER, Place.HERE), Action.NOTHING),
        ("b19 an entry whose task and pod are gone", found(ORPHAN, Place.GONE, entry=True), Action.RELEASE),
        ("an ended pod that still has its entry", found(ENDED, Place.TERMINAL, entry=True), Action.RELEASE),
        ("quarantined, nobody knows yet", found(ENDED, Place.GONE, entry=True, out_of_sight=True), Action.NOTHING),
        ("quarantined, the end not recorded", found(CLAIMED, Place.GONE, entry=True, out_of_sight=True), Action.END),
        ("quarantined, in contact again", found(ENDED, Place.GONE, entry=True), Action.RELEASE),
        ("an ended pod without entry", found(ENDED, Place.GONE), Action.NOTHING),
        ("b07 an ended pod that says Running again", found(ENDED, Place.HERE), Action.BOOK),
        ("b07 the same, booked", found(ENDED, Place.HERE, wanted=False, entry=True, confirmed=True), Action.STOP),
    ],
)
def test_each_row_of_the_table(row: str, case: Found, action: Action) -> None:
    assert classify(case) is action, row


def test_no_state_releases_or_deletes_a_pod_that_is_bound_here() -> None:
    for relation, wanted, terminating, entry, confirmed in itertools.product(Relation, *([[False, True]] * 4)):
        case = Found(relation, wanted, Place.HERE, terminating, entry, confirmed)
        assert classify(case) not in (Action.RELEASE, Action.END, Action.TAKE_BACK, Action.DELETE, Action.RESUME)


def test_no_entry_of_a_dead_pod_stays() -> None:
    for relation, place in itertools.product(Relation, (Place.GONE, Place.TERMINAL)):
        case = found(relation, place, entry=True)
        assert classify(case) in (Action.RELEASE, Action.END)
