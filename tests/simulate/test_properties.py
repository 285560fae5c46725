"""Random small worlds: whatever happens in them, the independent checker finds nothing, and the history is a function
of what is there (R8), not of the order in which it is listed."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputask.planner.model import Variant
from gputask.simulate.check import Checker
from gputask.simulate.engine import Simulation
from gputask.simulate.history import Event, event_json
from gputask.simulate.scenario import NodeVersion, Scenario, SimTask
from gputask.simulate.summary import Summary
from support.scenarios import amounts, changed, node, task, variant

CALM = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
QUARTERS = st.integers(1, 8).map(lambda n: f"{n / 4:g}")


@st.composite
def nodes(draw: st.DrawFn, name: str) -> NodeVersion:
    cards = {
        f"{name}-{i}": {"slot": ["x", "y"][: draw(st.integers(1, 2))], "mb": draw(st.integers(1, 4))}
        for i in range(draw(st.integers(0, 2)))
    }
    found = node(name, cpu=draw(st.integers(1, 6)), lic=["a", "b", "c"][: draw(st.integers(0, 3))], cards=cards)
    if draw(st.booleans()):
        found = changed(found, lives_until=float(draw(st.integers(1, 40))))
    at = draw(st.integers(0, 6)) * 1000
    stays = draw(st.none() | st.integers(1, 20))
    until = None if stays is None else at + stays * 1000
    return replace(found, at=at, until=until, drain=draw(st.booleans()))


@st.composite
def variants(draw: st.DrawFn, index: int) -> Variant:
    asked = draw(st.dictionaries(st.sampled_from(["cpu", "lic"]), QUARTERS, min_size=1))
    card = draw(st.none() | st.dictionaries(st.sampled_from(["slot", "mb"]), QUARTERS, min_size=1))
    return variant(
        f"v{index}",
        card=amounts(**card) if card else None,
        cards=draw(st.integers(1, 2)),
        min_time=float(draw(st.sampled_from([0, 0, 5, 15]))),
        **asked,
    )


@st.composite
def tasks(draw: st.DrawFn, name: str) -> SimTask:
    found = [draw(variants(i)) for i in range(draw(st.integers(1, 2)))]
    at = draw(st.integers(0, 10))
    cancelled = draw(st.sampled_from([None, None, None, 1, 7]))
    return task(
        name,
        *found,
        priority=draw(st.integers(0, 3)),
        at=at,
        runs=draw(st.integers(0, 12)),
        exit_code=draw(st.sampled_from([0, 0, 0, 1])),
        crash_limit=draw(st.integers(0, 2)),
        backoff=draw(st.integers(0, 3)),
        time_limit=draw(st.none() | st.integers(1, 10).map(float)),
        until=None if cancelled is None else at + cancelled,
    )


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    some_nodes = [draw(nodes(f"n{i}")) for i in range(draw(st.integers(1, 3)))]
    some_tasks = [draw(tasks(f"t{i}")) for i in range(draw(st.integers(1, 8)))]
    return Scenario(tuple(some_nodes), tuple(some_tasks))


def play(scenario: Scenario) -> tuple[list[dict[str, object]], Summary, Checker]:
    checker, summary, events = Checker(scenario), Summary(scenario), []
    for record in Simulation(scenario).run():
        checker.see(record)
        summary.see(record)
        if isinstance(record, Event):
            events.append(event_json(record))
    checker.close(summary.t)
    return events, summary, checker


@CALM
@given(scenarios())
def test_no_rule_is_broken_and_every_task_ends_at_most_once(scenario: Scenario):
    events, summary, checker = play(scenario)
    assert checker.violations == []
    finished = [event["task"] for event in events if event["event"] == "finished"]
    assert len(finished) == len(set(finished))
    tasks_of = summary.result(summary.t, [])["tasks"]
    assert tasks_of["submitted"] == len(scenario.tasks)
    # Every run is finite, so in the end each task has finished or waits.
    assert tasks_of["finished"] + tasks_of["waiting"] == len(scenario.tasks)


@CALM
@given(scenarios(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_tasks_in_the_files_changes_nothing(scenario: Scenario, random):
    mixed_nodes, mixed_tasks = list(scenario.nodes), list(scenario.tasks)
    random.shuffle(mixed_nodes)
    random.shuffle(mixed_tasks)
    mixed = Scenario(tuple(mixed_nodes), tuple(mixed_tasks))
    starts = [
        [event for event in play(each)[0] if event["event"] in ("bound", "held", "requeued", "finished")]
        for each in (scenario, mixed)
    ]
    assert starts[0] == starts[1]
