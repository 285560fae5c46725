"""The gaps of all holds of one node, taken together: the room that lower tasks may use there (R6).

Here allocations become the vectors of :mod:`gputask.planner.gap`. Each pool of each device is a resource of
its own, since a hold names its devices. An indexed pool counts in labels: a touched label is lost for whole
requests, whoever touches it. Where fractions make that inexact, members are taken apart so that more sets P
seem possible than are, which only makes a gap smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gputask.planner.gap import Vector, group, largest_beside
from gputask.planner.labels import LabelRoom
from gputask.planner.stock import UNLIMITED, Stock
from gputask.resources.amounts import SCALE
from gputask.resources.pools import Allocation


@dataclass(slots=True)
class Room:
    """What lower tasks may still take, by flat key, of the resources that holds ask for; others are not limited."""

    amounts: dict[str, int] = field(default_factory=dict)
    labels: dict[str, LabelRoom] = field(default_factory=dict)

    def narrow(self, gap: Room) -> None:
        """Respect one more hold."""
        for key, units in gap.amounts.items():
            self.amounts[key] = min(units, self.amounts.get(key, UNLIMITED))
        for key, room in gap.labels.items():
            if key in self.labels:
                self.labels[key].merge(room)
            else:
                self.labels[key] = room

    def consume(self, allocation: Allocation) -> None:
        """Book a lower task: what it takes is gone for all others below the same holds."""
        for key, units in allocation.amounts.items():
            if key in self.amounts:
                self.amounts[key] = max(0, self.amounts[key] - units)
            elif key in self.labels:
                self.labels[key].consume(allocation.label_units(key))

    def limit(self, key: str) -> int:
        """The most that one lower task may take of a key, in units."""
        if key in self.amounts:
            return self.amounts[key]
        room = self.labels.get(key)
        if room is None:
            return UNLIMITED
        return room.budget * SCALE + max((room.spared or {}).values(), default=0)


def gap_of(hold: Allocation, empty: Stock, running: Sequence[Allocation], higher: Sequence[Allocation]) -> Room:
    """The room that one hold leaves to lower tasks.

    :param empty: the node less foreign use.
    :param running: work of ours there when the hold was made.
    :param higher: holds of higher rank on the same node.
    """
    asked = list(hold.amounts)
    keys = [k for k in dict.fromkeys([*asked, *(k for h in higher for k in h.amounts)]) if _limited(empty, k)]
    dimensions = [_dimension(key, hold, empty, running, higher) for key in keys]
    vectors = [tuple(d.of_member[m] for d in dimensions) for m in range(len(running) + len(higher))]
    for r, dimension in enumerate(dimensions):
        vectors += [tuple(int(i == r) for i in range(len(keys)))] * dimension.loose
    limits = tuple(d.limit for d in dimensions)
    largest = largest_beside(limits, group(vectors))
    room = Room()
    for key, dimension, most in zip(keys, dimensions, largest, strict=True):
        if key not in hold.amounts:
            continue
        if key in empty.labels:
            budget = max(0, dimension.limit - most - dimension.kept)
            room.labels[key] = LabelRoom(budget, _spared(key, hold, empty, running, higher))
        else:
            room.amounts[key] = dimension.limit - most
    return room


@dataclass(frozen=True, slots=True)
class _Dimension:
    """One resource: the limit of P, what each member adds, ``loose`` single labels that may be in any P, and the
    labels ``kept`` beyond the limit for the holder's fraction."""

    limit: int
    of_member: Vector
    loose: int = 0
    kept: int = 0


def _limited(empty: Stock, key: str) -> bool:
    return key in empty.labels or empty.available(key) != UNLIMITED


def _dimension(
    key: str, hold: Allocation, empty: Stock, running: Sequence[Allocation], higher: Sequence[Allocation]
) -> _Dimension:
    if key in empty.labels:
        return _labels_dimension(key, hold, empty, running, higher)
    of_member = tuple(m.amounts.get(key, 0) for m in (*running, *higher))
    limit = empty.available(key) - hold.amounts.get(key, 0)
    if key not in hold.amounts:
        limit = max(limit, sum(of_member[: len(running)]))  # what runs can be together: it does, even above capacity
    return _Dimension(max(0, limit), of_member)


def _labels_dimension(
    key: str, hold: Allocation, empty: Stock, running: Sequence[Allocation], higher: Sequence[Allocation]
) -> _Dimension:
    clean = {label for label, left in empty.labels[key].items() if left == SCALE}
    touches = [clean.intersection(m.labels.get(key, ())) if key in m.amounts else set() for m in running]
    owners = Counter(label for touched in touches for label in touched)
    shared = {label for label, count in owners.items() if count > 1}
    loose = len(shared)
    of_member = [len(touched - shared) for touched in touches]
    for other in higher:
        whole, fraction = divmod(other.amounts.get(key, 0), SCALE)
        of_member.append(whole)
        loose += fraction > 0  # its fraction may share a label or take one more: both are possible sets
    whole, fraction = divmod(hold.amounts.get(key, 0), SCALE)
    limit = len(clean) - whole
    if key not in hold.amounts:
        limit = max(limit, len(owners))
    return _Dimension(max(0, limit), tuple(of_member), loose, int(fraction > 0))


def _spared(
    key: str, hold: Allocation, empty: Stock, running: Sequence[Allocation], higher: Sequence[Allocation]
) -> dict[str, int] | None:
    """For a holder of a fraction alone each label is one place for it, with a gap of its own (R6 on the label)."""
    units = hold.amounts[key]
    if units >= SCALE:
        return None
    on_label: dict[str, list[int]] = {label: [] for label in empty.labels[key]}
    for member in running:
        if key in member.amounts:
            for label, part in member.label_units(key):
                if label in on_label:
                    on_label[label].append(part)
    anywhere = [part for h in higher if (part := min(SCALE, h.amounts.get(key, 0)))]
    anywhere += [rest for h in higher if (whole := h.amounts.get(key, 0)) > SCALE and (rest := whole % SCALE)]
    spared = {}
    for label, parts in on_label.items():
        limit = empty.labels[key][label] - units
        if limit < 0:
            spared[label] = SCALE  # never a place for the holder
        else:
            spared[label] = limit - largest_beside((limit,), group((p,) for p in (*parts, *anywhere)))[0]
    return spared
