"""The arithmetic of R6: exact while it can be, and never too large."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gputask.planner import gap
from gputask.planner.gap import Vector, group, largest_beside
from gputask.planner.room import gap_of
from gputask.planner.stock import Stock
from gputask.resources.amounts import SCALE
from gputask.resources.pools import Allocation, IndexedPool, NodeResources, SumPool


def brute_force(limits: Vector, vectors: list[Vector]) -> Vector:
    sums = {(0,) * len(limits)}
    for vector in vectors:
        sums |= {tuple(a + b for a, b in zip(total, vector, strict=True)) for total in sums}
    possible = [s for s in sums if all(a <= b for a, b in zip(s, limits, strict=True))]
    return tuple(max(column) for column in zip(*possible, strict=True))


def members(dimensions: int) -> st.SearchStrategy[list[Vector]]:
    return st.lists(st.tuples(*[st.integers(0, 9)] * dimensions), max_size=7)


@given(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)), members(3))
def test_the_largest_sums_are_exact_with_all_resources_coupled(limits: Vector, vectors: list[Vector]) -> None:
    assert largest_beside(limits, group(vectors)) == brute_force(limits, vectors)


@given(st.tuples(st.integers(0, 20), st.integers(0, 20)), members(2))
def test_without_exactness_the_gap_is_only_smaller(limits: Vector, vectors: list[Vector]) -> None:
    groups = group(vectors)
    largest = largest_beside(limits, groups)
    for r, limit in enumerate(limits):
        alone = gap._largest_sum(limit, [(v[r], n) for v, n in groups])
        assert largest[r] <= alone <= limit
        assert (alone,) == brute_force((limit,), [(v[r],) for v in vectors])


def test_too_many_sums_fall_back_to_one_resource_at_a_time() -> None:
    """The second resource lets in the largest member or all others: coupled, 2**12 is the most of the first."""
    limits = (2**20, 3**12)
    assert largest_beside(limits, group([(2**i, 3**i) for i in range(13)])) == (2**13 - 1, 3**12)


def test_sums_too_fine_for_a_bit_set_leave_no_gap() -> None:
    vectors = [(10**13 + 7**i, i + 1) for i in range(20)]
    assert largest_beside((10**14, 10**3), group(vectors))[0] == 10**14


def test_a_hold_limits_only_what_it_asks_for() -> None:
    empty = Stock({"c": 10 * SCALE, "m": 10 * SCALE}, {})
    room = gap_of(Allocation({"c": 4 * SCALE}), empty, [Allocation({"c": 8 * SCALE, "m": 9 * SCALE})], [])
    assert set(room.amounts) == {"c"}
    assert room.limit("c") == 6 * SCALE


def test_the_coupling_with_labels_is_kept() -> None:
    """Two running tasks cannot both be there beside the holder, since it needs two of the four labels."""
    resources = NodeResources({"c": SumPool(10 * SCALE), "p": IndexedPool(("a", "b", "c", "d"))})
    running = [Allocation({"c": 2 * SCALE, "p": 2 * SCALE}, {"p": labels}) for labels in (("a", "b"), ("c", "d"))]
    room = gap_of(Allocation({"c": 3 * SCALE, "p": 2 * SCALE}), Stock.of(resources), running, [])
    assert room.limit("c") == 5 * SCALE
    assert room.limit("p") == 0


def test_capacity_that_shrank_below_use_limits_no_other_resource() -> None:
    """What runs is there together, even above capacity, and may all be in P."""
    empty = Stock({"c": 10 * SCALE, "m": 2 * SCALE}, {})
    running = [Allocation({"c": 3 * SCALE, "m": 2 * SCALE}), Allocation({"c": 3 * SCALE, "m": 2 * SCALE})]
    higher = [Allocation({"m": 1 * SCALE})]
    assert gap_of(Allocation({"c": 4 * SCALE}), empty, running, higher).limit("c") == 0
