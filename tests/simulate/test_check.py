"""The checker is fed histories that are wrong in one way each, and must say which."""

from collections.abc import Iterable

import pytest

from gputask.planner.model import Taint
from gputask.resources.pools import Allocation
from gputask.simulate.check import Checker
from gputask.simulate.history import Pass, Record, Settled
from gputask.simulate.scenario import NodeVersion, Scenario, SimTask
from support.scenarios import (
    allocation,
    amounts,
    bound,
    changed,
    finished,
    hold,
    joined,
    node,
    requeued,
    submitted,
    task,
    variant,
)

ONE = variant(cpu=1)
TAKEN = allocation(cpu=1)


def rules(nodes: Iterable[NodeVersion], tasks: Iterable[SimTask], *history: Record) -> list[tuple[str, str | None]]:
    """Rule and task of all violations."""
    checker = Checker(Scenario(tuple(nodes), tuple(tasks)))
    for record in history:
        checker.see(record)
    checker.close(history[-1].t)
    return [(violation.rule, violation.task) for violation in checker.violations]


def start(*names: str) -> list[Record]:
    return [joined(0, "n1"), *(submitted(0, name) for name in names), Pass(0, ())]


def test_a_right_history_has_no_violation():
    found = rules(
        [node("n1", cpu=2)],
        [task("a", ONE, runs=5), task("b", ONE, runs=5)],
        *start("a", "b"),
        bound(0, "a", "n1", TAKEN),
        bound(0, "b", "n1", TAKEN),
        Settled(0),
        finished(5000, "a", "n1", TAKEN),
        finished(5000, "b", "n1", TAKEN),
        Settled(5000),
    )
    assert found == []


def test_a_pool_over_its_capacity():
    tasks = [task("a", ONE), task("b", ONE)]
    found = rules([node("n1", cpu=1)], tasks, *start("a", "b"), bound(0, "a", "n1", TAKEN), bound(0, "b", "n1", TAKEN))
    assert found == [("capacity", "default/b")]


def test_a_pool_that_shrank_below_its_use_is_no_fault_of_a_start_that_does_not_touch_it():
    small = NodeVersion(node("n1", cpu=1, mem=4).node, at=1000)
    tasks = [task("a", variant(cpu=2)), task("b", variant(mem=1), at=1)]
    found = rules(
        [node("n1", cpu=2, mem=4), small],
        tasks,
        *start("a"),
        bound(0, "a", "n1", allocation(cpu=2)),
        joined(1000, "n1"),
        submitted(1000, "b"),
        Pass(1000, ()),
        bound(1000, "b", "n1", allocation(mem=1)),
        Settled(1000),
    )
    assert found == []


@pytest.mark.parametrize(
    ("second", "rule"),
    [
        (allocation(labels={"lic": ["x"]}, lic=1), "label"),
        (allocation(labels={"lic": ["z"]}, lic=1), "label"),
        (allocation(labels={"lic": []}, lic=1), "label"),
        (allocation(labels={"lic": ["x", "x"]}, lic=1), "label"),
    ],
)
def test_a_label_given_twice_or_never_declared_or_missing(second: Allocation, rule: str):
    found = rules(
        [node("n1", lic=["x", "y"])],
        [task("a", variant(lic=1)), task("b", variant(lic=1))],
        *start("a", "b"),
        bound(0, "a", "n1", allocation(labels={"lic": ["x"]}, lic=1)),
        bound(0, "b", "n1", second),
    )
    assert set(found) == {(rule, "default/b")}


def test_b34_who_is_on_a_label_that_was_lost_takes_none_of_the_others():
    small = NodeVersion(node("n1", lic=["x"]).node, at=1000)
    found = rules(
        [node("n1", lic=["x", "y"]), small],
        [task("a", variant(lic=1)), task("b", variant(lic=1), at=1)],
        *start("a"),
        bound(0, "a", "n1", allocation(labels={"lic": ["y"]}, lic=1)),
        joined(1000, "n1"),
        submitted(1000, "b"),
        Pass(1000, ()),
        bound(1000, "b", "n1", allocation(labels={"lic": ["x"]}, lic=1)),
    )
    assert found == []


def test_fractions_of_one_label_up_to_a_whole_are_right_and_more_is_not():
    half = allocation(labels={"lic": ["x"]}, lic="0.5")
    tasks = [task(name, variant(lic="0.5")) for name in "abc"]
    found = rules([node("n1", lic=["x", "y"])], tasks, *start(*"abc"), *(bound(0, n, "n1", half) for n in "abc"))
    assert found == [("label", "default/c")]


def test_what_is_free_in_sum_on_two_cards_fits_neither():
    cards = {"A": {"gpu": 1, "gpuMB": 10}, "B": {"gpu": 1, "gpuMB": 10}}
    asked = variant(card=amounts(gpuMB=6))
    on_a, on_b = allocation("A", gpuMB__A=6), allocation("B", gpuMB__B=6)
    tasks = [task(name, asked) for name in "abc"]
    history = [*start(*"abc"), bound(0, "a", "n1", on_a), bound(0, "b", "n1", on_b)]
    assert rules([node("n1", cards=cards)], tasks, *history, Settled(0)) == []
    assert rules([node("n1", cards=cards)], tasks, *history, bound(0, "c", "n1", on_b)) == [("capacity", "default/c")]


@pytest.mark.parametrize(
    "wrong",
    [
        allocation("A", gpuMB__A=5),
        allocation("A", gpuMB__A=7),
        allocation("A", gpuMB__B=6),
        allocation("A", cpu=1, gpuMB__A=6),
        allocation(gpuMB__A=6),
    ],
)
def test_something_else_than_the_variant_asks(wrong: Allocation):
    cards = {"A": {"gpuMB": 10}, "B": {"gpuMB": 10}}
    nodes, tasks = [node("n1", cpu=4, cards=cards)], [task("a", variant(card=amounts(gpuMB=6)))]
    assert ("request", "default/a") in rules(nodes, tasks, *start("a"), bound(0, "a", "n1", wrong))


def test_two_cards_are_two_distinct_cards():
    cards = {"A": {"gpu": 2}, "B": {"gpu": 2}}
    tasks = [task("a", variant(card=amounts(gpu=1), cards=2))]
    twice = allocation("A", "A", gpu__A=2)
    assert rules([node("n1", cards=cards)], tasks, *start("a"), bound(0, "a", "n1", twice)) == [
        ("request", "default/a")
    ]
    right = allocation("A", "B", gpu__A=1, gpu__B=1)
    assert rules([node("n1", cards=cards)], tasks, *start("a"), bound(0, "a", "n1", right)) == []


def test_an_unknown_device_is_no_device_of_the_node():
    nodes, tasks = [node("n1", cards={"A": {"gpu": 1}})], [task("a", variant(gpu__A=1))]
    found = rules(nodes, tasks, *start("a"), bound(0, "a", "n1", allocation("Z", gpu__A=1)))
    assert found == [("device", "default/a")]


@pytest.mark.parametrize(
    "change",
    [
        {"ready": False},
        {"unschedulable": True},
        {"taints": (Taint("only", "you"),)},
        {"taints": (Taint("go", "", "NoExecute"),)},
        {"out": "Overbooked"},
    ],
)
def test_a_start_on_a_node_that_takes_nobody(change):
    nodes = [changed(node("n1", cpu=2), **change)]
    assert rules(nodes, [task("a", ONE)], *start("a"), bound(0, "a", "n1", TAKEN), Settled(0)) == [
        ("node", "default/a")
    ]


def test_a_start_on_a_node_that_is_gone_or_lives_too_short():
    nodes = [changed(node("n1", cpu=2), lives_until=100.0)]
    asking = variant(cpu=1, min_time=200.0)
    assert rules(nodes, [task("a", asking)], *start("a"), bound(0, "a", "n1", TAKEN)) == [("node", "default/a")]
    assert rules(nodes, [task("a", ONE)], submitted(0, "a"), bound(0, "a", "n1", TAKEN)) == [("node", "default/a")]


def test_an_inversion():
    tasks = [task("high", ONE, priority=5), task("low", ONE)]
    history = [*start("high", "low"), bound(0, "low", "n1", TAKEN)]
    assert rules([node("n1", cpu=1)], tasks, *history) == [("inversion", "default/low")]


def test_no_inversion_where_the_higher_task_does_not_fit():
    tasks = [task("high", variant(cpu=3), priority=5), task("low", ONE)]
    assert rules([node("n1", cpu=2)], tasks, *start("high", "low"), bound(0, "low", "n1", TAKEN), Settled(0)) == []


def test_no_inversion_where_a_hold_above_the_higher_task_needs_the_room():
    tasks = [
        task("run", variant(cpu=2)),
        task("top", variant(cpu=3), priority=9),
        task("high", variant(cpu=2), priority=5),
        task("low", ONE),
    ]
    held = Pass(0, (hold("top", "n1", allocation(cpu=3)),))
    history = [joined(0, "n1"), *(submitted(0, t) for t in ("run", "top", "high", "low"))]
    runs = bound(0, "run", "n1", allocation(cpu=2))
    assert ("inversion", "default/low") not in rules(
        [node("n1", cpu=4)], tasks, *history, held, runs, bound(0, "low", "n1", TAKEN)
    )
    # Without the hold the same start takes what the higher task could have had.
    assert ("inversion", "default/low") in rules(
        [node("n1", cpu=4)], tasks, *history, Pass(0, ()), runs, bound(0, "low", "n1", TAKEN)
    )


def test_equal_priority_is_ordered_by_time():
    tasks = [task("old", ONE), task("new", ONE, at=1)]
    history = [joined(0, "n1"), submitted(0, "old"), submitted(1000, "new"), Pass(1000, ())]
    assert rules([node("n1", cpu=1)], tasks, *history, bound(1000, "new", "n1", TAKEN)) == [
        ("inversion", "default/new")
    ]


def test_idle_room_that_a_waiting_task_could_use():
    assert rules([node("n1", cpu=1)], [task("a", ONE)], *start("a"), Settled(0)) == [("idle", "default/a")]


def test_room_that_a_hold_of_higher_rank_names_is_not_idle_for_those_below_but_for_the_holder():
    tasks = [task("top", variant(cpu=2), priority=9), task("low", ONE)]
    held = (hold("top", "n1", allocation(cpu=2)),)
    history = [joined(0, "n1"), submitted(0, "top"), submitted(0, "low"), Pass(0, held), Settled(0)]
    assert rules([node("n1", cpu=1)], tasks, *history) == []
    assert rules([node("n1", cpu=2)], tasks, *history) == [("idle", "default/top")]


def test_tasks_that_nobody_may_place_make_no_room_idle():
    suspended = task("a", ONE, unsupported=("spec.suspend is true",))
    assert rules([node("n1", cpu=1)], [suspended], *start("a"), Settled(0)) == []


def test_a_task_that_starts_twice():
    history = [*start("a"), bound(0, "a", "n1", TAKEN), bound(0, "a", "n1", TAKEN)]
    assert rules([node("n1", cpu=4)], [task("a", ONE)], *history) == [("once", "default/a")]


def test_a_task_that_starts_after_its_end_or_ends_twice():
    history = [*start("a"), bound(0, "a", "n1", TAKEN), finished(1000, "a", "n1", TAKEN)]
    tasks = [task("a", ONE, runs=1)]
    again = bound(1000, "a", "n1", TAKEN)
    assert rules([node("n1", cpu=4)], tasks, *history) == []
    assert rules([node("n1", cpu=4)], tasks, *history, again, finished(2000, "a", "n1", TAKEN)) == [
        ("once", "default/a")
    ]
    assert rules([node("n1", cpu=4)], tasks, *history, finished(1000, "a", "n1", TAKEN)) == [("once", "default/a")]


def test_a_task_that_ends_early_late_or_not_at_all():
    tasks = [task("a", ONE, runs=2)]
    begun = [*start("a"), bound(0, "a", "n1", TAKEN)]
    for t in (1000, 3000):
        assert ("once", "default/a") in rules([node("n1", cpu=4)], tasks, *begun, finished(t, "a", "n1", TAKEN))
    assert rules([node("n1", cpu=4)], tasks, *begun, Settled(2000)) == [("once", "default/a")]


def test_a_crashed_task_waits_for_the_end_of_its_pause():
    tasks = [task("a", ONE, runs=1, exit_code=1, crash_limit=3, backoff=10)]
    crashed = [*start("a"), bound(0, "a", "n1", TAKEN), requeued(1000, "a", "n1", TAKEN), Settled(1000)]
    nodes = [node("n1", cpu=4)]
    assert rules(nodes, tasks, *crashed, bound(5000, "a", "n1", TAKEN)) == [("once", "default/a")]
    assert rules(nodes, tasks, *crashed, Pass(11000, ()), bound(11000, "a", "n1", TAKEN)) == []
    assert rules(nodes, tasks, *crashed, Settled(11000)) == [("idle", "default/a")]


def test_what_a_pass_skipped_because_it_raised_is_a_violation():
    assert rules([node("n1", cpu=1)], [], joined(0, "n1"), Pass(0, (), ("node n2 is skipped: KeyError('x')",))) == [
        ("fault", None)
    ]
