"""R11: who is evicted for whom, and who is not."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputask.planner.model import Action
from support.cluster import Cluster, NodeBuilder, many, node, task

# --- the vectors ----------------------------------------------------------------------------------------


def test_v17_the_variant_that_can_be_had_decides_who_goes() -> None:
    cluster = Cluster(
        node("n")
        .has(cpu=4)
        .card("0", slot=["a"])
        .runs("A", {"slot/0": 1}, labels={"slot/0": ("a",)}, priority=9)
        .runs("B", {"cpu": 4}, priority=1)
    )
    cluster.submit(task("C", 5).wants(devices=(1, {"slot": 1})).or_else(cpu=4).preempting())
    cluster.step()
    assert cluster.evicted() == ["B"]
    cluster.finish("B").step()
    assert cluster.took("C").variant == "v1"


def test_v18_what_no_card_can_give_evicts_nobody_and_others_go_on() -> None:
    cluster = Cluster(node("n").has(cpu=8).card("0", mem=24000).card("1", mem=8000))
    cluster.submit(*(t.wants(cpu=1, devices=(1, {"mem": 4000})) for t in many(5, "low")))
    cluster.step()
    assert len(cluster.running("low")) == 5
    cluster.submit(task("high", 9).wants(devices=(1, {"mem": 30000})).preempting())
    cluster.submit(task("late").wants(cpu=1))
    cluster.step()
    assert cluster.evicted() == []
    assert not cluster.feasible("high")
    assert "24000" in cluster.reason("high")
    assert "mem" in cluster.reason("high")
    assert cluster.where("late") == "n"


def full_card(count: int, each: int) -> Cluster:
    cluster = Cluster(node("n").card("0", mem=count * each))
    cluster.submit(*(t.wants(devices=(1, {"mem": each})) for t in many(count, "low")))
    cluster.step()
    assert len(cluster.running("low")) == count
    return cluster


def test_v19_one_victim_is_enough_the_least_important_and_youngest() -> None:
    cluster = full_card(10, 2000)
    cluster.submit(task("high", 9).wants(devices=(1, {"mem": 2000})).preempting()).step()
    assert cluster.victims("high") == ["low9"]


def test_v20_who_could_not_land_anyway_evicts_nobody() -> None:
    fixed = node("n").has(cpu=4, mem=10).lends("pod:x/y", {"cpu": 4}).runs("low", {"mem": 10})
    cluster = Cluster(fixed).submit(task("high", 9).wants(cpu=4, mem=10).preempting())
    cluster.step()
    assert cluster.evicted() == []


def v21() -> Cluster:
    cluster = Cluster(node("n").card("0", mem=24576))
    for name, priority in (("A", 100), ("B", 200), ("C", 300)):
        cluster.submit(task(name, priority).wants(devices=(1, {"mem": 8192})).preempting())
    cluster.step(at=0)
    cluster.submit(task("D", 400).wants(devices=(1, {"mem": 12288})).preempting()).step(at=0)
    assert cluster.victims("D") == ["A", "B"]
    return cluster


def test_v21_nobody_lower_takes_the_room_that_is_being_made() -> None:
    cluster = v21()
    cluster.stopped("A").submit(task("E", 50).wants(devices=(1, {"mem": 5000})).preempting()).step(at=3)
    assert cluster.evicted() == []
    assert cluster.where("D") is None
    assert cluster.where("E") is None
    cluster.stopped("B").step(at=10)
    assert cluster.where("D") == "n"
    assert cluster.where("E") is None, "4 096 are left"
    cluster.submit(task("E2", 350).wants(devices=(1, {"mem": 4096})).preempting()).step(at=11)
    assert cluster.where("E2") == "n"
    assert cluster.evicted() == []


def test_v21_the_evicted_holds_what_is_left_against_lower_ones() -> None:
    cluster = v21()
    cluster.stopped("A").step(at=2)
    cluster.stopped("B").step(at=10)
    cluster.submit(task("E2", 50).wants(devices=(1, {"mem": 4096}))).step(at=11)
    assert cluster.where("E2") is None
    assert cluster.evicted() == []


def test_v22_equal_priority_waits_and_infeasible_or_protected_evict_nobody() -> None:
    def beside(priority: int, mem: int, **fields: object) -> Cluster:
        cluster = Cluster(node("n").card("0", mem=24576).runs("A", {"mem/0": 24576}, priority=300, **fields))
        cluster.submit(task("X", priority).wants(devices=(1, {"mem": mem})).preempting()).step()
        return cluster

    assert beside(300, 1024).evicted() == []
    assert beside(400, 25000).evicted() == []
    assert not beside(400, 25000).feasible("X")
    assert beside(400, 8192, preemptible=False).evicted() == []
    assert beside(400, 8192).evicted() == ["A"]


def test_v23_a_budget_that_allows_none_moves_the_choice_to_the_next_cheapest() -> None:
    cluster = Cluster(
        node("n").has(cpu=2).runs("cheap", {"cpu": 1}, budgets=("b",)).runs("dear", {"cpu": 1}, priority=3)
    )
    cluster.budgets = {"b": 0}
    cluster.submit(task("high", 9).wants(cpu=1).preempting()).step()
    assert cluster.evicted() == ["dear"]


def test_v23_nobody_goes_if_budgets_cover_all() -> None:
    cluster = Cluster(node("n").has(cpu=2).runs("a", {"cpu": 1}, budgets=("b",)).runs("c", {"cpu": 1}, budgets=("d",)))
    cluster.budgets = {"b": 0, "d": 0}
    cluster.submit(task("high", 9).wants(cpu=1).preempting()).step()
    assert cluster.evicted() == []


# --- faults met in the field ----------------------------------------------------------------------------


def test_b77_no_more_victims_than_needed() -> None:
    cluster = full_card(11, 1000)
    cluster.submit(task("P", 10).wants(devices=(1, {"mem": 1000})).preempting()).step()
    assert cluster.evicted() == ["low10"]
    cluster.stopped("low10").step()
    assert cluster.where("P") == "n"
    cluster.submit(task("P2", 10).wants(devices=(1, {"mem": 2500})).preempting()).step()
    assert cluster.evicted() == ["low7", "low8", "low9"]


def test_b84_a_pool_known_from_annotations_counts_as_in_admission() -> None:
    cluster = Cluster(node("n").card("0", mem=8000).runs("V", {"mem/0": 5000}).runs("W", {"mem/0": 3000}))
    cluster.submit(task("P", 10).wants(devices=(1, {"mem": 4000})).preempting()).step()
    assert cluster.evicted() == ["V"]


def test_b125_nobody_goes_while_there_is_room() -> None:
    cluster = Cluster(node("n").card("0", mem=24000).runs("L", {"mem/0": 4000}))
    cluster.submit(task("H", 10).wants(devices=(1, {"mem": 6000})).preempting()).step()
    assert cluster.evicted() == []
    assert cluster.where("H") == "n"


def test_b125_missing_data_evicts_nobody() -> None:
    cluster = Cluster(node("n").card("0", mem=None, slot=["a"]).runs("L", {"slot/0": 1}, labels={"slot/0": ("a",)}))
    cluster.submit(task("H", 10).wants(devices=(1, {"mem": 6000})).preempting()).step()
    assert cluster.evicted() == []


# --- single rules ---------------------------------------------------------------------------------------


def test_an_eviction_is_decided_once_and_its_hold_stands() -> None:
    cluster = full_card(2, 1000)
    cluster.submit(task("high", 9).wants(devices=(1, {"mem": 1000})).preempting())
    first = cluster.step()
    assert [d.action for d in first.decisions] == [Action.PREEMPT]
    second = cluster.step()
    assert [d.action for d in second.decisions] == [Action.HOLD]
    assert second.holds[0].committed
    assert second.holds[0].victims == ("uid-low1",)


def test_work_that_leaves_anyway_makes_the_room() -> None:
    cluster = Cluster(
        node("m").has(cpu=1).runs("a", {"cpu": 1}), node("n").has(cpu=1).runs("b", {"cpu": 1}, leaving=True)
    )
    cluster.submit(task("high", 9).wants(cpu=1).preempting()).step()
    assert cluster.evicted() == []
    hold = cluster.hold_of("high")
    assert hold is not None
    assert hold.node == "n"


def test_what_the_preemptor_does_not_need_is_for_others() -> None:
    cluster = Cluster(
        node("n").has(cpu=10, mem=10).runs("low", {"cpu": 6, "mem": 1}).runs("stays", {"cpu": 4}, priority=9)
    )
    cluster.submit(task("high", 5).wants(cpu=5).preempting(), task("mem").wants(mem=9), task("cpu").wants(cpu=1)).step()
    assert cluster.evicted() == ["low"]
    assert cluster.where("mem") == "n"
    cluster.finish("low").step()
    assert cluster.where("high") == "n"
    assert cluster.where("cpu") == "n"


def test_two_preemptors_of_one_pass_have_victims_of_their_own() -> None:
    cluster = full_card(3, 1000)
    cluster.submit(*(t.wants(devices=(1, {"mem": 1000})).preempting() for t in many(2, "high", 9))).step()
    assert cluster.victims("high0") == ["low2"]
    assert cluster.victims("high1") == ["low1"]


def test_victims_stay_for_their_least_runtime() -> None:
    cluster = Cluster(node("n").has(cpu=1).runs("low", {"cpu": 1}, protected_until=10.0))
    cluster.submit(task("high", 9).wants(cpu=1).preempting()).step(at=9.0)
    assert cluster.evicted() == []
    cluster.step(at=10.0)
    assert cluster.evicted() == ["low"]


def test_the_least_work_is_lost_among_equals() -> None:
    cluster = Cluster(
        node("m").has(cpu=1).runs("long", {"cpu": 1}, started=0.0, created=9.0),
        node("n").has(cpu=1).runs("short", {"cpu": 1}, started=80.0, created=1.0),
    )
    cluster.submit(task("high", 9).wants(cpu=1).preempting()).step(at=100.0)
    assert cluster.evicted() == ["short"]


def test_one_large_victim_is_better_than_two_small_ones() -> None:
    cluster = Cluster(
        node("n")
        .has(cpu=8)
        .runs("c", {"cpu": 4}, created=1.0)
        .runs("a", {"cpu": 2}, created=2.0)
        .runs("b", {"cpu": 2}, created=3.0)
    )
    cluster.submit(task("high", 9).wants(cpu=4).preempting()).step()
    assert cluster.evicted() == ["c"]


def test_but_not_if_it_is_more_important() -> None:
    cluster = Cluster(
        node("n")
        .has(cpu=8)
        .runs("c", {"cpu": 4}, priority=2)
        .runs("a", {"cpu": 2}, priority=1)
        .runs("b", {"cpu": 2}, priority=1)
    )
    cluster.submit(task("high", 9).wants(cpu=4).preempting()).step()
    assert cluster.evicted() == ["a", "b"]


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_a_budget_counts_over_the_whole_set(allowed: int) -> None:
    cluster = Cluster(node("n").has(cpu=4).runs("a", {"cpu": 2}, budgets=("b",)).runs("c", {"cpu": 2}, budgets=("b",)))
    cluster.budgets = {"b": allowed}
    cluster.submit(task("wide", 9).wants(cpu=4).preempting()).step()
    assert cluster.evicted() == (["a", "c"] if allowed == 2 else [])


def test_a_budget_that_allows_one_of_many_takes_the_one_that_is_enough() -> None:
    cluster = Cluster(
        node("n")
        .has(cpu=6)
        .runs("large", {"cpu": 4}, budgets=("b",), created=1.0)
        .runs("s1", {"cpu": 1}, budgets=("b",), created=2.0)
        .runs("s2", {"cpu": 1}, budgets=("b",), created=3.0)
    )
    cluster.budgets = {"b": 1}
    cluster.submit(task("high", 9).wants(cpu=2).preempting()).step()
    assert cluster.evicted() == ["large"]


def test_the_hold_of_an_eviction_is_given_up_when_its_room_does_not_come() -> None:
    cluster = full_card(1, 1000)
    cluster.submit(task("high", 5).wants(devices=(1, {"mem": 1000})).preempting()).step()
    cluster.submit(task("higher", 9).wants(devices=(1, {"mem": 1000})).preempting())
    cluster.stopped("low0").step()
    assert cluster.where("higher") == "n"
    assert cluster.evicted() == []
    hold = cluster.hold_of("high")
    assert hold is not None
    assert not hold.committed


def test_a_committed_hold_stays_where_it_is() -> None:
    cluster = Cluster(node("n").has(cpu=2).runs("a", {"cpu": 2}))
    cluster.submit(task("high", 9).wants(cpu=2).preempting()).step()
    cluster.join(node("b").has(cpu=2).runs("timed", {"cpu": 2}, ends=1.0, priority=9)).step(at=1000.0)
    hold = cluster.hold_of("high")
    assert hold is not None
    assert hold.node == "n"
    assert hold.committed


# --- against brute force --------------------------------------------------------------------------------

works = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.booleans()), max_size=4)


@settings(max_examples=300)
@given(
    nodes=st.lists(st.tuples(st.integers(1, 8), works), min_size=1, max_size=3),
    priority=st.integers(0, 4),
    variants=st.lists(st.integers(1, 6), min_size=1, max_size=2),
)
def test_somebody_goes_exactly_when_a_set_exists_and_its_top_priority_is_the_lowest(
    nodes: list[tuple[int, list[tuple[int, int, bool]]]], priority: int, variants: list[int]
) -> None:
    cluster, free, running = Cluster(), {}, {}
    for n, (cpu, members) in enumerate(nodes):
        builder: NodeBuilder = node(f"n{n}").has(cpu=cpu)
        left, kept = cpu, []
        for w, (size, level, preemptible) in enumerate(members):
            if size <= left:
                left -= size
                kept.append((size, level, preemptible))
                builder.runs(f"w{n}{w}", {"cpu": size}, priority=level, preemptible=preemptible)
        free[f"n{n}"], running[f"n{n}"] = left, kept
        cluster.join(builder)
    waiting = task("x", priority).preempting()
    for asked in variants:
        waiting.wants(cpu=asked)
    cluster.submit(waiting).step()

    def tops(asked: int) -> list[int]:
        return [
            max(level for _, level, _ in chosen)
            for name, kept in running.items()
            for count in range(1, len(kept) + 1)
            for chosen in combinations(kept, count)
            if all(preemptible and level < priority for _, level, preemptible in chosen)
            and free[name] + sum(size for size, _, _ in chosen) >= asked
        ]

    fits = any(left >= asked for left in free.values() for asked in variants)
    possible = [] if fits else next((found for asked in variants if (found := tops(asked))), [])
    decided = [d for d in cluster.plan.decisions if d.action is Action.PREEMPT]
    assert len(decided) == (1 if possible else 0)
    if possible:
        assert max(v.priority for v in decided[0].victims) == min(possible)


def two_rooms(*, third: int) -> Cluster:
    """H gets its 5 by the 1 that is free and a's 4; what H2 does not need of b's 5 is free once b is gone."""
    built = node("n").has(c=third + 10).runs("a", {"c": 4}).runs("b", {"c": 5}, priority=1)
    built.runs("stays", {"c": third}, priority=9)
    cluster = Cluster(built)
    cluster.submit(task("H", 5).wants(c=5).preempting(), task("H2", 4).wants(c=3).preempting()).step()
    assert (cluster.victims("H"), cluster.victims("H2")) == (["a"], ["b"])
    return cluster


@pytest.mark.parametrize("third", [0, 2])
def test_nobody_takes_what_the_first_victim_gives_however_much_the_second_will(third: int) -> None:
    cluster = two_rooms(third=third)
    cluster.submit(task("low", 0).wants(c=1)).step()
    assert cluster.where("low") is None, "as soon as a is gone H would be one short"
    cluster.stopped("a").step()
    assert cluster.where("H") == "n"
    cluster.stopped("b").step()
    assert (cluster.where("H2"), cluster.where("low")) == ("n", "n")
