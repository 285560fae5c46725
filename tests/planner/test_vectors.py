"""The planner vectors, one test for each: state in, decision out."""

from __future__ import annotations

import pytest

from gputask.planner.room import gap_of
from gputask.planner.stock import Stock
from gputask.resources.amounts import AmountError, parse_amount
from gputask.resources.pools import Allocation
from support.cluster import Cluster, amount, many, node, task


def test_v01_variants_are_taken_in_order() -> None:
    cluster = Cluster(node("n").has(c=16, g=4))
    cluster.submit(*(t.wants(c=1, g=1).or_else(c=4) for t in many(10, "t")))
    cluster.step()
    assert cluster.variants() == {"v0": 4, "v1": 3}
    assert len(cluster.waiting) == 3


def test_v03_wide_tasks_leave_the_card_node_to_card_tasks() -> None:
    for first, second in (("g", "w"), ("w", "g")):
        cluster = Cluster(node("A").has(c=8), node("B").has(c=8, g=2))
        tasks = {"g": [t.wants(c=2, g=1) for t in many(3, "g")], "w": [t.wants(c=4) for t in many(3, "w")]}
        cluster.submit(*tasks[first], *tasks[second])
        cluster.step()
        assert [cluster.where(f"w{i}") for i in range(3)] == ["A", "A", "B"]
        assert [cluster.where(f"g{i}") for i in range(3)] == ["B", "B", None]


def test_v04_a_gap_is_exact_and_a_missing_resource_is_zero() -> None:
    node_ = node("n").has({"cpus": 8, "mem": 60000, "runtime/aaa": 8})
    for i in range(4):
        node_.runs(f"deg{i}", {"cpus": 1, "mem": 2000, "runtime/aaa": 1})
    node_.runs("blocker", {"cpus": 4, "runtime/aaa": 1, "mem": 12000})
    cluster = Cluster(node_)
    waiting = task("second", 4).wants(
        {"cpus": 4, "runtime/aaa": 1, "gpuSlot/0": 1, "gpuMemoryMB/0": 20000, "gpuHostMB": 12000}
    )
    cluster.submit(waiting.or_else({"cpus": 4, "runtime/aaa": 1, "mem": 12000}))
    cluster.submit(*(t.wants({"cpus": 1, "mem": 2000, "runtime/aaa": 1}) for t in many(3, "low", 1)))
    cluster.submit(*(t.wants(mem=2000) for t in many(25, "mem", 0)))
    cluster.step()
    assert cluster.running("low") == []
    assert len(cluster.running("mem")) == 18


@pytest.mark.parametrize("names", [("cpus", "mem", "rt"), ("z", "m", "a"), ("b", "c", "a")])
def test_v04_holds_however_the_resources_are_named(names: tuple[str, str, str]) -> None:
    cpus, mem, rt = names
    built = node("n").has({cpus: 8, mem: 60000, rt: 8})
    for i in range(4):
        built.runs(f"deg{i}", {cpus: 1, mem: 2000, rt: 1})
    built.runs("blocker", {cpus: 4, rt: 1, mem: 12000})
    cluster = Cluster(built)
    cluster.submit(task("second", 4).wants({cpus: 4, rt: 1, mem: 12000}))
    cluster.submit(*(t.wants({mem: 2000}) for t in many(25, "mem")))
    cluster.submit(task("rts").wants({rt: 3}))
    cluster.step()
    assert len(cluster.running("mem")) == 18
    assert cluster.where("rts") == "n"


def test_v05_a_fraction_comes_from_one_label() -> None:
    cluster = Cluster(node("n").has(p=["a", "b"]))
    cluster.submit(task("x").wants(p="0.75"), task("y").wants(p="0.75"))
    cluster.submit(task("half").wants(p="0.5"), task("quarter").wants(p="0.25"))
    cluster.step()
    assert cluster.running() == ["quarter", "x", "y"]
    held = cluster.hold_of("half")
    assert held is not None
    (label,) = held.allocation.labels["p"]
    assert cluster.took("quarter").allocation.labels["p"] != (label,)
    owner = next(name for name in ("x", "y") if cluster.took(name).allocation.labels["p"] == (label,))
    cluster.finish(owner).step()
    assert cluster.took("half").allocation.labels["p"] == (label,)


@pytest.mark.parametrize(("asked", "fits"), [("1.5", True), ("1.6", False)])
def test_v05_a_whole_and_half_a_label_give_one_and_a_half(asked: str, fits: bool) -> None:
    cluster = Cluster(node("n").has(p=["a", "b"]).runs("r", {"p": "0.5"}, labels={"p": ("b",)}))
    cluster.submit(task("t").wants(p=asked))
    cluster.step()
    assert (cluster.where("t") == "n") is fits
    if fits:
        assert cluster.took("t").allocation.labels["p"] == ("a", "b")


def test_v06_sums_are_exact_to_four_decimals() -> None:
    for asked, running in (("333.3333", 3), ("333.3334", 2)):
        cluster = Cluster(node("n").has(s=1000))
        cluster.submit(*(t.wants(s=asked) for t in many(3, "t")))
        cluster.step()
        assert len(cluster.running()) == running
    with pytest.raises(AmountError, match="more than 4 decimals"):
        parse_amount("0.00001", "s")


def test_v06_zero_means_absent() -> None:
    cluster = Cluster(node("n").has(s=1))
    cluster.submit(task("t").wants(s=1, other=0))
    cluster.step()
    assert cluster.took("t").allocation.amounts == {"s": 10_000}


def test_v07_labels_have_identity() -> None:
    cluster = Cluster(node("n").has(p=["1", "2", "3"]))
    cluster.submit(task("one").wants(p=1), task("two").wants(p=2), task("third").wants(p=1))
    cluster.step()
    one, two = (set(cluster.took(name).allocation.labels["p"]) for name in ("one", "two"))
    assert one | two == {"1", "2", "3"}
    assert not one & two
    assert cluster.where("third") is None
    cluster.finish("two").step()
    assert set(cluster.took("third").allocation.labels["p"]) < two


def test_v08_gap() -> None:
    cluster = Cluster(node("n").has(c=20))
    cluster.submit(*(t.wants(c=7) for t in many(3, "wide", 5)), *(t.wants(c=2) for t in many(5, "narrow", 1)))
    cluster.step()
    assert cluster.running("wide") == ["wide0", "wide1"]
    assert len(cluster.running("narrow")) == 3
    cluster.finish("wide0").step()
    assert cluster.running("wide") == ["wide1", "wide2"]
    assert len(cluster.running("narrow")) == 3


@pytest.mark.parametrize(("capacity", "running", "wide", "kept"), [(18, (2, 3), 7, 1), (12, (3,), 5, 2)])
def test_v09_a_gap_respects_every_departure(capacity: int, running: tuple[int, ...], wide: int, kept: int) -> None:
    built = node("n").has(c=capacity)
    for i, units in enumerate(running):
        built.runs(f"r{i}", {"c": units})
    cluster = Cluster(built)
    cluster.submit(*(t.wants(c=wide) for t in many(3, "wide", 5)), *(t.wants(c=1) for t in many(9, "low", 1)))
    cluster.step()
    assert len(cluster.running("low")) == kept
    cluster.step()
    assert len(cluster.running("low")) == kept


def _five_nodes_with_four_used() -> Cluster:
    return Cluster(*(node(f"n{i}").has(c=10).runs(f"r{i}", {"c": 4}) for i in range(5)))


def test_v10_one_large_blocked_task_holds_one_node() -> None:
    cluster = _five_nodes_with_four_used()
    cluster.submit(task("H", 7).wants(c=8), *(t.wants(c=1) for t in many(100, "low", 1)))
    cluster.step()
    assert len(cluster.running("low")) == 26
    held = cluster.hold_of("H")
    assert held is not None
    on_held = [n for n in cluster.running("low") if cluster.where(n) == held.node]
    assert len(on_held) == 2
    cluster.finish(f"r{held.node[1:]}").step()
    assert cluster.where("H") == held.node


def test_v10_a_task_larger_than_any_node_holds_nothing() -> None:
    cluster = _five_nodes_with_four_used()
    cluster.submit(task("H", 7).wants(c=32), *(t.wants(c=1) for t in many(100, "low", 1)))
    cluster.step()
    assert len(cluster.running("low")) == 30
    assert cluster.hold_of("H") is None
    assert not cluster.feasible("H")


def test_v11_the_shortest_sufficient_node_life_is_taken() -> None:
    lives = {"A": 60, "B": 200, "C": 120}
    cluster = Cluster(*(node(name).has(c=1).with_(lives_until=float(left)) for name, left in lives.items()))
    cluster.submit(task("t1").wants(c=1, min_time=150), task("t2").wants(c=1), task("t3").wants(c=1, min_time=110))
    cluster.step(at=0.0)
    assert [cluster.where(name) for name in ("t1", "t2", "t3")] == ["B", "A", "C"]


def test_v13_a_blocker_larger_than_one_node_holds_the_other() -> None:
    cluster = Cluster(node("three").has(c=3), node("five").has(c=5))
    cluster.submit(*(t.wants(c=5) for t in many(2, "wide", 10)), task("low").wants(c=1))
    cluster.step()
    assert cluster.running("wide") == ["wide0"]
    assert cluster.where("wide0") == "five"
    assert cluster.where("low") == "three"


def test_v13_the_gaps_of_two_blockers_count_together() -> None:
    empty = Stock({"c": amount(12)}, {})
    five, seven, running = (Allocation({"c": amount(units)}) for units in (5, 7, 12))
    first = gap_of(five, empty, [running], [])
    second = gap_of(seven, empty, [running], [five])
    assert (first.limit("c"), second.limit("c")) == (amount(7), 0)
    first.narrow(second)
    assert first.limit("c") == 0


def test_v14_memory_counts_on_each_card() -> None:
    built = node("n").has(cpu=64)
    for card in range(4):
        built.card(str(card), gpuMemoryMB=23000).runs(f"r{card}", {f"gpuMemoryMB/{card}": 10000})
    cluster = Cluster(built)
    cluster.submit(
        task("first").wants(devices=(1, {"gpuMemoryMB": 10000})),
        task("second").wants(devices=(1, {"gpuMemoryMB": 14000})),
        task("third").wants(devices=(2, {"gpuMemoryMB": 13000})),
    )
    cluster.step()
    assert cluster.where("second") is None
    held = cluster.hold_of("second")
    assert held is not None
    first, third = cluster.took("first").allocation.devices, cluster.took("third").allocation.devices
    assert len(set(third)) == 2
    assert not set(third) & {*first, *held.allocation.devices}


def test_v16_the_search_goes_on_to_the_next_variant() -> None:
    cluster = Cluster(
        node("n").has(cpu=8).card("0", gpuSlot=["a"]).runs("r", {"gpuSlot/0": 1}, labels={"gpuSlot/0": ("a",)})
    )
    cluster.submit(task("t").wants(devices=(1, {"gpuSlot": 1})).or_else(cpu=4))
    cluster.step()
    assert cluster.took("t").variant == "v1"


def test_v27_higher_priority_first_then_the_older_one() -> None:
    cluster = Cluster(node("n").has(mem=8192))
    cluster.submit(
        *(task(name, priority).wants(mem=8192) for name, priority in (("t1", 100), ("t2", 300), ("t3", 300)))
    )
    order = []
    for _ in range(3):
        cluster.step()
        (started,) = cluster.running()
        order.append(started)
        cluster.finish(started)
    assert order == ["t2", "t3", "t1"]


def test_v30_no_card_is_overbooked_and_the_reason_names_the_memory() -> None:
    built = node("n").has(cpu=64)
    for card in range(4):
        built.card(str(card), gpuSlot=["a", "b", "c", "d"], gpuMemoryMB=24000)
    cluster = Cluster(built)
    cluster.submit(*(t.wants(devices=(1, {"gpuSlot": 1, "gpuMemoryMB": 12000})) for t in many(16, "t")))
    cluster.step()
    cards = [cluster.took(name).allocation.devices for name in cluster.running()]
    assert sorted(cards) == [("0",)] * 2 + [("1",)] * 2 + [("2",)] * 2 + [("3",)] * 2
    assert len(cluster.waiting) == 8
    assert all("gpuMemoryMB" in w.message for w in cluster.plan.waiting)
