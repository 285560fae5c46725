"""Time, ends, crashes, nodes that come and go: what happens when, told as events."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from gputask.planner.model import PODS, Foreign
from gputask.simulate.check import Checker
from gputask.simulate.engine import Simulation
from gputask.simulate.history import Event, Kind
from gputask.simulate.scenario import ForeignUse, NodeVersion, Placement, Scenario, SimTask
from support.scenarios import allocation, amounts, changed, node, task, units, variant

ONE = variant(cpu=1)


def play(
    nodes: Iterable[NodeVersion],
    tasks: Iterable[SimTask],
    *,
    foreign: Iterable[ForeignUse] = (),
    until: int | None = None,
) -> list[Event]:
    """All events; that no rule was broken is part of every test."""
    scenario = Scenario(tuple(nodes), tuple(tasks), tuple(foreign))
    checker = Checker(scenario)
    events = []
    for record in Simulation(scenario).run(until):
        checker.see(record)
        if isinstance(record, Event):
            events.append(record)
    checker.close(events[-1].t)
    assert checker.violations == []
    return events


def story(events: Iterable[Event]) -> list[tuple[float, str, str, str | None]]:
    """When, what, who, why; without the namespace, and without holds."""
    return [
        (event.t / 1000, event.kind.value, (event.task or event.node or "").removeprefix("default/"), event.reason)
        for event in events
        if event.kind is not Kind.HELD
    ]


def starts(events: Iterable[Event]) -> dict[str, float]:
    """Task -> its last start."""
    return {e.task.removeprefix("default/"): e.t / 1000 for e in events if e.kind is Kind.BOUND and e.task}


def test_a_task_comes_starts_and_ends():
    assert story(play([node("n1", cpu=1)], [task("a", ONE, at=1.5, runs=8)])) == [
        (0, "node-added", "n1", None),
        (1.5, "submitted", "a", None),
        (1.5, "bound", "a", None),
        (9.5, "finished", "a", "Succeeded"),
    ]


def test_all_changes_of_an_instant_come_before_its_passes():
    tasks = [task("a", ONE, runs=5), task("low", ONE, at=5, runs=1), task("high", ONE, at=5, priority=1, runs=1)]
    assert story(play([node("n1", cpu=1)], tasks))[3:7] == [
        (5, "finished", "a", "Succeeded"),
        (5, "submitted", "high", None),
        (5, "submitted", "low", None),
        (5, "bound", "high", None),
    ]


def test_events_of_a_pass_are_in_rank_order():
    tasks = [task(name, ONE, priority=p) for name, p in [("c", 1), ("a", 2), ("b", 2)]]
    bound = [e.task for e in play([node("n1", cpu=3)], tasks) if e.kind is Kind.BOUND]
    assert bound == ["default/a", "default/b", "default/c"]


def test_a_task_that_runs_for_no_time_gives_its_room_to_the_next_at_once():
    tasks = [task("a", ONE, runs=0), task("b", ONE, at=0, runs=1)]
    assert starts(play([node("n1", cpu=1)], tasks)) == {"a": 0, "b": 0}


def test_a_time_limit_ends_with_deadline_exceeded():
    events = play([node("n1", cpu=1)], [task("a", ONE, runs=60, time_limit=30)])
    assert story(events)[-1] == (30, "finished", "a", "DeadlineExceeded")


def test_a_task_without_an_end_runs_for_ever():
    assert [e.kind for e in play([node("n1", cpu=1)], [task("a", ONE)])][-1] is Kind.BOUND


@pytest.mark.parametrize(("limit", "crashes"), [(0, 0), (2, 2)])
def test_a_crash_requeues_up_to_the_limit_and_then_fails(limit: int, crashes: int):
    crashing = task("a", ONE, runs=1, exit_code=3, crash_limit=limit, backoff=10)
    assert story(play([node("n1", cpu=1)], [crashing]))[3:] == [
        *[
            entry
            for i in range(crashes)
            for entry in [(1 + 11 * i, "requeued", "a", "Crashed"), (11 + 11 * i, "bound", "a", None)]
        ],
        (1 + 11 * crashes, "finished", "a", "Failed"),
    ]


def test_a_task_in_its_pause_takes_nobodys_turn():
    tasks = [task("a", ONE, priority=9, runs=1, exit_code=1, crash_limit=1, backoff=10), task("b", ONE, runs=20)]
    assert starts(play([node("n1", cpu=1)], tasks)) == {"b": 1, "a": 21}


def test_a_lost_node_counts_as_a_crash():
    nodes = [replace(node("n1", cpu=1), until=5000), replace(node("n2", cpu=1), at=7000)]
    assert story(play(nodes, [task("a", ONE, runs=10, crash_limit=1)]))[3:] == [
        (5, "node-removed", "n1", None),
        (5, "requeued", "a", "NodeLost"),
        (7, "node-added", "n2", None),
        (7, "bound", "a", None),
        (17, "finished", "a", "Succeeded"),
    ]
    assert story(play(nodes, [task("a", ONE, runs=10)]))[4] == (5, "finished", "a", "Failed")


def test_nodes_that_are_lost_together_are_told_by_name_whatever_the_order_of_the_files():
    nodes = [replace(node("n1", cpu=1), until=5000), replace(node("n2", cpu=1), until=5000)]
    tasks = [task("a", ONE, runs=10), task("b", ONE, runs=10)]
    told = [
        (5, "node-removed", "n1", None),
        (5, "finished", "a", "Failed"),
        (5, "node-removed", "n2", None),
        (5, "finished", "b", "Failed"),
    ]
    assert story(play(nodes, tasks))[-4:] == told
    assert story(play(nodes[::-1], tasks))[-4:] == told


def test_a_drained_node_does_not_count():
    nodes = [replace(node("n1", cpu=1), until=5000, drain=True), node("n2", cpu=1)]
    tasks = [task("a", ONE, runs=10), task("b", ONE, runs=7)]
    events = play(nodes, tasks)
    assert (5, "requeued", "a", "Drained") in story(events) or (5, "requeued", "b", "Drained") in story(events)
    assert {e.reason for e in events if e.kind is Kind.FINISHED} == {"Succeeded"}


def test_a_node_is_replaced_as_a_whole_and_what_runs_on_it_runs_on():
    larger = replace(node("n1", cpu=2), at=3000)
    tasks = [task("a", ONE, runs=10), task("b", ONE, at=1, runs=10)]
    events = play([replace(node("n1", cpu=1), until=4000), larger], tasks)
    assert (3, "node-added", "n1", "Replaced") in story(events)
    assert starts(events) == {"a": 0, "b": 3}
    assert [e.t for e in events if e.kind is Kind.FINISHED] == [10_000, 13_000]


def test_a_task_that_disappears_is_cancelled_and_gives_its_room_back():
    tasks = [task("a", ONE, until=4), task("b", ONE, at=1, runs=1), task("c", ONE, at=1, until=2)]
    assert story(play([node("n1", cpu=1)], tasks))[-5:] == [
        (1, "submitted", "c", None),
        (2, "finished", "c", "Cancelled"),
        (4, "finished", "a", "Cancelled"),
        (4, "bound", "b", None),
        (5, "finished", "b", "Succeeded"),
    ]


def test_foreign_use_counts_while_it_is_there():
    use = ForeignUse("n1", Foreign("pod:kube-system/x", (("cpu", units(1)), (PODS, units(1)))), at=0, until=6000)
    assert starts(play([node("n1", cpu=1)], [task("a", ONE, runs=1)], foreign=[use])) == {"a": 6}


def test_work_that_ran_before_runs_on_for_the_rest_of_its_time():
    place = Placement("n1", "v0", 0, allocation(cpu=1), started=-20_000)
    tasks = [task("before", ONE, runs=25, running=place), task("new", ONE, runs=1)]
    assert story(play([node("n1", cpu=1)], tasks)) == [
        (0, "node-added", "n1", None),
        (0, "submitted", "before", None),
        (0, "submitted", "new", None),
        (5, "finished", "before", "Succeeded"),
        (5, "bound", "new", None),
        (6, "finished", "new", "Succeeded"),
    ]


def test_a_hold_is_told_when_it_begins_and_when_it_moves_and_not_in_between():
    wide = task("wide", variant(cpu=3), priority=5, at=1, runs=1)
    tasks = [task(f"a{i}", variant(cpu=2), runs=20) for i in range(2)]
    nodes = [node("n1", cpu=4), *[replace(node(f"x{i}", cpu=1), at=2000 + i) for i in range(3)]]
    held = [e for e in play(nodes, [*tasks, wide]) if e.kind is Kind.HELD]
    assert [(e.t, e.task, e.node) for e in held] == [(1000, "default/wide", "n1")]


def test_a_hold_moves_when_its_patience_ends_though_nothing_else_happens():
    nodes = [node("n1", cpu=4, a=1), node("n2", cpu=4, b=1)]
    tasks = [
        task("on-1", variant(cpu=2, a=1)),
        task("on-2", variant(cpu=3, b=1), runs=10),
        task("wide", variant(cpu=4), priority=5, at=2),
        task("small-on-2", variant(cpu=1, b=1), priority=9, at=3),
    ]
    held = [(e.t, e.node) for e in play(nodes, tasks) if e.kind is Kind.HELD and e.task == "default/wide"]
    assert held == [(2000, "n1"), (302_000, "n2")]


def test_until_stops_the_clock():
    events = play([node("n1", cpu=1)], [task("a", ONE, runs=5), task("b", ONE, at=5, runs=5)], until=5000)
    assert story(events)[-1] == (5, "bound", "b", None)


def test_a_card_is_named_by_its_id():
    nodes = [node("n1", cards={"GPU-a": {"gpuMB": 10}, "GPU-b": {"gpuMB": 20}})]
    events = play(nodes, [task("a", variant(card=amounts(gpuMB=15)))])
    assert events[-1].place is not None
    assert events[-1].place.allocation.devices == ("GPU-b",)


def test_a_node_that_takes_nobody_gets_nobody():
    nodes = [changed(node("n1", cpu=1), ready=False), replace(node("n2", cpu=1), at=4000)]
    assert starts(play(nodes, [task("a", ONE, runs=1)])) == {"a": 4}


# --- cases ------------------------------------------------------------------------------------------


def test_b04_a_task_that_no_node_can_satisfy_blocks_nobody_and_starts_when_one_can():
    nodes = [node("n1", cpu=2), node("n2", cpu=2), replace(node("n3", cpu=4), at=30_000)]
    high = task("high", variant(cpu=3), priority=10, runs=5)
    low = [task(f"low{i}", ONE) for i in range(4)]
    assert starts(play(nodes, [high, *low])) == {"low0": 0, "low1": 0, "low2": 0, "low3": 0, "high": 30}


def test_b86_a_task_that_wants_all_does_not_starve_under_a_stream_of_small_ones():
    nodes = [node("n1", cards={"0": {"gpuMemoryMB": 8000, "gpuSlot": list("abcd")}})]
    small = [task(f"s{i:03}", variant(gpuSlot__0=1, gpuMemoryMB__0=2000), at=2 * i, runs=10) for i in range(300)]
    whole = task("x", variant(gpuMemoryMB__0=8000), at=10, runs=10)
    events = play(nodes, [*small, whole])
    began = next(e.t for e in events if e.kind is Kind.HELD and e.task == "default/x") / 1000
    assert starts(events)["x"] - began <= 10
    assert max(starts(events).values()) > starts(events)["x"] + 100


def test_b113_a_declaration_that_is_removed_and_comes_back():
    declared, bare = {"0": {"gpuMemoryMB": 8000}}, {"0": {}}
    nodes = [
        node("n1", cards=declared),
        replace(node("n1", cards=bare), at=10_000),
        replace(node("n1", cards=declared), at=60_000),
    ]
    ask = {"gpuMemoryMB__0": 4000}
    tasks = [task("t1", variant(**ask), runs=100), task("t2", variant(gpuMemoryMB__0=2000), at=11, runs=5)]
    assert starts(play(nodes, tasks)) == {"t1": 0, "t2": 60}


def test_b120_a_lower_hold_never_pushes_a_higher_start_back():
    nodes = [node("n1", cpu=8), node("n2", cpu=8)]
    running = [
        task("r1", variant(cpu=8), time_limit=50, running=Placement("n1", "v0", 0, allocation(cpu=8), 0)),
        task("r2", variant(cpu=8), time_limit=80, running=Placement("n2", "v0", 0, allocation(cpu=8), 0)),
    ]
    ticks = [task(f"tick{i:02}", variant(none=1), priority=-9, at=5 * i, until=5 * i + 1) for i in range(1, 16)]
    blocked = [task("high", variant(cpu=8), priority=10), task("middle", variant(cpu=8), priority=5)]
    events = play(nodes, [*running, *blocked, *ticks])
    assert {(e.task, e.node) for e in events if e.kind is Kind.HELD} == {
        ("default/high", "n1"),
        ("default/middle", "n2"),
    }
    assert starts(events) == {"high": 50, "middle": 80}
