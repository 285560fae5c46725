"""``gputask simulate -f``: the events and the summary that scripts read, and cases through files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gputask.cli.main import run
from support.manifests import annotated, gputask, meta, node, pod, reserved, variant, write

Told = tuple[list[dict[str, Any]], dict[str, Any]]
Simulated = Callable[..., Told]


@pytest.fixture
def simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Simulated:
    """Simulate some manifests; the events, and the summary without violations."""

    def simulate(*manifests: dict[str, Any], options: tuple[str, ...] = ()) -> Told:
        assert run(["simulate", "-f", write(tmp_path, *manifests), "-o", "json", *options]) == 0
        *events, summary = map(json.loads, capsys.readouterr().out.splitlines())
        return events, summary

    return simulate


def story(told: Told) -> list[tuple[float, str, str, str | None]]:
    return [
        (event["t"], event["event"], (event["task"] or event["node"]).removeprefix("default/"), event["reason"])
        for event in told[0]
    ]


def starts(told: Told) -> dict[str, float]:
    return {e["task"].removeprefix("default/"): e["t"] for e in told[0] if e["event"] == "bound"}


# --- the shapes -------------------------------------------------------------------------------------


def test_the_whole_shape_of_events_and_summary(simulated: Simulated):
    asked = variant("gpu", cpu=2, gpuSlot__0=1)
    events, summary = simulated(
        annotated(node("n1", cpu=4, declares={"gpuSlot/0": ["a"]}), until=20),
        annotated(gputask("one", asked, priority=4), at="1.5", runs="2.25"),
        annotated(gputask("two", asked, priority=3), at="1.5", runs=4),
        annotated(gputask("never", variant("v", lic=1)), at=2),
    )
    nothing = {"task": None, "node": None, "variant": None, "variantIndex": None, "devices": [], "amounts": None}
    empty = {"event": "", "t": 0, **nothing, "labels": None, "reason": None}
    place = {
        "node": "n1",
        "variant": "gpu",
        "variantIndex": 0,
        "devices": ["0"],
        "amounts": {"cpu": "2", "gpuSlot/0": "1"},
        "labels": {"gpuSlot/0": ["a"]},
    }
    one, two = {"task": "default/one"}, {"task": "default/two"}
    assert events == [
        {**empty, "t": 0, "event": "node-added", "node": "n1"},
        {**empty, "t": 1.5, "event": "submitted", **one},
        {**empty, "t": 1.5, "event": "submitted", **two},
        {**empty, "t": 1.5, "event": "bound", **one, **place},
        {**empty, "t": 1.5, "event": "held", **two, **place},
        {**empty, "t": 2, "event": "submitted", "task": "default/never"},
        {**empty, "t": 3.75, "event": "finished", **one, **place, "reason": "Succeeded"},
        {**empty, "t": 3.75, "event": "bound", **two, **place},
        {**empty, "t": 7.75, "event": "finished", **two, **place, "reason": "Succeeded"},
        {**empty, "t": 20, "event": "node-removed", "node": "n1"},
    ]
    at_once = {"mean": 0, "p50": 0, "p99": 0, "max": 0}
    later = {"mean": 2.25, "p50": 2.25, "p99": 2.25, "max": 2.25}
    never = {"mean": None, "p50": None, "p99": None, "max": None}
    assert summary == {
        "schemaVersion": 1,
        "event": "summary",
        "t": 20,
        "tasks": {"submitted": 3, "placed": 2, "finished": 2, "waiting": 1},
        "byPriority": {
            "4": {"submitted": 1, "placed": 1, "finished": 1, "wait": at_once},
            "3": {"submitted": 1, "placed": 1, "finished": 1, "wait": later},
            "0": {"submitted": 1, "placed": 0, "finished": 0, "wait": never},
        },
        "byClass": {
            "default/one": {"submitted": 1, "placed": 1, "finished": 1, "wait": at_once},
            "default/two": {"submitted": 1, "placed": 1, "finished": 1, "wait": later},
            "default/never": {"submitted": 1, "placed": 0, "finished": 0, "wait": never},
        },
        "use": {"n1/cpu": 0.1562, "n1/gpuSlot/0": 0.3125},
        "violations": [],
    }


def test_yaml_is_one_document_for_each_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write(tmp_path, node("n1", cpu=1), annotated(gputask("a", variant(cpu=1)), runs=1))
    told = []
    for output in ("json", "yaml"):
        assert run(["simulate", "-f", path, "-o", output]) == 0
        told.append(capsys.readouterr().out)
    assert list(yaml.safe_load_all(told[1])) == [json.loads(line) for line in told[0].splitlines()]


def test_the_table_has_a_row_for_each_priority(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tasks = [annotated(gputask(f"t{i}", variant(cpu=1), priority=i), runs=4) for i in (3, 12)]
    assert run(["simulate", "-f", write(tmp_path, node("n1", cpu=1), *tasks)]) == 0
    out = capsys.readouterr().out
    assert out.index("\n12 ") < out.index("\n3 ")
    assert "n1/cpu" in out
    assert "0 tasks wait. 0 violations." in out


def test_a_violation_is_exit_code_1_and_stands_in_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    from dataclasses import replace

    from gputask.simulate import engine

    def forgetful(snapshot: Any, now: float) -> Any:
        """A planner that does not see what runs."""
        blind = replace(snapshot, nodes=tuple(replace(n, running=()) for n in snapshot.nodes))
        return engine.plan(blind, now)

    monkeypatch.setattr(
        "gputask.cli.simulate.Simulation", lambda scenario: engine.Simulation(scenario, planner=forgetful)
    )
    path = write(tmp_path, node("n1", cpu=1), *(gputask(name, variant(cpu=1)) for name in "ab"))
    assert run(["simulate", "-f", path, "-o", "json"]) == 1
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(v["t"], v["rule"], v["task"], v["node"]) for v in summary["violations"]] == [
        (0, "capacity", "default/b", "n1")
    ]
    assert run(["simulate", "-f", path]) == 1
    assert "1 violations" in capsys.readouterr().out


# --- time -------------------------------------------------------------------------------------------


def test_until_stops_the_run(simulated: Simulated):
    told = simulated(node("n1", cpu=1), annotated(gputask("a", variant(cpu=1)), runs=10), options=("--until", "9.999"))
    assert told[0][-1]["event"] == "bound"
    assert told[1]["tasks"] == {"submitted": 1, "placed": 1, "finished": 0, "waiting": 0}


def test_work_that_runs_already_runs_on_for_the_rest_of_its_time(simulated: Simulated):
    runs = annotated(gputask("runs", variant(cpu=1)), runs=30)
    told = simulated(
        node("n1", cpu=1),
        reserved(runs, node="n1", variant="v0", startTime="2026-01-31T12:00:00Z"),
        annotated(gputask("next", variant(cpu=1)), runs=1),
        options=("--now", "2026-01-31T12:00:20Z"),
    )
    assert (10, "finished", "runs", "Succeeded") in story(told)
    assert starts(told) == {"next": 10}


def test_foreign_pods_come_and_go(simulated: Simulated):
    busy = annotated(pod("other", on="n1", cpu=1), at=0, until=5)
    late = annotated(pod("late", on="n1", cpu=1), at=5, runs=2)
    assert starts(simulated(node("n1", cpu=1), busy, late, gputask("a", variant(cpu=1)))) == {"a": 7}


def test_annotations_of_the_template_count_too(simulated: Simulated):
    task = gputask("a", variant(cpu=1))
    task["spec"]["template"]["metadata"] = {
        "annotations": {"sim.gputask.dev/runs": "3", "sim.gputask.dev/exit-code": "1"}
    }
    assert story(simulated(node("n1", cpu=1), task))[-1] == (3, "finished", "a", "Failed")


def test_crashes_deadlines_and_cancellation(simulated: Simulated):
    crashing = gputask("crashing", variant(cpu=1), restartPolicy={"limit": 1, "backoffSeconds": 0})
    told = simulated(
        node("n1", cpu=3),
        annotated(crashing, runs=2, exit_code=9),
        annotated(gputask("slow", variant(cpu=1), timeLimitSeconds=5), runs=60),
        annotated(gputask("unwanted", variant(cpu=1)), until=3),
    )
    assert [entry for entry in story(told) if entry[1] in ("requeued", "finished")] == [
        (2, "requeued", "crashing", "Crashed"),
        (3, "finished", "unwanted", "Cancelled"),
        (4, "finished", "crashing", "Failed"),
        (5, "finished", "slow", "DeadlineExceeded"),
    ]


def test_a_node_that_changes_is_several_documents_of_one_name(simulated: Simulated):
    cordoned = annotated(node("n1", cpu=2), at=5)
    cordoned["spec"] = {"unschedulable": True}
    told = simulated(
        node("n1", cpu=2),
        cordoned,
        annotated(node("n1", cpu=2), at=9),
        annotated(gputask("early", variant(cpu=1)), runs=20),
        annotated(gputask("late", variant(cpu=1)), at=6, runs=1),
    )
    assert starts(told) == {"early": 0, "late": 9}
    assert [entry for entry in story(told) if entry[1] == "node-added"] == [
        (0, "node-added", "n1", None),
        (5, "node-added", "n1", "Replaced"),
        (9, "node-added", "n1", "Replaced"),
    ]


def test_rank_time_is_the_instant_of_appearance_in_a_simulation(simulated: Simulated):
    """And not the creation that an export from a cluster may carry."""
    first = annotated(meta(gputask("z-first", variant(cpu=1)), creationTimestamp="2026-01-31T12:00:00Z"), at=1, runs=5)
    second = annotated(
        meta(gputask("a-second", variant(cpu=1)), creationTimestamp="2020-01-01T00:00:00Z"), at=2, runs=5
    )
    block = annotated(gputask("block", variant(cpu=1), priority=1), runs=4)
    told = simulated(node("n1", cpu=1), second, first, block)
    assert starts(told) == {"block": 0, "z-first": 4, "a-second": 9}


def test_node_life_shrinks_as_time_goes_on(simulated: Simulated):
    """v11: once the node has less left than the first variant asks, the second is taken, or nothing."""
    mortal = node("a", cpu=1, declares={"g": 1})
    mortal["metadata"]["annotations"]["gputask.dev/lives-until"] = "2026-01-31T12:01:00Z"
    asked = [{**variant("gpu", g=1), "minTimeSeconds": 50}, {**variant("cpu", cpu=1), "minTimeSeconds": 400}]
    tasks = [annotated(gputask(f"t{t}", *asked), at=t, runs=1) for t in (10, 11)]
    told = simulated(mortal, *tasks, options=("--now", "2026-01-31T12:00:00Z"))
    assert starts(told) == {"t10": 10}


# --- join order -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["given", "reverse", "shuffle", "c,a,b"])
def test_the_join_order_changes_no_start(simulated: Simulated, order: str):
    nodes = [annotated(node(name, cpu=2), at=i) for i, name in enumerate("abc")]
    tasks = [annotated(gputask(f"t{i}", variant(cpu=1), priority=i % 3), at=3 + i % 2, runs=4) for i in range(12)]
    told = simulated(*nodes, *tasks, options=("--node-order", order, "--seed", "3"))
    bound = [(e["t"], e["task"], e["node"]) for e in told[0] if e["event"] == "bound"]
    given = simulated(*nodes, *tasks)
    assert bound == [(e["t"], e["task"], e["node"]) for e in given[0] if e["event"] == "bound"]
    assert [e["t"] for e in told[0] if e["event"] == "node-added"] == [0, 1, 2]


# --- cases ------------------------------------------------------------------------------------------


def test_b09_tenths_add_up_to_one(simulated: Simulated):
    tasks = [annotated(gputask(f"t{i:02}", variant(lic="0.1")), runs=3 + i % 4) for i in range(11)]
    told = simulated(node("n1", declares="lic: sum(1.0)"), *tasks)
    assert sorted(starts(told).values()) == [0] * 10 + [3]


@pytest.mark.parametrize("order", ["given", "reverse"])
def test_b40_a_fraction_lies_on_one_device(simulated: Simulated, order: str):
    declared = {f"gpu/{i}": "sum(1)" for i in range(3)}
    tasks = [gputask(f"t{i}", *(variant(f"c{k}", **{f"gpu__{k}": "0.4"}) for k in range(3))) for i in range(7)]
    told = simulated(node("n1", declares=declared), *tasks, options=("--node-order", order))
    assert len(starts(told)) == 6
    assert told[1]["tasks"]["waiting"] == 1


def test_b42_unlike_cards_each_have_their_own_size(simulated: Simulated):
    cards = {"gpuMemoryMB/0": 24000, "gpuMemoryMB/1": 8000}
    asked = [(f"big{i}", 20000) for i in range(2)] + [("small", 6000)]
    tasks = [gputask(name, variant(devices={"resources": {"gpuMemoryMB": mb}})) for name, mb in asked]
    told = simulated(node("n1", declares=cards), *tasks)
    assert {e["task"]: e["devices"] for e in told[0] if e["event"] == "bound"} == {
        "default/big0": ["0"],
        "default/small": ["1"],
    }


@pytest.mark.parametrize("joins", [0, 2, 9])
def test_b124_joining_before_between_or_after_the_tasks_is_the_same(simulated: Simulated, joins: int):
    foo = [annotated(gputask(f"f{i}", variant(cpu=1, foo=2)), at=1 + i) for i in range(4)]
    last = annotated(gputask("l", variant(cpu=2), priority=-1), at=1)
    told = simulated(annotated(node("n1", cpu=8, declares={"foo": [1, 2, 3, 4]}), at=joins), *foo, last)
    assert set(starts(told)) == {"f0", "f1", "l"}
    assert told[1]["tasks"]["waiting"] == 2
