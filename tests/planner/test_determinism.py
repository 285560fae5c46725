"""R8: a pass is a function of its snapshot; order and names do not matter. R9 and R10: a pass ends, whatever comes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputask.planner.invariants import check_invariants
from gputask.planner.model import Action, Node, NodeConstraints, Plan, RequestClass, Variant
from gputask.planner.plan import plan
from support.cluster import Cluster, many, node, task
from support.random_cluster import NAMES, random_cluster


def told(decided: Plan) -> list[tuple[object, ...]]:
    """What a plan says without the names of resources."""
    decisions = [
        (d.action, d.task.key, d.node, d.variant_index, d.starts_by, d.allocation.devices) for d in decided.decisions
    ]
    return [*decisions, *((w.task.key, w.feasible, w.counts) for w in decided.waiting)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_tasks_does_not_matter(seed: int, rng: random.Random) -> None:
    snapshot = random_cluster(seed).snapshot()
    nodes, tasks = list(snapshot.nodes), list(snapshot.tasks)
    rng.shuffle(nodes)
    rng.shuffle(tasks)
    assert plan(snapshot, 0.0) == plan(replace(snapshot, nodes=tuple(nodes), tasks=tuple(tasks)), 0.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.permutations(NAMES))
def test_the_names_of_resources_do_not_matter(seed: int, names: list[str]) -> None:
    renamed = dict(zip(NAMES, names, strict=True))
    assert told(random_cluster(seed).step()) == told(random_cluster(seed, renamed.__getitem__).step())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_a_second_pass_starts_nothing_and_moves_no_hold(seed: int) -> None:
    cluster = random_cluster(seed)
    cluster.step(at=0)
    holds = [(h.task, h.node, h.since) for h in cluster.holds]
    again = cluster.step(at=0)
    assert [d.task.key for d in again.decisions if d.action is Action.PLACE] == []
    assert [(h.task, h.node, h.since) for h in cluster.holds] == holds


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_the_queue_one_by_one_starts_the_same_as_all_at_once(seed: int) -> None:
    """Submitted in rank order with a pass after each, when nobody has to wait for another."""
    at_once, one_by_one = random_cluster(seed), random_cluster(seed)
    at_once.step(at=0)
    ranked = sorted(one_by_one.waiting.values(), key=lambda t: t.rank)
    one_by_one.waiting.clear()
    for each in ranked:
        one_by_one.waiting[each.key] = each
        one_by_one.step(at=0)
    assert at_once.placed.keys() == one_by_one.placed.keys()
    assert {k: d.node for k, d in at_once.placed.items()} == {k: d.node for k, d in one_by_one.placed.items()}


def test_a_pass_that_runs_out_of_budget_is_valid_and_the_next_one_goes_on() -> None:
    cluster = Cluster(node("n").has(c=100))
    for i in range(6):
        cluster.submit(task(f"t{i}").wants(c=i + 1))
    left = iter([True, False])
    cut = plan(cluster.snapshot(), 0.0, budget=lambda: next(left, False))
    check_invariants(cluster.snapshot(), cut)
    assert cut.cut
    assert [d.task.key for d in cut.decisions] == ["ns/t0", "ns/t1"]
    assert len(cut.waiting) == 4
    cluster.step()
    assert len(cluster.running()) == 6


def test_a_resumed_pass_looks_only_at_what_the_cut_one_did_not_reach() -> None:
    cluster = Cluster(node("n").has(c=10).runs("r", {"c": 7}))
    cluster.submit(task("wide", 9).wants(c=8), task("mid", 5).wants(c=4), task("low").wants(c=2))
    left = iter([True, False])
    cut = plan(cluster.snapshot(), 0.0, budget=lambda: next(left))
    low = cluster.waiting["ns/low"]
    assert cut.resume == low.rank
    asked: list[int] = []
    resumed_from = replace(cluster.snapshot(), holds=cut.holds, resume=cut.resume)
    resumed = plan(resumed_from, 1.0, budget=lambda: not asked.append(1))  # type: ignore[func-returns-value]
    check_invariants(resumed_from, resumed)
    assert asked == []
    assert [(d.action, d.task.key) for d in resumed.decisions] == [(Action.HOLD, "ns/wide"), (Action.PLACE, "ns/low")]
    assert [h.since for h in resumed.holds] == [0.0]
    assert [w.task.key for w in resumed.waiting] == ["ns/wide", "ns/mid"]


@pytest.mark.parametrize("seed", range(20))
def test_passes_without_any_time_come_to_the_same_end_one_class_at_a_time(seed: int) -> None:
    whole, short = random_cluster(seed), random_cluster(seed)
    whole.step(at=0)
    cut = short.step(at=0, budget=lambda: False)
    for _ in range(len(short.waiting)):
        if cut.resume is not None:
            cut = short.step(at=0, resume=cut.resume, budget=lambda: False)
    assert cut.resume is None
    assert {k: d.node for k, d in short.placed.items()} == {k: d.node for k, d in whole.placed.items()}


class _Hostile:
    """Raises whatever one does with it."""

    def _raise(self, *_: object) -> Any:
        raise RuntimeError("hostile")

    __iter__ = __len__ = __getattr__ = __hash__ = __eq__ = _raise  # type: ignore[assignment]


def _bad_request() -> RequestClass:
    return RequestClass((Variant("bad", (("c", "many"),)),))  # type: ignore[arg-type]


def _bad_nodes() -> Iterator[Node]:
    good = node("bad").has(c=4).build()
    yield replace(good, resources=_Hostile())  # type: ignore[arg-type]
    yield replace(good, labels=_Hostile())  # type: ignore[arg-type]
    yield replace(good, running=(_Hostile(),))  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", list(_bad_nodes()), ids=["resources", "labels", "running"])
def test_a_node_that_raises_is_skipped_and_named(bad: Node) -> None:
    cluster = Cluster(node("good").has(c=4).with_(labels={"x": "y"}))
    cluster.submit(task("t").wants(c=4).only_where(NodeConstraints(node_selector=(("x", "y"),))))
    snapshot = cluster.snapshot()
    decided = plan(replace(snapshot, nodes=(bad, *snapshot.nodes)), 0.0)
    assert [d.node for d in decided.decisions] == ["good"]
    assert any("node bad" in fault for fault in decided.faults)


def test_a_class_that_raises_is_skipped_and_the_pass_goes_on() -> None:
    cluster = Cluster(node("n").has(c=4))
    cluster.submit(task("bad", 9).wants(c=1), task("good").wants(c=4))
    bad = replace(cluster.waiting["ns/bad"], request=_bad_request())
    snapshot = replace(cluster.snapshot(), tasks=(bad, cluster.waiting["ns/good"]))
    decided = plan(snapshot, 0.0)
    assert [d.task.key for d in decided.decisions] == ["ns/good"]
    assert [w.task.key for w in decided.waiting] == ["ns/bad"]
    assert "skipped" in decided.waiting[0].message
    assert len(decided.faults) == 1


def test_a_task_that_raises_is_skipped_and_the_pass_goes_on() -> None:
    cluster = Cluster(node("n").has(c=4))
    cluster.submit(task("bad", 9).wants(c=1), task("good").wants(c=4))
    bad = replace(cluster.waiting["ns/bad"], request=_Hostile())  # type: ignore[arg-type]
    decided = plan(replace(cluster.snapshot(), tasks=(bad, cluster.waiting["ns/good"])), 0.0)
    assert [d.task.key for d in decided.decisions] == ["ns/good"]
    assert decided.faults == ("task ns/bad is skipped: RuntimeError('hostile')",)


def test_many_equal_tasks_are_decided_as_one_by_one() -> None:
    cluster = Cluster(*(node(f"n{i}").has(c=7) for i in range(3)))
    cluster.submit(*(t.wants(c=3) for t in many(8, "t")))
    cluster.step()
    assert [cluster.where(f"t{i}") for i in range(8)] == ["n0", "n0", "n1", "n1", "n2", "n2", None, None]
