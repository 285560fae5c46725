"""The stream that the product comes from, replayed in every form and every join order."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import count, permutations
from pathlib import Path
from typing import Any

import pytest

from gputask.cli.documents import Document
from gputask.cli.files import Objects, collect
from gputask.cli.scenarios import build
from gputask.simulate.check import Checker
from gputask.simulate.engine import Simulation
from gputask.simulate.history import Event, Kind, event_json
from gputask.simulate.join_order import reorder
from gputask.simulate.scenario import Scenario
from gputask.simulate.summary import Summary

ROOT = Path(__file__).parents[2]
NODES = ("cpu-1", "cpu-2", "gpu-1")
ORDERS = [",".join(order) for order in permutations(NODES)]
FORMS = [("written-out", 64), ("written-out", 2), ("devices", 2)]
TICKS = [2.0, 4.75]
"""About 2.4 times, and about 1.0 times, what 24 cpus give."""

# Names that sort the other way round, and interleave with those that stay.
RENAMED = {"runtime/aaa": "a/run", "gpuHostMB": "aHostMB", "gpuSlot": "zSlot", "gpuMemoryMB": "bMemoryMB"}


@cache
def generator() -> Any:
    spec = importlib.util.spec_from_file_location("stream", ROOT / "examples/hyperqueue-stream/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["stream"] = module
    spec.loader.exec_module(module)
    return module


def manifests(form: str, cards: int, tick: float, length: float) -> list[Any]:
    stream = generator()
    return [*stream.nodes(), *stream.tasks(cards=cards, form=form, tick=tick, length=length)]


def scenario(found: list[Any]) -> Scenario:
    loaded = build(objects(found), now=0.0, simulated=True)
    assert loaded.warnings == ()
    return loaded.scenario


def objects(found: list[Any]) -> Objects:
    return collect([Document("stream", None, manifest) for manifest in found])


def play(of: Scenario, order: str) -> tuple[list[tuple[object, ...]], dict[str, Any]]:
    """What was bound where and when, by the names of pools in alphabetical order, and the summary."""
    of = replace(of, nodes=reorder(of.nodes, order))
    checker, summary = Checker(of), Summary(of)
    bound = []
    for record in Simulation(of).run():
        checker.see(record)
        summary.see(record)
        if isinstance(record, Event) and record.kind is Kind.BOUND:
            bound.append(tuple(event_json(record)[key] for key in ("t", "task", "node", "variant", "devices")))
    checker.close(summary.t)
    return bound, summary.result(summary.t, checker.violations)


def replay(form: str, cards: int, tick: float, length: float) -> None:
    stream = scenario(manifests(form, cards, tick, length))
    total = len(stream.tasks)
    first: list[tuple[object, ...]] = []
    for order in ORDERS:
        bound, summary = play(stream, order)
        assert summary["violations"] == []
        assert summary["tasks"] == {"submitted": total, "placed": total, "finished": total, "waiting": 0}
        assert len(bound) == total, "some task started twice"
        first = first or bound
        assert bound == first, f"another history when the nodes join as {order}"


@pytest.mark.parametrize("tick", TICKS)
@pytest.mark.parametrize(("form", "cards"), FORMS)
def test_the_stream_of_45_seconds_in_every_join_order(form: str, cards: int, tick: float):
    replay(form, cards, tick, 45)


@pytest.mark.long
@pytest.mark.parametrize("tick", TICKS)
@pytest.mark.parametrize(("form", "cards"), FORMS)
def test_the_stream_of_180_seconds_in_every_join_order(form: str, cards: int, tick: float):
    replay(form, cards, tick, 180)


@pytest.mark.parametrize("tick", TICKS)
def test_64_written_out_cards_2_of_them_and_one_devices_request_are_one_history(tick: float):
    histories = []
    for form, cards in FORMS:
        bound, _ = play(scenario(manifests(form, cards, tick, 45)), "given")
        histories.append([(t, task, node, devices, variant == "cpu") for t, task, node, variant, devices in bound])
    assert histories[0] == histories[1] == histories[2]


@pytest.mark.parametrize(("form", "cards"), FORMS[1:])
@pytest.mark.parametrize("tick", TICKS)
def test_names_that_sort_otherwise_change_nothing(form: str, cards: int, tick: float):
    found = manifests(form, cards, tick, 45)
    text = json.dumps(found)
    for old, new in RENAMED.items():
        assert old in text
        text = text.replace(old, new)
    assert play(scenario(json.loads(text)), "given")[0] == play(scenario(found), "given")[0]


@pytest.mark.parametrize("tick", TICKS)
def test_as_many_tasks_as_the_report_says_after_each_tick(tick: float):
    instants = [
        float(manifest["metadata"]["annotations"]["sim.gputask.dev/at"])
        for manifest in manifests("devices", 2, tick, 11 * tick)
        if manifest["kind"] == "GpuTask"
    ]
    after = [sum(at <= 3 + i * tick for at in instants) for i in range(11)]
    assert after == [11, 19, 27, 36, 44, 53, 62, 70, 78, 87, 97]


def test_tasks_of_a_tick_are_ranked_in_the_order_of_their_submission():
    of_a_tick: dict[int, Iterator[int]] = {}
    for sim in sorted(scenario(manifests("devices", 2, 2, 45)).tasks, key=lambda sim: (sim.at, sim.task.uid)):
        position = next(of_a_tick.setdefault(sim.at, count()))
        assert sim.task.key.split("-")[1] == f"{position:02}"


def test_the_committed_manifests_are_those_that_the_script_writes(tmp_path: Path):
    stream = generator()
    folder = ROOT / "examples/hyperqueue-stream"
    stream.write(tmp_path / "nodes.yaml", stream.nodes())
    stream.write(tmp_path / "tasks.yaml", stream.tasks(cards=2, form="written-out", tick=2.0, length=45.0))
    for name in ("nodes.yaml", "tasks.yaml"):
        assert (tmp_path / name).read_text() == (folder / name).read_text()
