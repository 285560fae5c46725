"""R6 by brute force: what can be on a small node together, label by label, with every subset tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations

from gputask.planner.model import Node
from gputask.resources.amounts import SCALE
from gputask.resources.pools import Allocation, IndexedPool


def subsets(members: Sequence[Allocation]) -> Iterator[tuple[Allocation, ...]]:
    return chain.from_iterable(combinations(members, size) for size in range(len(members) + 1))


def together(node: Node, fixed: Iterable[Allocation], free: Iterable[Allocation] = ()) -> bool:
    """Whether all of these fit the node: ``fixed`` on their labels, ``free`` on any labels."""
    fixed, free = list(fixed), list(free)
    keys = {key for allocation in (*fixed, *free) for key in allocation.amounts}
    return all(_fits(node, key, fixed, free) for key in keys)


def _fits(node: Node, key: str, fixed: list[Allocation], free: list[Allocation]) -> bool:
    pool = node.resources.pool(key)
    if not isinstance(pool, IndexedPool):
        capacity = 0 if pool is None else pool.capacity
        return sum(a.amounts.get(key, 0) for a in (*fixed, *free)) <= capacity
    left = dict.fromkeys(pool.labels, SCALE)
    for allocation in fixed:
        if key in allocation.amounts:
            for label, units in allocation.label_units(key):
                left[label] -= units
    parts = [part for a in free for part in _parts(a.amounts.get(key, 0))]
    return min(left.values(), default=0) >= 0 and _packs(left, sorted(parts, reverse=True))


def _parts(units: int) -> list[int]:
    whole, fraction = divmod(units, SCALE)
    return [SCALE] * whole + [fraction] * (fraction > 0)


def _packs(left: dict[str, int], parts: list[int]) -> bool:
    if not parts:
        return True
    first, *rest = parts
    return any(_packs({**left, label: units - first}, rest) for label, units in left.items() if units >= first)


def delays(
    node: Node,
    hold: Allocation,
    higher: Sequence[Allocation],
    running: Sequence[Allocation],
    admitted: Sequence[Allocation],
) -> tuple[Allocation, ...] | None:
    """A set P beside which the holder fits, but not beside P plus the admitted tasks; None if there is none (R6)."""
    for work in subsets(running):
        for held in subsets(higher):
            if together(node, work, [*held, hold]) and not together(node, [*work, *admitted], [*held, hold]):
                return (*work, *held)
    return None
