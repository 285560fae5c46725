"""``gputask explain``: why one task waits, cell by cell, and what would make it run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gputask.api.conditions import Phase
from gputask.api.times import rfc3339
from gputask.cli.cluster import ask, everything
from gputask.cli.errors import BadInputError, Exit
from gputask.cli.files import collect, load
from gputask.cli.output import SCHEMA_VERSION, Format, show, warn
from gputask.cli.plan import moment, snapshot_of
from gputask.cli.scenarios import build
from gputask.cli.shapes import reason_json
from gputask.cli.tables import explain_tables
from gputask.planner.explain import Turn, Way
from gputask.planner.model import Action, Snapshot
from gputask.planner.plan import plan
from gputask.resources.amounts import format_amount


def explain_task(name: str, files: Sequence[str], *, kubeconfig: Path | None, now: str | None, output: Format) -> Exit:
    """Explain the task ``name`` (``namespace/name``, or a name in ``default``) as it stands in some files, or, without
    any, on the cluster.

    :raises BadInputError: the files cannot be understood, or no task that has not ended has this name.
    :raises NotReachableError: the cluster does not answer.
    """
    start = moment(now)
    objects = load(files) if files else collect(ask("gputask explain", kubeconfig, everything))
    loaded = build(objects, now=start, simulated=False)
    for line in loaded.warnings:
        warn(line)
    key = name if "/" in name else f"default/{name}"
    shape = _shape(snapshot_of(loaded.scenario), key, start)
    show(shape, output, explain_tables)
    return Exit.FINE if shape["feasible"] else Exit.FALSE


def _shape(snapshot: Snapshot, key: str, start: float) -> dict[str, Any]:
    shape: dict[str, Any] = {"schemaVersion": SCHEMA_VERSION, "task": key}
    if any(work.task == key for node in snapshot.nodes for work in node.running):
        return {
            **shape,
            "phase": Phase.RUNNING.value,
            "feasible": True,
            "position": None,
            "matrix": [],
            "wouldRunIf": [],
        }
    ranked = [task.key for task in sorted(snapshot.tasks, key=lambda task: task.rank)]
    if key not in ranked:
        raise BadInputError(f"gputask explain: {key}: no GpuTask of this name waits or runs here")
    outcome, turn = plan(snapshot, 0.0), Turn(snapshot, 0.0, key)
    waiting = {entry.task.key: entry for entry in outcome.waiting}
    starts = {decision.task.key for decision in outcome.decisions if decision.action is Action.PLACE}
    return {
        **shape,
        "phase": Phase.PENDING.value,
        "feasible": key in starts or waiting[key].feasible,
        "position": ranked.index(key) + 1,
        "matrix": [reason_json(reason) for reason in turn.reasons()],
        "wouldRunIf": [_way_json(way, start) for way in turn.ways()],
    }


def _way_json(way: Way, start: float) -> dict[str, Any]:
    return {
        "node": way.node,
        "variant": way.variant,
        "freed": {key: format_amount(units) for key, units in way.freed.items()},
        "heldBy": list(way.held_by),
        "notBefore": None if way.not_before is None else rfc3339(start + way.not_before),
    }
