"""``gputask simulate``: the tasks of files in simulated time, judged at every event."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gputask.cli.errors import BadInputError, Exit
from gputask.cli.files import load, parse_seconds
from gputask.cli.output import SCHEMA_VERSION, Format, console, document, warn
from gputask.cli.plan import moment
from gputask.cli.scenarios import build
from gputask.cli.tables import summary_tables
from gputask.simulate.check import Checker
from gputask.simulate.engine import Simulation
from gputask.simulate.history import Event, event_json
from gputask.simulate.join_order import reorder
from gputask.simulate.scenario import Millis, Scenario
from gputask.simulate.summary import Summary


def simulate_files(
    files: Sequence[str],
    *,
    until: str | None,
    seed: int,
    now: str | None,
    node_order: str,
    output: Format,
) -> Exit:
    """Simulate files and print each event and the summary, or tables.

    :raises BadInputError: the files or an option cannot be understood.
    """
    stop = None if until is None else _seconds(until)
    loaded = build(load(files), now=moment(now), simulated=True)
    try:
        nodes = reorder(loaded.scenario.nodes, node_order, seed=seed)
    except ValueError as error:
        raise BadInputError(f"--node-order: {error}") from None
    for line in loaded.warnings:
        warn(line)
    summary = _run(replace(loaded.scenario, nodes=nodes), stop, output)
    if output is Format.TABLE:
        summary_tables(console(), summary)
    else:
        sys.stdout.write(document(summary, output))
    return Exit.FALSE if summary["violations"] else Exit.FINE


def _run(scenario: Scenario, until: Millis | None, output: Format) -> dict[str, Any]:
    checker, summary = Checker(scenario), Summary(scenario)
    for record in Simulation(scenario).run(until):
        checker.see(record)
        summary.see(record)
        if isinstance(record, Event) and output is not Format.TABLE:
            sys.stdout.write(document(event_json(record), output))
    checker.close(summary.t)
    return {"schemaVersion": SCHEMA_VERSION, **summary.result(summary.t, checker.violations)}


def _seconds(text: str) -> Millis:
    millis = parse_seconds(text)
    if millis is None:
        raise BadInputError(f"--until: {text[:80]!r} is not a number of seconds; write 0 or more, like 12.5")
    return millis
