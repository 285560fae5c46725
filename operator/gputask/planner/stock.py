"""What is left of a node in one view: beside running work, beside holds, beside both, or at a later time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gputask.planner.labels import label_table, natural, pick_labels
from gputask.planner.model import HOST_PORT, PODS, Amounts
from gputask.resources.amounts import SCALE
from gputask.resources.pools import Allocation, Health, IndexedPool, NodeResources, Pool

UNLIMITED = 1 << 62
"""Units of a pool without a limit: ``pods`` where the node declares none."""


class Stock:
    """Units left by flat key. ``amounts`` of sum pools are not clamped: below zero says how much more is used
    than there is, which counts when room has to be freed. ``labels`` has the table of each indexed pool, whose
    amount is the sum of what is left of its labels."""

    __slots__ = ("amounts", "labels")

    def __init__(self, amounts: dict[str, int], labels: dict[str, dict[str, int]]) -> None:
        self.amounts = amounts
        self.labels = labels

    @classmethod
    def of(cls, resources: NodeResources) -> Stock:
        """All that a node offers: its own pools and those of its healthy devices."""
        stock = cls({}, {})
        for key, pool in resources.pools.items():
            stock._declare(key, pool)
        for device in resources.devices:
            if device.health is Health.HEALTHY:
                for name, pool in device.pools.items():
                    stock._declare(f"{name}/{device.id}", pool)
        return stock

    def _declare(self, key: str, pool: Pool) -> None:
        if isinstance(pool, IndexedPool):
            self.labels[key] = label_table(pool.labels)
            self.amounts[key] = _left(self.labels[key])
        else:
            self.amounts[key] = pool.capacity

    def copy(self) -> Stock:
        return Stock(dict(self.amounts), {key: dict(table) for key, table in self.labels.items()})

    def available(self, key: str) -> int:
        """Units left of a flat key; an absent pool has 0."""
        left = self.amounts.get(key)
        if left is not None:
            return left
        if key == PODS:
            return UNLIMITED
        return SCALE if key.startswith(HOST_PORT) else 0

    def take(self, allocation: Allocation) -> None:
        """Subtract an allocation. Labels that the pool no longer has cost nothing of those it has."""
        self._add(allocation, -1)

    def give(self, allocation: Allocation) -> None:
        """Undo :meth:`take`."""
        self._add(allocation, 1)

    def _add(self, allocation: Allocation, sign: int) -> None:
        for key, units in allocation.amounts.items():
            table = self.labels.get(key)
            if table is None:
                if (left := self.available(key)) != UNLIMITED:
                    self.amounts[key] = left + sign * units
                continue
            for label, part in allocation.label_units(key):
                if label in table:
                    table[label] += sign * part
            self.amounts[key] = _left(table)

    def less(self, allocations: Iterable[Allocation]) -> Stock:
        """A copy without these allocations."""
        rest = self.copy()
        for allocation in allocations:
            rest.take(allocation)
        return rest

    def meet(self, other: Stock) -> Stock:
        """What both views leave."""
        both = self.copy()
        for key in both.amounts.keys() | other.amounts.keys():
            both.amounts[key] = min(self.available(key), other.available(key))
        for key, table in both.labels.items():
            for label, left in other.labels[key].items():
                table[label] = min(table[label], left)
            both.amounts[key] = _left(table)
        return both

    def allocate(self, amounts: Amounts | Mapping[str, int], given: Mapping[str, tuple[str, ...]]) -> Allocation:
        """An allocation of these amounts with a label for each unit of an indexed pool.

        Use that comes without labels (foreign pods, files that name only the node) is laid on free labels,
        the last ones first, since tasks take the first ones; what finds no label is dropped.
        """
        units = dict(amounts)
        labels = dict(given)
        for key in units.keys() & self.labels.keys() - given.keys():
            table = dict(sorted(self.labels[key].items(), key=lambda item: natural(item[0]), reverse=True))
            while units[key] > 0 and (picked := pick_labels(table, units[key], table)) is None:
                units[key] -= units[key] % SCALE or SCALE
            labels[key] = picked if units[key] > 0 and picked is not None else ()
        return Allocation({key: part for key, part in units.items() if part > 0}, labels)


def _left(table: Mapping[str, int]) -> int:
    return sum([left for left in table.values() if left > 0])
