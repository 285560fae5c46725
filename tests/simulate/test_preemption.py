"""Preemption on the simulation's clock: when room is made, for whom it is kept, and what the checker says of less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gputask.simulate.check import Checker
from gputask.simulate.engine import Simulation
from gputask.simulate.history import Event, Kind, Pass, Record
from gputask.simulate.scenario import NodeVersion, Scenario, SimTask
from support.scenarios import allocation, amounts, bound, hold, joined, node, submitted, task, variant

CARD = 24576


def card_task(name: str, priority: int, mem: int, at: float = 0, **more: Any) -> SimTask:
    sim = task(name, variant(card=amounts(mem=mem)), priority=priority, at=at, preemptible=True, **more)
    return replace(sim, task=replace(sim.task, may_preempt=True))


def run(*tasks: SimTask, nodes: tuple[NodeVersion, ...] = (), until: int = 100_000) -> list[Event]:
    """All events but submissions; the checker finds nothing wrong."""
    scenario = Scenario(nodes or (node("n1", cards={"0": {"mem": CARD}}),), tasks)
    checker, records = Checker(scenario), list(Simulation(scenario).run(until))
    for record in records:
        checker.see(record)
    checker.close(records[-1].t)
    assert checker.violations == []
    return [r for r in records if isinstance(r, Event) and r.kind is not Kind.SUBMITTED]


def told(events: list[Event], *kinds: Kind) -> list[tuple[int, str, str]]:
    return [(e.t, e.kind.value, (e.task or "").removeprefix("default/")) for e in events if e.kind in kinds]


def test_v21_the_room_is_made_kept_and_given_to_its_task() -> None:
    events = run(
        card_task("A", 100, 8192, stops=2),
        card_task("B", 200, 8192, stops=10),
        card_task("C", 300, 8192),
        card_task("D", 400, 12288, at=1),
        card_task("E", 50, 5000, at=4),
        card_task("F", 350, 4096, at=20),
    )
    assert told(events, Kind.PREEMPTED, Kind.REQUEUED) == [
        (1000, "preempted", "A"),
        (1000, "preempted", "B"),
        (3000, "requeued", "A"),
        (11_000, "requeued", "B"),
    ]
    assert (11_000, "bound", "D") in told(events, Kind.BOUND)
    assert (20_000, "bound", "F") in told(events, Kind.BOUND)
    assert "E" not in [name for _, _, name in told(events, Kind.BOUND)]
    preempted = next(e for e in events if e.kind is Kind.PREEMPTED)
    assert preempted.reason == "default/D"
    assert preempted.node == "n1"


def test_b75_a_victim_that_returns_at_once_waits_and_nobody_is_evicted_again() -> None:
    events = run(card_task("V", 0, 8000, runs=30), card_task("P", 10, 20_000, at=1, runs=5))
    assert told(events, Kind.PREEMPTED, Kind.REQUEUED, Kind.BOUND, Kind.FINISHED) == [
        (0, "bound", "V"),
        (1000, "preempted", "V"),
        (1000, "requeued", "V"),
        (1000, "bound", "P"),
        (6000, "finished", "P"),
        (6000, "bound", "V"),
        (36_000, "finished", "V"),
    ]


def test_work_is_evicted_once_its_least_runtime_is_over_though_nothing_else_happens() -> None:
    events = run(card_task("V", 0, 20_000, min_runtime=7), card_task("P", 10, 20_000, at=1))
    assert told(events, Kind.PREEMPTED) == [(7000, "preempted", "V")]


def test_a_victim_that_ends_by_itself_while_it_stops_has_ended() -> None:
    events = run(card_task("V", 0, 20_000, runs=3, stops=5), card_task("P", 10, 20_000, at=1))
    assert told(events, Kind.FINISHED, Kind.REQUEUED) == [(3000, "finished", "V")]
    assert (3000, "bound", "P") in told(events, Kind.BOUND)


# --- what the checker blames ----------------------------------------------------------------------------

ONE = allocation(cpu=1)


def evicted(t: int, name: str, by: str) -> Event:
    return Event(t, Kind.PREEMPTED, f"default/{name}", "n1", None, f"default/{by}")


def blamed(*history: Record, cpu: int = 1, **victim: Any) -> list[tuple[str, str]]:
    low = replace(task("low", variant(cpu=1)), **{"preemptible": True, **victim})
    other = replace(task("other", variant(cpu=1)), preemptible=True)
    high = task("high", variant(cpu=1), priority=9)
    high = replace(high, task=replace(high.task, may_preempt=True))
    checker = Checker(Scenario((node("n1", cpu=cpu),), (low, other, high)))
    start: list[Record] = [joined(0, "n1"), *(submitted(0, n) for n in ("low", "other", "high"))]
    for record in [*start, Pass(0, ()), bound(0, "low", "n1", ONE), *history]:
        checker.see(record)
    return [(v.rule, v.message) for v in checker.violations if v.rule in {"eviction", "kept", "once"}]


def making(victims: tuple[str, ...]) -> Pass:
    return Pass(1, (replace(hold("high", "n1", ONE), victims=victims),))


LOW = ("default/low",)


def test_a_right_eviction_is_not_blamed() -> None:
    assert blamed(making(LOW), evicted(1, "low", "high")) == []


def test_an_eviction_without_a_hold() -> None:
    assert blamed(Pass(1, ()), evicted(1, "low", "high")) == [("eviction", "no hold of default/high names it")]


def test_an_eviction_of_what_may_not_be_evicted() -> None:
    assert blamed(making(LOW), evicted(1, "low", "high"), preemptible=False)[0][0] == "eviction"
    assert blamed(making(LOW), evicted(1, "low", "high"), min_runtime=5000)[0][0] == "eviction"


def test_an_eviction_twice() -> None:
    found = blamed(making(LOW), evicted(1, "low", "high"), evicted(2, "low", "high"))
    assert found == [("eviction", "evicted though it does not run, or is evicted already")]


def test_an_eviction_that_was_not_needed() -> None:
    (rule, message), *_ = blamed(making(LOW), evicted(1, "low", "high"), cpu=2)
    assert rule == "eviction"
    assert message.startswith("one too many")


def test_an_eviction_in_vain() -> None:
    wide = replace(hold("high", "n1", allocation(cpu=2)), victims=LOW)
    (rule, message), *_ = blamed(Pass(1, (wide,)), evicted(1, "low", "high"))
    assert rule == "eviction"
    assert message.startswith("in vain")


def test_a_start_in_room_that_is_being_made() -> None:
    gone = Event(1, Kind.REQUEUED, "default/low", "n1", None, "Preempted")
    found = blamed(making(LOW), evicted(1, "low", "high"), gone, bound(1, "other", "n1", ONE))
    assert found == [("kept", "takes room that is being made for default/high")]


# --- any scenario ---------------------------------------------------------------------------------------

sims = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(0, 9), st.integers(1, 9), st.integers(0, 3)),
    min_size=1,
    max_size=9,
)


@settings(max_examples=200)
@given(sizes=st.lists(st.integers(2, 8), min_size=1, max_size=2), work=sims)
def test_no_scenario_breaks_a_rule_and_all_work_ends(
    sizes: list[int], work: list[tuple[int, int, int, int, int]]
) -> None:
    tasks = []
    for i, (priority, cpu, at, runs, stops) in enumerate(work):
        sim = task(f"t{i}", variant(cpu=min(cpu, max(sizes))), priority=priority, at=at, runs=runs)
        sim = replace(sim, preemptible=i % 4 != 3, stops=stops * 1000, min_runtime=(i % 3) * 1000)
        tasks.append(replace(sim, task=replace(sim.task, may_preempt=i % 5 != 4)))
    events = run(*tasks, nodes=tuple(node(f"n{i}", cpu=size) for i, size in enumerate(sizes)), until=10_000_000)
    assert len([e for e in events if e.kind is Kind.FINISHED]) == len(tasks)
