"""R3 on one node: which devices and labels an option takes there, in one view of the node's stock.

Devices: where least is to be freed first (that is, those without holds), then the tightest fit, then the
order by index and id. The order of variants, pools or declarations plays no part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gputask.planner.labels import LabelRoom, pick_labels
from gputask.planner.nodes import NodeState, Place
from gputask.planner.options import DevicePart, Option
from gputask.planner.room import Room
from gputask.planner.stock import Stock
from gputask.resources.pools import Allocation

PPM = 1_000_000
"""Ratios are compared as whole millionths, so that sums do not depend on the order of resources."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An option on a node: which of its variants, and what it takes."""

    variant_index: int
    variant: str
    allocation: Allocation


def start(state: NodeState, option: Option) -> Choice | None:
    """How an option starts on a node now, or None. What fits beside everything, holds included, delays nobody and
    starts at once; else it has to fit into the gap of every hold, and those are computed only then."""
    choice = choose(state, option, state.spare)
    if choice is not None or not state.holds:
        return choice
    choice = choose(state, option, state.now, room=state.room)
    while choice is not None and state.narrow():
        choice = choose(state, option, state.now, room=state.room)
    return choice


def choose(
    state: NodeState,
    option: Option,
    stock: Stock,
    *,
    room: Room | None = None,
    only: frozenset[str] | None = None,
) -> Choice | None:
    """The best way for an option to take what it asks from a stock of this node, or None if it does not fit.

    :param room: limits that holds of higher rank set on top of the stock.
    :param only: if given, the ids of the devices that may be taken.
    """
    view = _View(state, stock, room)
    asked: dict[str, int] = {}
    for key, units in option.amounts:
        flat = state.flat(key)
        if flat is None:
            return None
        asked[flat] = asked.get(flat, 0) + units
    if not all(units <= view.free(flat) and view.has_labels(flat, units) for flat, units in asked.items()):
        return None
    position = 0
    for part in option.parts:
        places = _pick_places(view, part, asked, only)
        if places is None:
            return None
        for place in places:
            position += place.position
            for flat, units in zip(place.flats, part.units, strict=True):
                asked[flat] = asked.get(flat, 0) + units
    labels: dict[str, tuple[str, ...]] = {}
    for flat, units in asked.items():
        if flat in stock.labels:
            picked = view.pick(flat, units)
            if picked is None:
                return None
            labels[flat] = picked
    taken = {state.device_of[flat] for flat in asked if flat in state.device_of}
    devices = tuple(d.id for d in state.devices if d.id in taken)
    return Choice(option.first + position, option.names[position], Allocation(asked, labels, devices))


def to_free(allocation: Allocation, spare: Stock) -> int:
    """How much is still to be freed: the sum of shortage / request in millionths (R5)."""
    return sum(ratio(shortage(allocation, key, spare), units) for key, units in allocation.amounts.items())


def shortage(allocation: Allocation, key: str, spare: Stock) -> int:
    """Units of one key that a stock lacks for an allocation; of an indexed pool on the very labels that it takes."""
    table = spare.labels.get(key)
    if table is None:
        return max(0, allocation.amounts[key] - spare.available(key))
    return sum(max(0, part - table.get(label, 0)) for label, part in allocation.label_units(key))


def ratio(part: int, whole: int) -> int:
    """part / whole in millionths, not below zero. Through floats, as numpy does it: the same value there and here."""
    return int(part / whole * PPM) if part > 0 else 0


@dataclass(frozen=True, slots=True)
class _View:
    """A stock of a node, limited by what holds leave."""

    state: NodeState
    stock: Stock
    room: Room | None

    def free(self, flat: str) -> int:
        """Units that one request may take of a sum pool; of an indexed one no more than that."""
        left = self.stock.available(flat)
        return left if self.room is None else min(left, self.room.amounts.get(flat, left))

    def has_labels(self, flat: str, units: int) -> bool:
        """Whether a request finds its labels, if the pool is indexed."""
        return flat not in self.stock.labels or self.pick(flat, units) is not None

    def pick(self, flat: str, units: int) -> tuple[str, ...] | None:
        """The labels that a request takes of an indexed pool, or None."""
        limits: LabelRoom | None = None if self.room is None else self.room.labels.get(flat)
        table, spare = self.stock.labels[flat], self.state.spare.labels[flat]
        if table is spare and self.state.holds and min(table.values(), default=0) < 0:
            return None  # beside everything means that the holds have their labels too
        return pick_labels(table, units, spare, limits)


def _pick_places(
    view: _View, part: DevicePart, asked: dict[str, int], only: frozenset[str] | None
) -> list[Place] | None:
    """``count`` distinct devices that cover the part beside what is already asked of them."""
    chosen: list[Place] = []
    for place in _ranked_places(view, part, asked, only):
        if all(view.has_labels(f, u + asked.get(f, 0)) for f, u in zip(place.flats, part.units, strict=True)):
            chosen.append(place)
            if len(chosen) == part.count:
                return chosen
    return None


def _ranked_places(
    view: _View, part: DevicePart, asked: dict[str, int], only: frozenset[str] | None
) -> Iterator[Place]:
    """Devices with enough units, best first: least to be freed, tightest, then in their order."""
    ranked: list[tuple[int, int, int, Place]] = []
    device_of, spare = view.state.device_of, view.state.spare
    for order, place in enumerate(view.state.places(part.pools, part.named)):
        if only is not None and device_of.get(place.flats[0], "") not in only:
            continue
        freed = tightness = 0
        for flat, units in zip(place.flats, part.units, strict=True):
            total = units + asked.get(flat, 0)
            free = view.free(flat)
            if free < total:
                break
            tightness += ratio(free, total)
            if view.stock is not spare:
                freed += ratio(total - spare.available(flat), total)
        else:
            ranked.append((freed, tightness, order, place))
    ranked.sort(key=lambda entry: entry[:3])
    return (place for *_, place in ranked)
