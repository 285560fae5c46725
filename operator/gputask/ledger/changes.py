"""The changes that a ledger knows. Pure functions of one version, and **idempotent**.

A change that is there already changes nothing and counts as applied. That is what makes an unknown outcome harmless:
read the ledger live, apply again, and whatever the lost write did is seen (protocol line 7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gputask.ledger.entries import LAST, Entry, NodeLedger, RoomKept, State, Victim
from gputask.planner.model import Rank
from gputask.resources.pools import NodeResources


class Refused(Exception):  # noqa: N818
    """The change is not right for this version of the ledger. One line says why."""


class Change(Protocol):
    def apply(self, ledger: NodeLedger) -> NodeLedger:
        """The next value, or ``ledger`` itself where the change is there already.

        :raises Refused: it is not right for this version.
        """


@dataclass(frozen=True, slots=True)
class Reserve:
    """Protocol line 5, for a task of this rank. Judged anew at every version that it is written under.

    Room that was kept for the task becomes its reservation in the same write (line 16).
    """

    entry: Entry
    rank: Rank = LAST

    def apply(self, ledger: NodeLedger) -> NodeLedger:
        known = ledger.entries.get(self.entry.pod_uid)
        if known is not None:
            if known.pod_version != self.entry.pod_version:
                raise Refused(f"pod {self.entry.pod} is reserved at another of its versions")
            return ledger
        why_not = ledger.fits(self.entry, self.rank)
        if why_not is not None:
            raise Refused(why_not)
        if self.entry.task_uid in ledger.holds:
            ledger = ledger.without_hold(self.entry.task_uid)
        return ledger.with_entry(self.entry)


@dataclass(frozen=True, slots=True)
class KeepRoom:
    """Protocol line 16: room for a preemptor, before its first victim is evicted."""

    hold: RoomKept

    def apply(self, ledger: NodeLedger) -> NodeLedger:
        known = ledger.holds.get(self.hold.task_uid)
        if known is not None:
            if known.victims != self.hold.victims:
                raise Refused(f"room on {ledger.name} is kept for {self.hold.task} already, with other victims")
            return ledger
        why_not = ledger.can_keep(self.hold)
        if why_not is not None:
            raise Refused(why_not)
        return ledger.with_hold(self.hold)


@dataclass(frozen=True, slots=True)
class DropRoom:
    """The hold of line 16 is given up: its task is gone, placed or past the deadline. It needs no fence."""

    task_uid: str
    victims: tuple[Victim, ...]

    def apply(self, ledger: NodeLedger) -> NodeLedger:
        known = ledger.holds.get(self.task_uid)
        if known is None or known.victims != self.victims:
            return ledger  # another one by now, which has its own reasons
        return ledger.without_hold(self.task_uid)


@dataclass(frozen=True, slots=True)
class Renew:
    """Protocol line 8. ``under`` is the ledger version that was in hand *before* the pod was read at ``pod_version``.

    Under a later version the same pod version may be the older one of two, and would overwrite the newer: then a
    release could take the pod for fenced while a bind under the newer version is on its way.
    """

    pod_uid: str
    pod_version: str
    under: str
    expires_at: float | None

    def apply(self, ledger: NodeLedger) -> NodeLedger:
        entry = ledger.entries.get(self.pod_uid)
        if entry is None:
            raise Refused("the reservation was released meanwhile")
        if entry.pod_version == self.pod_version:
            return ledger
        if ledger.version != self.under:
            raise Refused("the ledger changed after the pod was read")
        return ledger.with_entry(replace(entry, pod_version=self.pod_version, expires_at=self.expires_at))


@dataclass(frozen=True, slots=True)
class Confirm:
    """Protocol line 9: the pod was seen bound on this node."""

    pod_uid: str
    start_time: float

    def apply(self, ledger: NodeLedger) -> NodeLedger:
        entry = ledger.entries.get(self.pod_uid)
        if entry is None:
            raise Refused("the reservation was released meanwhile")
        if entry.state is State.QUARANTINED:
            raise Refused("the pod is gone, and what it held is quarantined")
        if entry.state is State.BOUND:
            return ledger
        return ledger.with_entry(
            replace(entry, state=State.BOUND, start_time=entry.start_time or self.start_time, expires_at=None)
        )


@dataclass(frozen=True, slots=True)
class Release:
    """Protocol line 10. The proof behind it holds for this pair only, and ends a quarantine only if it was made of an
    entry in quarantine."""

    pod_uid: str
    pod_version: str
    quarantined: bool = False

    def apply(self, ledger: NodeLedger) -> NodeLedger:
        entry = ledger.entries.get(self.pod_uid)
        if entry is None:
            return ledger
        if entry.pod_version != self.pod_version:
            raise Refused("the reservation was renewed meanwhile")
        if entry.state is State.QUARANTINED and not self.quarantined:
            raise Refused("the reservation was quarantined meanwhile")
        return ledger.without_entry(self.pod_uid)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Protocol lines 10 and 20: the pod is gone, or the lease has expired, and nobody can say that its work is over.
    Proof and pair as in a release."""

    pod_uid: str
    pod_version: str

    def apply(self, ledger: NodeLedger) -> NodeLedger:
        entry = ledger.entries.get(self.pod_uid)
        if entry is None or entry.state is State.QUARANTINED:
            return ledger
        if entry.pod_version != self.pod_version:
            raise Refused("the reservation was renewed meanwhile")
        return ledger.with_entry(replace(entry, state=State.QUARANTINED, expires_at=None))


@dataclass(frozen=True, slots=True)
class Book:
    """A live owner without an entry (recovery table): booked even where it does not fit (protocol line 19)."""

    entry: Entry

    def apply(self, ledger: NodeLedger) -> NodeLedger:
        return ledger if self.entry.pod_uid in ledger.entries else ledger.booked(self.entry)


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Protocol line 17, last step: all live owners that were found bound, and the mark, in one write.

    ``gpunode_uid`` is the object that was there *before* the unbound pods were bumped: another one may have been
    rebuilt, and may have admitted, after our list was made.
    """

    gpunode_uid: str
    node_uid: str
    entries: Sequence[Entry]

    def apply(self, ledger: NodeLedger) -> NodeLedger:
        if ledger.uid != self.gpunode_uid or ledger.node_uid != self.node_uid:
            raise Refused("the Node or its GpuNode was replaced meanwhile")
        if ledger.rebuilt == self.node_uid:
            return ledger
        for entry in self.entries:
            ledger = Book(entry).apply(ledger)
        return replace(ledger, rebuilt=self.node_uid)


@dataclass(frozen=True, slots=True)
class Declare:
    """What the Node offers now, as understood. Running work is never touched by it (B34, B113).

    ``node_uid`` is "" when the Node is gone; a new one asks for a rebuild. ``status`` holds what the ledger only
    carries for people: further conditions by type.
    """

    node_uid: str
    resources: NodeResources
    conditions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def apply(self, ledger: NodeLedger) -> NodeLedger:
        declared = replace(
            ledger,
            node_uid=self.node_uid,
            resources=self.resources,
            conditions={**ledger.conditions, **self.conditions},
        )
        return ledger if declared == ledger else declared
