"""R6: what a held node can still give to lower tasks without delaying the holder.

Let P be any set of running tasks and higher holds that can be on the node together. Whenever the holder
fits beside P, it must still fit beside P plus all newly admitted lower tasks. For each resource r that the
holder asks for, that is gap_r = capacity_r - request_r - max{ P_r : P + request <= capacity in every r }.

This module is the arithmetic: members are vectors, equal ones grouped. It is exact while few sums can be
reached, and gives a smaller gap, which is always safe, where exactness costs too much.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import gcd

Vector = tuple[int, ...]
Groups = tuple[tuple[Vector, int], ...]
"""Member vectors with how many members have each."""

MAX_STATES = 1024
"""Reachable vectors followed before exactness is given up."""

MAX_BITS = 1 << 16
"""Reachable sums of one resource, in steps of the greatest common divisor, before its total is used."""


def group(vectors: Iterable[Vector]) -> Groups:
    """Equal vectors together, without empty ones, in a canonical order (for the cache)."""
    counts: dict[Vector, int] = {}
    for vector in vectors:
        if any(vector):
            counts[vector] = counts.get(vector, 0) + 1
    return tuple(sorted(counts.items()))


@lru_cache(maxsize=1 << 15)
def largest_beside(limits: Vector, groups: Groups) -> Vector:
    """For each resource the largest sum of any set of members that respects the limits of *every* resource.

    :param limits: capacity less the holder's request; none is negative.
    :returns: never less than the exact value, and exact while at most :data:`MAX_STATES` sums are reachable.
    """
    usable = tuple((v, n) for v, n in groups if all(part <= limit for part, limit in zip(v, limits, strict=True)))
    exact = _reachable_maxima(limits, usable)
    if exact is not None:
        return exact
    return tuple(_largest_sum(limit, [(v[r], n) for v, n in usable]) for r, limit in enumerate(limits))


def _reachable_maxima(limits: Vector, groups: Groups) -> Vector | None:
    """Exact search. A vector is packed into one integer, a field for each resource with a guard bit above it:
    subtracting a sum from the guarded limits clears the guard of every resource that is exceeded."""
    widths = [limit.bit_length() + 1 for limit in limits]
    offsets = [sum(widths[:r]) for r in range(len(widths))]

    def pack(vector: Iterable[int]) -> int:
        return sum(part << offset for part, offset in zip(vector, offsets, strict=True))

    guards = pack(1 << (width - 1) for width in widths)
    guarded = pack(limits) + guards
    reached = {0}
    for vector, count in groups:
        step = pack(vector)
        frontier: Iterable[int] = reached
        grown: set[int] = set()
        for _ in range(count):
            frontier = {total + step for total in frontier if (guarded - total - step) & guards == guards}
            grown |= frontier
            if len(grown) > MAX_STATES:
                return None
            if not frontier:
                break
        reached |= grown
        if len(reached) > MAX_STATES:
            return None
    return tuple(
        max((total >> offset) & ((1 << width) - 1) for total in reached)
        for offset, width in zip(offsets, widths, strict=True)
    )


def _largest_sum(limit: int, parts: list[tuple[int, int]]) -> int:
    """The largest sum of one resource up to its limit, the others ignored: reachable sums as a bit set."""
    total = sum(part * count for part, count in parts)
    if total <= limit:
        return total
    step = gcd(*(part for part, _ in parts))
    top = limit // step
    if top > MAX_BITS:
        return limit
    mask = (1 << (top + 1)) - 1
    reached = 1
    for part, count in parts:
        shift, rest = part // step, count
        chunk = 1
        while rest > 0 and shift:
            used = min(chunk, rest)
            reached |= (reached << (shift * used)) & mask
            rest -= used
            chunk *= 2
    return (reached.bit_length() - 1) * step
