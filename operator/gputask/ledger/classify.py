"""The recovery table, row by row: what is found of one pod on one node, and what to do about it.

Pure. The same table serves a start after kill -9 anywhere and every change in steady state. What it says from cached
objects is a suspicion; before anything is done, it is asked again about objects that were read live.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from gputask.ledger.pods import Place


class Action(IntEnum):
    """What to do. The numbers are the order of protocol line 18; planning comes after all of them."""

    NOTHING = 0
    BOOK = 1
    """Write the entry of a live owner, even where it does not fit (line 19)."""
    RELEASE = 2
    """Prove and release the entry (line 10)."""
    END = 3
    """Release the entry, if there is one, and record the end of the claimed pod (line 12)."""
    CONFIRM = 4
    RESUME = 5
    """Go on with the claimed pod: reserve, renew or bind (lines 5 to 9)."""
    TAKE_BACK = 6
    """Delete a claimed pod that is not bound, release its entry, record the end."""
    STOP = 7
    """Delete a claimed pod that is bound, under its own grace; its end comes later."""
    DELETE = 8
    """Delete an unbound pod that no claim names; fence and release an entry that names it."""


class Relation(StrEnum):
    """What the claim of its task says about a pod."""

    CLAIMED = "claimed"
    ENDED = "ended"
    """The claim names it, and its end is recorded."""
    STRANGER = "stranger"
    """The claim names another UID, or none."""
    ORPHAN = "orphan"
    """There is no such task any more."""


@dataclass(frozen=True, slots=True)
class Found:
    """One pod UID, seen from one node.

    ``wanted``: its task is present, not finished, not suspended, not being deleted. ``entry``: the node's ledger has
    an entry for the pod, and ``confirmed`` says whether that is Bound. ``out_of_sight``: that entry is quarantined, and
    its node is not in contact yet.
    """

    relation: Relation
    wanted: bool
    place: Place
    terminating: bool = False
    entry: bool = False
    confirmed: bool = False
    out_of_sight: bool = False


def classify(found: Found) -> Action:
    """The row of the table that applies."""
    if found.place.dead:
        if found.relation is Relation.CLAIMED:
            return Action.END
        return Action.RELEASE if found.entry and not found.out_of_sight else Action.NOTHING
    if found.place is Place.ELSEWHERE:
        return Action.RELEASE if found.entry else Action.NOTHING
    if found.place is Place.HERE:
        return _bound_here(found)
    return _unbound(found)


def _bound_here(found: Found) -> Action:
    if not found.entry:
        # A bound pod that names a task whose claim names another is not ours (B67): its requests count as foreign.
        return Action.NOTHING if found.relation is Relation.STRANGER else Action.BOOK
    if not found.confirmed:
        return Action.CONFIRM
    # Where the end is recorded, somebody wrote back the phase of a dead pod: if it really runs it must not (line 12).
    unwanted = found.relation is Relation.ENDED or (found.relation is Relation.CLAIMED and not found.wanted)
    if unwanted and not found.terminating:
        return Action.STOP
    return Action.NOTHING


def _unbound(found: Found) -> Action:
    if found.terminating:
        # A finalizer keeps it. It can be bound no more, so its entry goes by the fence; its end comes with its death.
        return Action.RELEASE if found.entry else Action.NOTHING
    if found.relation is not Relation.CLAIMED:
        # Also the attempt after the claimed one, whose writer died before its claim: the planner decides anew.
        return Action.DELETE
    # Wanted, with an entry: bind again, or renew and bind. Without one: reserve and go on.
    return Action.RESUME if found.wanted else Action.TAKE_BACK
