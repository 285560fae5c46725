"""``gputask plan``: one planner pass over files; nothing is written anywhere."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import repeat
from time import perf_counter, time
from typing import Any

from gputask.api.conditions import UNDERSTOOD, NodeCondition
from gputask.api.times import epoch, rfc3339
from gputask.cli.errors import BadInputError, Exit
from gputask.cli.files import load
from gputask.cli.output import SCHEMA_VERSION, Format, show, warn
from gputask.cli.scenarios import build
from gputask.cli.shapes import decision_json, waiting_json
from gputask.cli.tables import plan_tables
from gputask.planner.explain import explain
from gputask.planner.model import Node, Plan, Reason, Snapshot
from gputask.planner.plan import plan
from gputask.simulate.scenario import Scenario
from gputask.simulate.state import World


def plan_files(files: Sequence[str], *, now: str | None, output: Format) -> Exit:
    """Run one pass over files and print its outcome.

    :raises BadInputError: the files, or ``now``, cannot be understood.
    """
    start = moment(now)
    loaded = build(load(files), now=start, simulated=False)
    for line in loaded.warnings:
        warn(line)
    snapshot = snapshot_of(loaded.scenario)
    began = perf_counter()
    outcome = plan(snapshot, 0.0)
    passed = perf_counter() - began
    for fault in outcome.faults:
        warn(fault)
    messages = {entry.task.key: entry.message for entry in outcome.waiting}
    # A table has one line for each task: the matrix is worked out only for those who get it.
    matrices = repeat(()) if output is Format.TABLE else _matrices(snapshot, outcome)
    shape = _shape(snapshot, outcome, matrices, start=start, passed=passed)
    show(shape, output, lambda console, data: plan_tables(console, data, messages))
    return Exit.FINE


def moment(now: str | None) -> float:
    """The present of a command in seconds since the epoch: what ``--now`` says, or the clock.

    :raises BadInputError: it is no RFC 3339 time.
    """
    try:
        return time() if now is None else epoch(now)
    except ValueError as error:
        raise BadInputError(f"--now: {error}") from None


def snapshot_of(scenario: Scenario) -> Snapshot:
    """Everything of a scenario that is there at t = 0, as one snapshot."""
    world = World()
    for version in scenario.nodes:
        world.show(version)
    for use in scenario.foreign:
        world.foreign(use, present=True)
    for sim in scenario.tasks:
        state = world.add(sim)
        if sim.running is not None:
            world.start(state, sim.running)
    return world.snapshot(())


def _matrices(snapshot: Snapshot, outcome: Plan) -> Iterator[Sequence[Reason]]:
    """The full matrix of each waiting task, in order. Tasks of one class with the same decisions above them have the
    same one."""
    decided = [decision.task.rank for decision in outcome.decisions]
    known: dict[Hashable, Sequence[Reason]] = {}
    for entry in outcome.waiting:
        task = entry.task
        key = (task.request, task.unsupported, bisect_left(decided, task.rank))
        if key not in known:
            known[key] = explain(snapshot, 0.0, task.key)
        yield known[key]


def _shape(
    snapshot: Snapshot,
    outcome: Plan,
    matrices: Iterable[Sequence[Reason]],
    *,
    start: float,
    passed: float,
) -> dict[str, Any]:
    return {
        "schemaVersion": SCHEMA_VERSION,
        "now": rfc3339(start),
        "decisions": [decision_json(decision, lambda t: rfc3339(start + t)) for decision in outcome.decisions],
        "waiting": [
            waiting_json(entry.task.key, entry.feasible, reasons)
            for entry, reasons in zip(outcome.waiting, matrices, strict=False)
        ],
        "nodes": [
            {"node": node.name, "conditions": [_declared(node)]}
            for node in sorted(snapshot.nodes, key=lambda n: n.name)
        ],
        "stats": {
            "passSeconds": round(passed, 6),
            "nodes": len(snapshot.nodes),
            "classes": len({task.request for task in snapshot.tasks}),
            "tasks": len(snapshot.tasks),
        },
    }


def _declared(node: Node) -> dict[str, str]:
    """The condition that a GpuNode would carry: whether all that its Node declares is understood."""
    problems = node.resources.problems
    return {
        "type": NodeCondition.DECLARED.value,
        "status": "False" if problems else "True",
        "reason": problems[0].fault.value if problems else UNDERSTOOD,
        "message": "; ".join(map(str, problems)),
    }
