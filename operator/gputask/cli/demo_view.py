"""What the demo shows while it runs: nodes with a bar for each pool, the queue by priority, the last decisions.

Everything is drawn from the objects as the API server gives them; nothing here knows the operator.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gputask.local.clock import Clock
from gputask.local.judge import Finding, declared

Object = dict[str, Any]

BAR = 20
"""Width of a pool's bar in characters."""

PLACED = ("Reserved", "Bound", "Running")
"""Phases of a task that has a place."""

DECISIONS = 8
"""How many of the last decisions are shown."""


class Seen:
    """What the demo has seen so far, by name."""

    def __init__(self, *, clock: Clock, total: int) -> None:
        self.clock = clock
        self.total = total
        """Tasks that will have come in the end."""
        self.nodes: dict[str, Object] = {}
        self.gpunodes: dict[str, Object] = {}
        self.tasks: dict[str, Object] = {}
        self.waited: dict[str, float] = {}
        """How long each placed task had waited, in seconds of the simulated nodes."""
        self.decisions: deque[str] = deque(maxlen=DECISIONS)
        """Lines, the last decision last."""
        self.all_ended = asyncio.Event()
        self._came: dict[str, float] = {}
        self._start = clock.now()

    @property
    def t(self) -> float:
        """Seconds since the start, of the simulated nodes."""
        return self.clock.now() - self._start

    def phases(self, priority: int | None = None) -> Counter[str]:
        """How many tasks are in each phase, of one priority or of all."""
        return Counter(
            phase_of(task) for task in self.tasks.values() if priority is None or priority_of(task) == priority
        )

    def ended(self, priority: int | None = None) -> int:
        """How many tasks have ended."""
        phases = self.phases(priority)
        return phases["Succeeded"] + phases["Failed"]

    def node_changed(self, node: Object) -> None:
        self.nodes[node["metadata"]["name"]] = node

    def gpunode_changed(self, gpunode: Object) -> None:
        self.gpunodes[gpunode["metadata"]["name"]] = gpunode

    def task_changed(self, task: Object) -> None:
        """Keep a new version of a task, and the decision that it shows."""
        name = task["metadata"]["name"]
        before = phase_of(self.tasks[name]) if name in self.tasks else "Pending"
        self.tasks[name] = task
        self._came.setdefault(name, self.t)
        phase = phase_of(task)
        if phase == before:
            return
        if phase != "Pending":
            self.waited.setdefault(name, self.t - self._came[name])
        place = task.get("status", {}).get("reservation") or {}
        where = f"{place.get('node', '')} as {place.get('variant', '')}" if phase in PLACED else ""
        self.decisions.append(f"{self.t:7.1f}  p{priority_of(task):<3} {name:<22} {phase:<10} {where}")
        if self.ended() == self.total:
            self.all_ended.set()


def phase_of(task: Mapping[str, Any]) -> str:
    return str(task.get("status", {}).get("phase") or "Pending")


def priority_of(task: Mapping[str, Any]) -> int:
    return int(task["spec"].get("priority") or 0)


def screen(seen: Seen) -> RenderableType:
    """The whole live display."""
    title = (
        f"t = {seen.t:.1f} s (time runs {seen.clock.speed:g} times faster)   "
        f"{len(seen.tasks)} of {seen.total} submitted, {seen.ended()} ended"
    )
    return Group(
        Text(title, style="bold"),
        Panel(_nodes(seen), title="nodes", title_align="left"),
        Panel(_queue(seen), title="queue", title_align="left"),
        Panel(Text("\n".join(seen.decisions) or "none yet"), title="last decisions", title_align="left"),
    )


def summary(seen: Seen, findings: Sequence[Finding]) -> RenderableType:
    """What came of it: by priority, then the verdict over every version of every object."""
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for column in ("priority", "submitted", "placed", "ended", "mean wait", "longest wait"):
        table.add_column(column, justify="right")
    for priority in sorted({priority_of(task) for task in seen.tasks.values()}, reverse=True):
        tasks = [name for name, task in seen.tasks.items() if priority_of(task) == priority]
        waits = [seen.waited[name] for name in tasks if name in seen.waited]
        mean, longest = (f"{sum(waits) / len(waits):.1f} s", f"{max(waits):.1f} s") if waits else ("", "")
        table.add_row(*map(str, (priority, len(tasks), len(waits), seen.ended(priority), mean, longest)))
    lines = [Text(f"  {finding}", style="red") for finding in findings]
    style = "bold green" if not findings and seen.ended() == seen.total else "bold red"
    verdict = Text(f"{seen.ended()} of {seen.total} tasks ended, {len(findings)} violations", style=style)
    return Group(table, Text(""), *lines, verdict)


def _nodes(seen: Seen) -> Table:
    table = Table.grid(padding=(0, 2))
    for name in sorted(seen.nodes):
        pools = {k: capacity for k, (capacity, _) in declared(seen.nodes[name]).items() if k != "pods" and capacity}
        entries = (seen.gpunodes.get(name, {}).get("status", {}).get("reservations") or {}).values()
        for number, (key, capacity) in enumerate(sorted(pools.items())):
            used = _used(entries, key)
            table.add_row(name if number == 0 else "", key, _bar(used / capacity), f"{used:g} of {capacity:g}")
    return table


def _used(entries: Iterable[Mapping[str, Any]], key: str) -> Decimal:
    return sum((Decimal(e.get("amounts", {}).get(key, "0")) for e in entries), Decimal(0))


def _bar(share: Decimal) -> Text:
    full = min(BAR, round(share * BAR))
    return Text("█" * full, style="green") + Text("░" * (BAR - full), style="dim")


def _queue(seen: Seen) -> Table:
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for column in ("priority", "waiting", "placed", "ended", "the first that waits, and why"):
        table.add_column(column, justify="left" if column.startswith("the") else "right")
    for priority in sorted({priority_of(task) for task in seen.tasks.values()}, reverse=True):
        phases = seen.phases(priority)
        placed = sum(phases[phase] for phase in PLACED)
        counts = (priority, phases["Pending"], placed, seen.ended(priority))
        table.add_row(*map(str, counts), _first_waiting(seen, priority))
    return table


def _first_waiting(seen: Seen, priority: int) -> str:
    waiting = [t for t in seen.tasks.values() if priority_of(t) == priority and phase_of(t) == "Pending"]
    if not waiting:
        return ""
    first = min(waiting, key=lambda t: (t["metadata"]["creationTimestamp"], t["metadata"]["uid"]))
    why: Mapping[str, Any] = next(
        (c for c in first.get("status", {}).get("conditions", ()) if c["type"] == "Reserved"), {}
    )
    return f"{first['metadata']['name']}: {why.get('reason', '')} {why.get('message', '')}"[:100]
