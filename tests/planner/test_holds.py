"""R4 and R5: who may hold, where, and how stable it is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputask.planner.holds import PATIENCE, HoldFinder
from support.cluster import Cluster, NodeBuilder, many, node, task
from support.random_cluster import random_cluster


def test_a_hold_goes_where_least_is_to_be_freed() -> None:
    cluster = Cluster(node("a").has(c=10).runs("x", {"c": 9}), node("b").has(c=10).runs("y", {"c": 5}))
    cluster.submit(task("H").wants(c=8)).step()
    held = cluster.hold_of("H")
    assert held is not None
    assert (held.node, held.starts_by) == ("b", None)


def test_a_guaranteed_start_beats_what_is_to_be_freed() -> None:
    cluster = Cluster(node("a").has(c=10).runs("x", {"c": 9}, ends=500), node("b").has(c=10).runs("y", {"c": 5}))
    cluster.submit(task("H").wants(c=8)).step(at=100)
    held = cluster.hold_of("H")
    assert held is not None
    assert (held.node, held.starts_by) == ("a", 500)


def test_a_guaranteed_start_waits_for_enough_ends() -> None:
    built = node("n").has(c=10)
    for i, ends in enumerate((40, 20, 60)):
        built.runs(f"r{i}", {"c": 3}, ends=ends)
    cluster = Cluster(built)
    cluster.submit(task("H").wants(c=7)).step()
    held = cluster.hold_of("H")
    assert held is not None
    assert held.starts_by == 40


def test_higher_holds_count_until_their_own_limit() -> None:
    cluster = Cluster(node("n").has(c=4).runs("r", {"c": 4}, ends=50))
    cluster.submit(task("H", 9, limit=30).wants(c=3), task("M", 5).wants(c=4))
    cluster.step()
    assert [(h.task, h.starts_by) for h in cluster.holds] == [("ns/H", 50)]
    cluster.waiting.clear()
    cluster.submit(task("H", 9, limit=30).wants(c=3), task("M", 5).wants(c=1))
    cluster.step()
    assert [(h.task, h.starts_by) for h in cluster.holds] == [("ns/H", 50), ("ns/M", 50)]


def test_a_start_after_the_end_of_the_node_is_no_start() -> None:
    nodes = [
        node("short").has(c=4).runs("r", {"c": 4}, ends=50).with_(lives_until=70.0),
        node("long").has(c=4).runs("s", {"c": 4}, ends=60),
    ]
    cluster = Cluster(*nodes)
    cluster.submit(task("H").wants(c=4, min_time=40)).step()
    held = cluster.hold_of("H")
    assert held is not None
    assert (held.node, held.starts_by) == ("long", 60)


def test_all_holds_of_a_node_fit_it_when_empty_and_the_rest_wait_behind() -> None:
    cluster = Cluster(node("n").has(c=10).runs("r", {"c": 10}))
    cluster.submit(*(t.wants(c=4) for t in many(5, "t"))).step()
    assert [h.task for h in cluster.holds] == ["ns/t0", "ns/t1"]
    assert len(cluster.plan.waiting) == 5


def test_a_hold_stays_until_patience_ends() -> None:
    cluster = Cluster(node("a").has(c=10).runs("x", {"c": 4}), node("b").has(c=10).runs("y", {"c": 5}))
    cluster.submit(task("H").wants(c=8)).step(at=0)
    assert [h.node for h in cluster.holds] == ["a"]
    cluster.nodes["a"] = node("a").has(c=10).runs("x", {"c": 6}).build()
    cluster.step(at=PATIENCE - 1)
    assert [(h.node, h.since) for h in cluster.holds] == [("a", 0)]
    cluster.step(at=PATIENCE)
    assert [(h.node, h.since) for h in cluster.holds] == [("b", PATIENCE)]


def test_a_hold_moves_at_once_to_an_earlier_start() -> None:
    cluster = Cluster(node("a").has(c=10).runs("x", {"c": 4}), node("b").has(c=10).runs("y", {"c": 9}))
    cluster.submit(task("H").wants(c=8)).step(at=0)
    assert [h.node for h in cluster.holds] == ["a"]
    cluster.nodes["b"] = node("b").has(c=10).runs("y", {"c": 9}, ends=90).build()
    cluster.step(at=1)
    assert [(h.node, h.starts_by) for h in cluster.holds] == [("b", 90)]


def test_a_hold_moves_when_its_node_goes() -> None:
    cluster = Cluster(node("a").has(c=10).runs("x", {"c": 4}), node("b").has(c=10).runs("y", {"c": 5}))
    cluster.submit(task("H").wants(c=8)).step()
    del cluster.nodes["a"]
    cluster.step(at=7)
    assert [(h.node, h.since) for h in cluster.holds] == [("b", 7)]


def test_a_hold_keeps_its_devices_when_another_card_would_do_as_well() -> None:
    def cards(used: int) -> NodeBuilder:
        built = node("n").card("0", mem=10).card("1", mem=10)
        return built.runs("x", {"mem/0": used}).runs("y", {"mem/1": 5})

    cluster = Cluster(cards(used=4))
    cluster.submit(task("H").wants(devices=(1, {"mem": 8}))).step()
    assert [h.allocation.devices for h in cluster.holds] == [("0",)]
    cluster.finish("x")
    cluster.nodes["n"] = (
        node("n").card("0", mem=10).card("1", mem=10).runs("z", {"mem/0": 6}).runs("y", {"mem/1": 5}).build()
    )
    cluster.step(at=10)
    assert [(h.allocation.devices, h.since) for h in cluster.holds] == [(("0",), 0)]


def test_foreign_use_is_no_room_that_a_hold_could_wait_for() -> None:
    cluster = Cluster(node("n").has(c=10).lends("pod:kube-system/dns", {"c": 3}))
    cluster.submit(task("H", 5).wants(c=8), task("L").wants(c=7)).step()
    assert not cluster.feasible("H")
    assert cluster.where("L") == "n"


@pytest.mark.parametrize("out", [{"ready": False}, {"unschedulable": True}, {"out": "the ledger is not rebuilt"}])
def test_an_unusable_node_is_not_held(out: dict[str, object]) -> None:
    cluster = Cluster(node("n").has(c=10).with_(**out))
    cluster.submit(task("H").wants(c=8)).step()
    assert cluster.holds == ()
    assert not cluster.feasible("H")


def test_a_task_in_back_off_from_its_only_node_holds_nothing_there() -> None:
    cluster = Cluster(node("n").has(c=10))
    cluster.submit(task("X", 100).wants(c=8).with_(excluded_nodes=frozenset({"n"})), task("Y").wants(c=8)).step()
    assert cluster.where("Y") == "n"
    assert cluster.holds == ()
    assert cluster.feasible("X")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_a_hold_that_stays_wherever_the_best_place_is_stays_when_that_is_looked_for(seed: int) -> None:
    quick, slow = random_cluster(seed), random_cluster(seed)
    rng = random.Random(seed)
    for at in (0, 10, 45, 70, 290, 400, 2000):
        told = quick.step(at=at)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HoldFinder, "is_unbeaten", lambda *_: False)
            patch.setattr(HoldFinder, "settled", lambda *_: None)
            assert slow.step(at=at).holds == told.holds
        for name in rng.sample(quick.running(), k=len(quick.running()) // 3):
            quick.finish(name)
            slow.finish(name)
