"""The ledger of one node, as an immutable value: who holds what, and whether one more fits.

Everything here is judged on one version of the ledger, inside its compare-and-swap, and shares nothing with the
planner: a planner that errs cannot book a unit twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf

from gputask.api.gpunode import MOST_HOLDS, MOST_RESERVATIONS
from gputask.planner.model import HOST_PORT, PODS, Rank
from gputask.resources.amounts import SCALE, format_amount
from gputask.resources.pools import Allocation, Health, IndexedPool, NodeResources, UnknownPool

LAST: Rank = (10**10, inf, "")
"""The rank below all others: who has it respects every hold."""


class State(StrEnum):
    IN_FLIGHT = "InFlight"
    """Reserved, and the bind not yet confirmed."""
    BOUND = "Bound"
    QUARANTINED = "Quarantined"
    """Its owner is out of our sight, and may still use it: nobody else gets it (protocol line 10)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One reservation. ``pod_version`` is the pod's resourceVersion that a bind must carry (protocol line 6).

    ``start_time`` and ``expires_at`` are seconds since the epoch; an entry in flight expires, a bound one does not.
    """

    task: str
    """``namespace/name``; the pod is in the same namespace."""
    task_uid: str
    pod: str
    """Its name; "" for a lease, which has no pod (protocol line 20)."""
    pod_uid: str
    """For a lease the UID of its grant."""
    pod_version: str
    attempt: int
    node: str
    variant: str
    variant_index: int
    allocation: Allocation
    state: State = State.IN_FLIGHT
    start_time: float | None = None
    expires_at: float | None = None

    @property
    def namespace(self) -> str:
        return self.task.partition("/")[0]

    @property
    def is_lease(self) -> bool:
        return not self.pod


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod that is evicted for somebody; ``task`` is ``namespace/name``."""

    task: str
    pod: str
    pod_uid: str

    @property
    def namespace(self) -> str:
        return self.task.partition("/")[0]


@dataclass(frozen=True, slots=True)
class RoomKept:
    """Room that is kept for a task while its victims leave (protocol line 16). It names no pod of its own.

    ``created``, ``start_time`` and ``expires_at`` are seconds since the epoch.
    """

    task: str
    task_uid: str
    priority: int
    created: float
    variant: str
    variant_index: int
    allocation: Allocation
    victims: tuple[Victim, ...]
    start_time: float
    expires_at: float

    @property
    def rank(self) -> Rank:
        return (-self.priority, self.created, self.task_uid)


@dataclass(frozen=True, slots=True)
class NodeLedger:
    """One version of the ledger of one node.

    ``uid`` and ``version`` are those of the GpuNode. ``node_uid`` is the Node that it speaks of ("" when there is
    none now); nothing is admitted until ``rebuilt`` says the same (protocol line 17). ``foreign`` is what others use
    on the node, in units by flat key: not stored, given by the caller.
    """

    name: str
    uid: str
    version: str
    node_uid: str = ""
    rebuilt: str = ""
    resources: NodeResources = field(default_factory=NodeResources)
    entries: Mapping[str, Entry] = field(default_factory=dict)
    """By pod UID."""
    holds: Mapping[str, RoomKept] = field(default_factory=dict)
    """By task UID."""
    overbooked: bool = False
    conditions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Other conditions by type ({status, reason, message}): carried for people, judged by nobody."""
    foreign: Mapping[str, int] = field(default_factory=dict)

    # --- what is used ---

    def used(self, key: str) -> int:
        """Units of a pool that entries hold."""
        return sum(entry.allocation.amounts.get(key, 0) for entry in self.entries.values())

    def used_labels(self, key: str) -> Counter[str]:
        """Units of each label of an indexed pool that entries hold."""
        used: Counter[str] = Counter()
        for entry in self.entries.values():
            if key in entry.allocation.amounts:
                used.update(dict(entry.allocation.label_units(key)))
        return used

    def occupied(self, key: str) -> int:
        """The same of what is there now: who is on a label that was lost takes none of the others (B34)."""
        pool = self.resources.pool(key)
        if not isinstance(pool, IndexedPool):
            return self.used(key)
        used = self.used_labels(key)
        return sum(used[label] for label in pool.labels)

    # --- whether one more fits (protocol line 5) ---

    def fits(self, entry: Entry, rank: Rank = LAST) -> str | None:
        """None if the entry of a task of this rank can be admitted at this version, else one line that says why not."""
        if not self.node_uid or self.rebuilt != self.node_uid:
            return f"the ledger of {self.name} is not rebuilt for its Node yet"
        if self.overbooked:
            return f"{self.name} is overbooked: nothing is admitted until the extra owners are gone"
        if len(self.entries) >= MOST_RESERVATIONS:
            return f"{self.name} has {MOST_RESERVATIONS} reservations, the most that one ledger holds"
        for device_id in entry.allocation.devices:
            device = next((d for d in self.resources.devices if d.id == device_id), None)
            if device is None or device.health is not Health.HEALTHY:
                return f"{self.name} has no healthy device {device_id}"
        return self._short_of(entry.allocation) or self._takes_kept_room(entry, rank)

    def can_keep(self, hold: RoomKept) -> str | None:
        """None if the hold's task fits here once its victims are gone, else one line that says why not (line 16)."""
        if not self.node_uid or self.rebuilt != self.node_uid or self.overbooked:
            return f"nothing is admitted on {self.name} now"
        if len(self.holds) >= MOST_HOLDS:
            return f"{self.name} makes room for {MOST_HOLDS} tasks already"
        taken = {v.pod_uid: other.task for other in self.holds.values() for v in other.victims}
        for victim in hold.victims:
            if victim.pod_uid in taken:
                return f"{victim.task} is evicted for {taken[victim.pod_uid]} already"
        return self._after_evictions(hold)._short_of(hold.allocation)

    def _takes_kept_room(self, entry: Entry, rank: Rank) -> str | None:
        """Whether the entry would take what is kept for a task of higher rank: once all victims on the node are gone,
        or as soon as its own are."""
        for hold in self.holds.values():
            shared = entry.allocation.amounts.keys() & hold.allocation.amounts.keys()
            if hold.rank < rank and hold.task_uid != entry.task_uid and shared:
                beside = self.with_entry(entry)
                after = beside._after_evictions(hold)
                soon = not self._without(hold.victims)._short_of(hold.allocation)
                if any(after._short(hold.allocation, key) for key in shared) or (
                    soon and beside._without(hold.victims)._short_of(hold.allocation)
                ):
                    return f"room on {self.name} is kept for {hold.task}, and there is not enough beside it"
        return None

    def _without(self, victims: Iterable[Victim]) -> NodeLedger:
        gone = {victim.pod_uid for victim in victims}
        return replace(self, entries={uid: entry for uid, entry in self.entries.items() if uid not in gone})

    def _after_evictions(self, hold: RoomKept) -> NodeLedger:
        """How the ledger will be for this hold: without victims, and with the room that holds of higher rank keep."""
        entries = dict(self._without(v for other in (*self.holds.values(), hold) for v in other.victims).entries)
        for other in self.holds.values():
            if other.rank < hold.rank and other.task_uid != hold.task_uid:
                entries[f"hold {other.task_uid}"] = _held(other, self.name)
        return replace(self, entries=entries)

    def _short_of(self, asked: Allocation) -> str | None:
        return next((why for key in asked.amounts if (why := self._short(asked, key))), None)

    def _short(self, asked: Allocation, key: str) -> str | None:
        amount = asked.amounts[key]
        pool = self.resources.pool(key)
        if pool is None and key.startswith(HOST_PORT):
            capacity = SCALE
        elif pool is None and key == PODS:
            return None  # a node without this pool has no pod limit
        elif pool is None:
            return f"{self.name} declares no {key}"
        elif isinstance(pool, UnknownPool):
            return f"how much {key} {self.name} has is not known"
        else:
            capacity = pool.capacity
        free = max(0, capacity - self.occupied(key) - self.foreign.get(key, 0))
        if amount > free:
            return f"{key} on {self.name}: asked {format_amount(amount)}, free {format_amount(free)}"
        return self._label_conflict(asked, key, pool) if isinstance(pool, IndexedPool) else None

    def _label_conflict(self, asked: Allocation, key: str, pool: IndexedPool) -> str | None:
        taken = asked.label_units(key)
        labels = [label for label, _ in taken]
        if sum(units for _, units in taken) != asked.amounts[key] or len(set(labels)) != len(labels):
            return f"{key} on {self.name}: labels {labels} do not make {format_amount(asked.amounts[key])}"
        used = self.used_labels(key)
        for label, units in taken:
            if label not in pool.labels:
                return f"{key} on {self.name}: there is no label {label}"
            if used[label] + units > SCALE:
                return f"{key} on {self.name}: label {label} is taken"
        return None

    # --- changes; each gives a new value ---

    def with_hold(self, hold: RoomKept) -> NodeLedger:
        return replace(self, holds={**self.holds, hold.task_uid: hold})

    def without_hold(self, task_uid: str) -> NodeLedger:
        return replace(self, holds={uid: hold for uid, hold in self.holds.items() if uid != task_uid})

    def with_entry(self, entry: Entry) -> NodeLedger:
        return replace(self, entries={**self.entries, entry.pod_uid: entry})

    def without_entry(self, pod_uid: str) -> NodeLedger:
        entries = {uid: entry for uid, entry in self.entries.items() if uid != pod_uid}
        ledger = replace(self, entries=entries)
        return replace(ledger, overbooked=self.overbooked and ledger.doubly_owned() is not None)

    def booked(self, entry: Entry) -> NodeLedger:
        """The entry of a live owner found bound: it is booked whether it fits or not (protocol line 19)."""
        ledger = self.with_entry(entry)
        return replace(ledger, overbooked=self.overbooked or ledger.doubly_owned() is not None)

    def doubly_owned(self) -> str | None:
        """The first pool of which two entries hold one unit, or None.

        A capacity that shrank under one owner is no double ownership (B34), and a pool that is declared no more is
        not judged (B113).
        """
        owners = Counter(key for entry in self.entries.values() for key in entry.allocation.amounts)
        for key in sorted(key for key, count in owners.items() if count > 1):
            pool = self.resources.pool(key)
            if isinstance(pool, IndexedPool):
                if any(units > SCALE for units in self.used_labels(key).values()):
                    return key
            elif pool is not None and not isinstance(pool, UnknownPool) and self.used(key) > pool.capacity:
                return key
        return None


def _held(hold: RoomKept, node: str) -> Entry:
    """Kept room as an entry of nobody's pod, for sums."""
    return Entry(
        task=hold.task,
        task_uid=hold.task_uid,
        pod="",
        pod_uid="",
        pod_version="",
        attempt=0,
        node=node,
        variant=hold.variant,
        variant_index=hold.variant_index,
        allocation=hold.allocation,
    )


def check_invariants(ledger: NodeLedger) -> list[str]:
    """What must hold at every version of every ledger; empty if it does. Used after each step of each test."""
    return list(_broken(ledger))


def _broken(ledger: NodeLedger) -> Iterator[str]:
    keys = {key for entry in ledger.entries.values() for key in entry.allocation.amounts}
    for pod_uid, entry in ledger.entries.items():
        if entry.pod_uid != pod_uid:
            yield f"entry of {entry.pod_uid} is filed under {pod_uid}"
        if entry.node != ledger.name:
            yield f"entry of {pod_uid} is for {entry.node}, filed on {ledger.name}"
        if any(amount <= 0 for amount in entry.allocation.amounts.values()):
            yield f"entry of {pod_uid} holds a zero or negative amount"
    for key in sorted(keys):
        taken_twice = [label for label, units in ledger.used_labels(key).items() if units > SCALE]
        if taken_twice and not ledger.overbooked:
            yield f"line 19: {key} on {ledger.name}: labels {taken_twice} have two owners and nobody says Overbooked"
    if len(ledger.entries) > MOST_RESERVATIONS and not ledger.overbooked:
        yield f"{ledger.name} has {len(ledger.entries)} entries"
