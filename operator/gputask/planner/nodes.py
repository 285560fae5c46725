"""One node during a pass: its stock in the views that the rules need, who is there, and the room beside holds."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf

from gputask.planner.model import HOST_PORT, PODS, Node, Running
from gputask.planner.room import Room, gap_of
from gputask.planner.stock import Stock
from gputask.resources.amounts import SCALE
from gputask.resources.pools import Allocation, Device, Health, UnknownPool


@dataclass(frozen=True, slots=True)
class Occupant:
    """A running task or a hold. ``ends``: the instant by which its end is guaranteed, infinity without one.

    ``work`` is what the snapshot says of it; a hold, and what starts in this pass, has none.
    """

    task: str
    allocation: Allocation
    ends: float
    work: Running | None = None
    makes_room: bool = False
    """A hold whose victims leave: nothing else has to end before its task starts (R11)."""


class NodeState:
    """The exact state of one node.

    ``empty``: all it offers, less foreign use. ``now``: beside what runs. ``unheld``: empty beside holds, for
    who can still hold here. ``spare``: beside both; what fits there delays nobody.
    """

    def __init__(self, node: Node, index: int, now: float) -> None:
        self.node = node
        self.index = index
        self.version = 0
        """Grows with every change; nothing that did not fit fits later in the pass."""
        self.holds: list[Occupant] = []
        self.room = Room()
        self._narrowed = 0
        self._timeline: list[tuple[float, Stock]] = []
        self._timeline_of = -1
        self._flat: dict[str, str | None] = {}
        self._places: dict[tuple[tuple[str, ...], tuple[str, ...] | None], list[Place]] = {}
        self.devices = sorted((d for d in node.resources.devices if d.health is Health.HEALTHY), key=_device_order)
        self.device_of = {f"{pool}/{d.id}": d.id for d in self.devices for pool in d.pools}
        self._place_running(now)

    def _place_running(self, now: float) -> None:
        """Own labels first, then use that comes without labels: foreign, then ours in order of UID."""
        offered = Stock.of(self.node.resources)
        running = sorted(self.node.running, key=lambda r: r.uid)
        beside = offered.less(r.allocation for r in running)
        self.empty = offered.copy()
        for foreign in sorted(self.node.foreign, key=lambda f: f.owner):
            use = beside.allocate(foreign.amounts, {})
            beside.take(use)
            self.empty.take(use)
        self.running: list[Occupant] = []
        self.leaving = {work.uid for work in running if work.leaving}
        """Who is on its way out: stopped already, or a victim of this pass."""
        for work in running:
            missing = any(
                key in offered.labels and key not in work.allocation.labels for key in work.allocation.amounts
            )
            allocation = work.allocation
            if missing:
                allocation = beside.allocate(allocation.amounts, allocation.labels)
            ends = (now if work.leaving else inf) if work.ends is None else max(now, work.ends)
            self.running.append(Occupant(work.task, allocation, ends, work))
        self.first_end = min((o.ends for o in self.running), default=inf)
        """The first guaranteed end of anything here."""
        self.now = self.spare = self.empty.less(o.allocation for o in self.running)
        self.unheld = self.empty

    # --- what its resources are called ----------------------------------------------------------------

    def flat(self, key: str) -> str | None:
        """The flat key by device id of a key that a request wrote, or None where this node has no such pool."""
        if key not in self._flat:
            found = self.node.resources.resolve(key)
            if found is None and (key == PODS or key.startswith(HOST_PORT)):
                found = key
            self._flat[key] = found
        return self._flat[key]

    def is_unknown(self, flat: str) -> bool:
        """Whether how much there is of this pool is not known."""
        return isinstance(self.node.resources.pool(flat), UnknownPool)

    def has_unknown(self) -> bool:
        """Whether any pool here is unknown."""
        resources = self.node.resources
        declared = [*resources.pools.values(), *(pool for d in resources.devices for pool in d.pools.values())]
        return any(isinstance(pool, UnknownPool) for pool in declared)

    def capacity(self, flat: str | None) -> int:
        """Declared units of a flat key; 0 for what is absent or not known."""
        pool = None if flat is None else self.node.resources.pool(flat)
        if pool is not None:
            return pool.capacity
        return SCALE if flat is not None and flat.startswith(HOST_PORT) else 0

    def places(self, pools: tuple[str, ...], named: tuple[str, ...] | None) -> list[Place]:
        """Where a device part may go here: the healthy devices with all pools, or the named ones."""
        key = (pools, named)
        if key not in self._places:
            self._places[key] = self._any_place(pools) if named is None else self._named_places(pools, named)
        return self._places[key]

    def _any_place(self, pools: tuple[str, ...]) -> list[Place]:
        return [
            Place(0, tuple(f"{pool}/{device.id}" for pool in pools))
            for device in self.devices
            if all(pool in device.pools for pool in pools)
        ]

    def _named_places(self, pools: tuple[str, ...], named: tuple[str, ...]) -> list[Place]:
        places: dict[tuple[str, ...], Place] = {}
        for position, name in enumerate(named):
            flats = tuple(flat for pool in pools if (flat := self.flat(f"{pool}/{name}")) is not None)
            if len(flats) == len(pools):
                places.setdefault(flats, Place(position, flats))
        order = {device.id: i for i, device in enumerate(self.devices)}
        return sorted(places.values(), key=lambda p: (order.get(p.flats[0].rpartition("/")[2], len(order)), p.flats))

    def occupants(self) -> Iterator[Occupant]:
        """All that takes room here, holds included."""
        yield from self.running
        yield from self.holds

    def without(self, gone: Container[str]) -> Stock:
        """What is left beside all holds once the running work with these UIDs is gone."""
        return self.unheld.less(o.allocation for o in self.running if o.work is None or o.work.uid not in gone)

    def timeline(self) -> list[tuple[float, Stock]]:
        """What is left beside all holds after each guaranteed end, the earliest first."""
        if self._timeline_of != self.version:
            self._timeline, self._timeline_of = self._ends(), self.version
        return self._timeline

    def _ends(self) -> list[tuple[float, Stock]]:
        ending = sorted((o for o in self.occupants() if o.ends != inf), key=lambda o: o.ends)
        held = {id(o) for o in self.holds}
        timeline: list[tuple[float, Stock]] = []
        stock, shared = self.spare, False
        for ends, group in groupby(ending, key=lambda o: o.ends):
            stock = stock.copy()
            for occupant in group:
                stock.give(occupant.allocation)
                shared = shared or id(occupant) in held
            # a hold that ends is room at that time, but all holds of a node must fit it when empty, too (R5)
            timeline.append((ends, stock.meet(self.unheld) if shared else stock))
        return timeline

    # --- changes --------------------------------------------------------------------------------------

    def place(self, task: str, allocation: Allocation, ends: float) -> None:
        """Book a task that starts in this pass."""
        self.running.append(Occupant(task, allocation, ends))
        self.now.take(allocation)
        if self.spare is not self.now:
            self.spare.take(allocation)
        self.room.consume(allocation)
        self.first_end = min(self.first_end, ends)
        self.version += 1

    def hold(self, task: str, allocation: Allocation, ends: float, victims: Sequence[str] | None = None) -> None:
        """Keep room for a blocked task. Its gap is computed only when a lower task asks for it.

        :param victims: UIDs of the running work that leaves to make this room; None for a hold that makes none.
        """
        if not self.holds:
            self.spare, self.unheld = self.now.copy(), self.empty.copy()
        self.holds.append(Occupant(task, allocation, ends, makes_room=victims is not None))
        self.leaving.update(victims or ())
        self.spare.take(allocation)
        self.unheld.take(allocation)
        self.first_end = min(self.first_end, ends)
        self.version += 1

    def narrow(self) -> bool:
        """Let the room respect one more hold; False if it respects all.

        Done late is done right: nobody starts here before the room respects all holds, except beside
        everything, and such a start changes no gap.
        """
        if self._narrowed == len(self.holds):
            return False
        hold = self.holds[self._narrowed]
        higher = [o.allocation for o in self.holds[: self._narrowed]]
        running, empty = [o.allocation for o in self.running], self.empty
        if hold.makes_room:
            # It starts when enough of the leaving are gone, in whatever order; what stays counts in full, in no set P.
            running = [o.allocation for o in self.running if self._leaves(o)]
            empty = self.empty.less(o.allocation for o in self.running if not self._leaves(o))
        self.room.narrow(gap_of(hold.allocation, empty, running, higher))
        self._narrowed += 1
        self.version += 1
        return True

    def _leaves(self, occupant: Occupant) -> bool:
        return occupant.work is not None and occupant.work.uid in self.leaving


@dataclass(frozen=True, slots=True)
class Place:
    """One device that can serve a part: the offset of its variant, and the flat key of each pool."""

    position: int
    flats: tuple[str, ...]


def _device_order(device: Device) -> tuple[float, str, str]:
    return (inf if device.index is None else device.index, device.device_class, device.id)


def holders(occupants: Sequence[Occupant], key: str) -> tuple[str, ...]:
    """The tasks among these that take some of a flat key."""
    return tuple(o.task for o in occupants if o.allocation.amounts.get(key))
