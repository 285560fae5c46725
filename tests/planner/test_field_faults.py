"""Faults that users of such systems met, as far as the planner alone decides: one test for each."""

from __future__ import annotations

import random
from collections import Counter
from itertools import permutations

import pytest

from gputask.planner.model import NodeConstraints, Toleration
from support.cluster import Cluster, NodeBuilder, TaskBuilder, amount, many, node, task


@pytest.mark.parametrize(("running", "new"), [(0, 2), (1, 1), (2, 0)])
def test_b01_low_tasks_leave_room_for_every_departure(running: int, new: int) -> None:
    cluster = Cluster(node("n1").has(cpu=11, gpu=2))
    cluster.submit(*(t.wants(cpu=1) for t in many(running, "early"))).step()
    cluster.submit(*(t.wants(cpu=6).or_else(cpu=3, gpu=1) for t in many(10, "H", 10)))
    cluster.submit(*(t.wants(cpu=1) for t in many(9, "L")))
    cluster.step()
    assert cluster.variants("H") == {"v0": 1, "v1": 1}
    assert len(cluster.running("L")) == new


def test_b01_the_second_variant_holds_and_starts_when_one_low_task_ends() -> None:
    cluster = Cluster(node("n1").has(cpu=11, gpu=2))
    cluster.submit(*(t.wants(cpu=1) for t in many(3, "early"))).step()
    cluster.submit(*(t.wants(cpu=6).or_else(cpu=3, gpu=1) for t in many(10, "H", 10)))
    cluster.submit(*(t.wants(cpu=1) for t in many(9, "L")))
    cluster.step()
    assert cluster.variants("H") == {"v0": 1}
    held = cluster.hold_of("H1")
    assert held is not None
    assert held.variant_index == 1
    cluster.finish("early0").step()
    assert cluster.took("H1").variant == "v1"
    assert cluster.running("L") == []


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("high_first", [True, False])
def test_b02_variants_meet_nodes_that_lack_their_resources(order: tuple[int, ...], high_first: bool) -> None:
    nodes = [
        node("n1").has(cpu=8, mem=32000),
        node("n2").has(cpu=8, mem=32000).card("0", gpuSlot=["a"], gpuMemoryMB=24000),
        node("n3").has(cpu=4, mem=16000).card("3", gpuSlot=["d"], gpuMemoryMB=24000),
    ]
    high = [
        t.wants({"cpu": 2, "gpuSlot/3": 1, "gpuMemoryMB/3": 20000}).or_else(cpu=4, mem=12000) for t in many(6, "H", 10)
    ]
    low = [t.wants({"gpuSlot/0": 1, "cpu": 1}).or_else(cpu=1) for t in many(6, "L")]
    cluster = Cluster(*(nodes[i] for i in order))
    cluster.submit(*(high + low if high_first else low + high))
    cluster.step()
    where = Counter((cluster.where(name), cluster.took(name).variant) for name in cluster.running("H"))
    assert where == {("n3", "v0"): 1, ("n1", "v1"): 2, ("n2", "v1"): 2}
    assert cluster.running("L") == []
    held = cluster.hold_of("H5")
    assert held is not None
    assert (held.node, held.variant_index) == ("n3", 1)


def test_b04_a_task_that_no_node_can_satisfy_blocks_nobody() -> None:
    cluster = Cluster(node("n1").has(cpu=2), node("n2").has(cpu=2))
    cluster.submit(task("H", 10).wants(cpu=3), *(t.wants(cpu=1) for t in many(4, "L")))
    cluster.step()
    assert len(cluster.running("L")) == 4
    assert not cluster.feasible("H")
    assert cluster.reason("H") == "asks 3 cpu; the largest is 2 on n1"
    cluster.join(node("n3").has(cpu=4)).step()
    assert cluster.where("H") == "n3"


def test_b09_tenths_add_up_to_one() -> None:
    rng = random.Random(9)
    cluster = Cluster(node("n").has(lic="1.0"))
    cluster.submit(*(task(f"t{i}").wants(lic="0.1" if i % 2 else 0.1) for i in range(11)))
    cluster.step()
    assert len(cluster.running()) == 10
    for name in rng.sample(cluster.running(), 10):
        cluster.finish(name)
    cluster.waiting.clear()
    cluster.submit(task("all").wants(lic="1.0"))
    cluster.step()
    assert cluster.where("all") == "n"


def test_b34_a_lost_sum_leaves_the_rest_of_the_node_usable() -> None:
    built = node("n1").has(cpu=16, gpu=4)
    for i in range(4):
        built.runs(f"r{i}", {"cpu": 1, "gpu": 1})
    cluster = Cluster(built).join(node("n1").has(cpu=16, gpu=3))
    cluster.submit(task("G").wants(cpu=1, gpu=1), task("K").wants(cpu=1))
    cluster.step()
    assert (cluster.where("G"), cluster.where("K")) == (None, "n1")
    cluster.finish("r0").step()
    assert cluster.where("G") is None
    cluster.finish("r1").step()
    assert cluster.where("G") == "n1"


def test_b34_a_lost_label_never_touches_the_others() -> None:
    built = node("n1").has(cpu=16, gpu=["a", "b", "c", "d"])
    for label in "abcd":
        built.runs(label, {"cpu": 1, "gpu": 1}, labels={"gpu": (label,)})
    cluster = Cluster(built).join(node("n1").has(cpu=16, gpu=["a", "b", "c"]))
    cluster.submit(task("G").wants(cpu=1, gpu=1)).step()
    assert cluster.where("G") is None
    cluster.finish("a").step()
    assert cluster.took("G").allocation.labels["gpu"] == ("a",)


def test_b36_a_node_without_card_capacity_runs_tasks_that_need_none() -> None:
    cluster = Cluster(node("n1").has(cpu=4).card("0", gpuSlot=[], gpuMemoryMB=0))
    cluster.submit(task("T").wants(cpu=1)).step()
    assert cluster.where("T") == "n1"


def test_b38_memory_is_not_summed_over_devices() -> None:
    cluster = Cluster(
        node("n1")
        .card("0", gpuSlot=["a", "b", "c"], gpuMemoryMB=23000)
        .card("1", gpuSlot=["d", "e", "f"], gpuMemoryMB=23000)
    )
    cluster.submit(*(t.on_any_card(2, {}, gpuSlot=1, gpuMemoryMB=10000) for t in many(5, "t")))
    cluster.step()
    cards = Counter(cluster.took(name).allocation.devices for name in cluster.running())
    assert cards == {("0",): 2, ("1",): 2}
    assert "gpuMemoryMB" in cluster.reason("t4")


def test_b40_a_fraction_lies_on_one_device() -> None:
    built = node("n1")
    for card in range(3):
        built.card(str(card), gpu=1)
    cluster = Cluster(built)
    cluster.submit(*(t.on_any_card(3, {}, gpu="0.4") for t in many(7, "t")))
    cluster.step()
    assert len(cluster.running()) == 6


@pytest.mark.parametrize("small_first", [True, False])
def test_b42_a_small_task_leaves_the_large_card_alone(small_first: bool) -> None:
    cluster = Cluster(node("n1").card("0", gpuMemoryMB=24000).card("1", gpuMemoryMB=8000))
    large = [t.wants(devices=(1, {"gpuMemoryMB": 20000})) for t in many(2, "large")]
    small = task("small").wants(devices=(1, {"gpuMemoryMB": 6000}))
    cluster.submit(*([small, *large] if small_first else [*large, small]))
    cluster.step()
    assert cluster.took("large0").allocation.devices == ("0",)
    assert cluster.took("small").allocation.devices == ("1",)
    assert cluster.where("large1") is None


@pytest.mark.parametrize("order", [("T1", "T2"), ("T2", "T1")])
def test_b44_a_slot_without_memory_promises_no_memory(order: tuple[str, str]) -> None:
    wanted = {"T1": {"gpuSlot/0": 1}, "T2": {"gpuSlot/0": 1, "gpuMemoryMB/0": 6000}}
    cluster = Cluster(node("n1").card("0", gpuSlot=["a", "b"], gpuMemoryMB=8000))
    cluster.submit(*(task(name).wants(wanted[name]) for name in order))
    cluster.step()
    assert cluster.running() == ["T1", "T2"]
    assert cluster.took("T1").allocation.amounts == {"gpuSlot/0": amount(1)}


def test_b88_unschedulable_tasks_at_the_head_hide_nobody() -> None:
    cluster = Cluster(node("n1").has(cpu=4))
    cluster.submit(
        *(t.wants({"gpuSlot/7": 1}) for t in many(500, "head", 100)), *(t.wants(cpu=1) for t in many(4, "t"))
    )
    cluster.step()
    assert len(cluster.running("t")) == 4
    assert cluster.reason("head0") == "asks 1 gpuSlot/7, and no node has any"


def test_b96_an_own_binder_obeys_the_filters() -> None:
    nodes = [
        node("n1").has(cpu=4, pods=9).with_(unschedulable=True),
        node("n2").has(cpu=4, pods=9).with_(ready=False),
        node("n3").has(cpu=4, pods=9).tainted("team", value="x"),
        node("n4").has(cpu=4, pods=9).with_(labels={"disk": "hdd"}),
        node("n5").has(cpu=4, pods=1).runs("r", {"pods": 1}),
        node("n6").has(cpu=4, pods=9),
    ]
    selector = NodeConstraints(node_selector=(("disk", "ssd"),))
    for built in nodes:
        built.fields.setdefault("labels", {"disk": "ssd"})
    cluster = Cluster(*nodes)
    cluster.submit(task("plain").only_where(selector).wants(cpu=1, pods=1)).step()
    assert cluster.where("plain") == "n6"
    tolerant = NodeConstraints(selector.node_selector, None, (Toleration("team", "Exists"),))
    cluster.submit(task("tolerant").only_where(tolerant).wants(cpu=4, pods=1)).step()
    assert cluster.where("tolerant") == "n3"


def test_b112_an_explicit_zero_is_absent() -> None:
    cluster = Cluster(node("n1").has(cpu=4))
    cluster.submit(task("T").wants({"cpu": 1, "gpuSlot/0": 0, "gpuMemoryMB/0": 0})).step()
    assert cluster.took("T").allocation.amounts == {"cpu": amount(1)}


def test_b113_new_placements_follow_the_present_declaration() -> None:
    cluster = Cluster(node("n1").has(cpu=4).card("0", gpuMemoryMB=8000).runs("T1", {"gpuMemoryMB/0": 4000}))
    cluster.join(node("n1").has(cpu=4))
    cluster.submit(task("T2").wants({"gpuMemoryMB/0": 2000})).step()
    assert cluster.where("T2") is None
    cluster.join(node("n1").has(cpu=4).card("0", gpuMemoryMB=8000))
    cluster.submit(task("T3").wants({"gpuMemoryMB/0": 2001})).step()
    assert (cluster.where("T2"), cluster.where("T3")) == ("n1", None)


def test_b120_a_lower_blocked_task_never_moves_the_hold_of_a_higher_one() -> None:
    nodes = [
        node("n1").has(cpu=8).runs("R1", {"cpu": 8}, ends=50),
        node("n2").has(cpu=8).runs("R2", {"cpu": 8}, ends=80),
    ]
    cluster = Cluster(*nodes)
    cluster.submit(task("H", 10).wants(cpu=8), task("M", 5).wants(cpu=8))
    for now in range(0, 50, 5):
        cluster.step(at=now)
        assert [(h.task, h.node, h.starts_by) for h in cluster.holds] == [("ns/H", "n1", 50), ("ns/M", "n2", 80)]
    cluster.finish("R1").step(at=50)
    assert (cluster.where("H"), cluster.where("M")) == ("n1", None)
    cluster.finish("R2").step(at=80)
    assert cluster.where("M") == "n2"


def _b124_tasks() -> tuple[list[TaskBuilder], list[TaskBuilder]]:
    return [t.wants(cpu=1, foo=2) for t in many(4, "F", 0)], [task("L", -1).wants(cpu=2)]


def _b124_node() -> NodeBuilder:
    return node("n1").has(cpu=8, foo=["1", "2", "3", "4"])


@pytest.mark.parametrize("node_at", ["first", "last", "middle"])
@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("low_first", [True, False])
def test_b124_batches_and_join_order_do_not_matter(node_at: str, one_by_one: bool, low_first: bool) -> None:
    wide, low = _b124_tasks()
    ordered = low + wide if low_first else wide + low
    batches = [[t] for t in ordered] if one_by_one else [ordered]
    cluster = Cluster()
    join_before = {"first": 0, "middle": len(batches) // 2, "last": len(batches)}[node_at]
    for position, batch in enumerate([*batches, []]):
        if position == join_before:
            cluster.join(_b124_node())
        cluster.submit(*batch).step()
    assert len(cluster.running("F")) == 2
    assert cluster.where("L") == "n1"
    assert sorted(cluster.waiting) == ["ns/F2", "ns/F3"]
