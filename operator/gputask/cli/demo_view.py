"""What the demo shows while it runs: nodes with a bar for each pool, the queue by priority, the last decisions.

Everything is drawn from the objects as the API server gives them; nothing here knows the operator.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gputask.local.judge import declared

Object = dict[str, Any]

BAR = 20
"""Width of a pool's bar in characters."""

DECISIONS = 8
"""How many of the last decisions are shown."""


@dataclass
class Seen:
    """What the demo has seen so far, by name. ``decisions`` are lines, the last one last."""

    nodes: dict[str, Object] = field(default_factory=dict)
    gpunodes: dict[str, Object] = field(default_factory=dict)
    tasks: dict[str, Object] = field(default_factory=dict)
    decisions: deque[str] = field(default_factory=lambda: deque(maxlen=DECISIONS))

    def phases(self, priority: int | None = None) -> Counter[str]:
        """How many tasks are in each phase, of one priority or of all."""
        return Counter(
            phase_of(task) for task in self.tasks.values() if priority is None or priority_of(task) == priority
        )

    def task_changed(self, t: float, task: Object) -> None:
        """Keep a new version of a task, and the decision that it shows."""
        name = task["metadata"]["name"]
        before = phase_of(self.tasks[name]) if name in self.tasks else "Pending"
        self.tasks[name] = task
        phase = phase_of(task)
        if phase != before:
            place = task.get("status", {}).get("reservation") or {}
            where = f"{place.get('node', '')} as {place.get('variant', '')}" if phase in {"Reserved", "Bound"} else ""
            self.decisions.append(f"{t:7.1f}  p{priority_of(task):<3} {name:<22} {phase:<10} {where}")


def phase_of(task: Mapping[str, Any]) -> str:
    return str(task.get("status", {}).get("phase") or "Pending")


def priority_of(task: Mapping[str, Any]) -> int:
    return int(task["spec"].get("priority") or 0)


def screen(seen: Seen, *, t: float, speed: float, total: int) -> RenderableType:
    """The whole live display. ``t`` is in seconds of the simulated nodes, ``total`` counts all tasks to come."""
    done = sum(n for phase, n in seen.phases().items() if phase in {"Succeeded", "Failed"})
    title = f"t = {t:.1f} s (time runs {speed:g} times faster)   {len(seen.tasks)} of {total} submitted, {done} ended"
    return Group(
        Text(title, style="bold"),
        Panel(_nodes(seen), title="nodes", title_align="left"),
        Panel(_queue(seen), title="queue", title_align="left"),
        Panel(Text("\n".join(seen.decisions) or "none yet"), title="last decisions", title_align="left"),
    )


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
        placed = phases["Reserved"] + phases["Bound"] + phases["Running"]
        ended = phases["Succeeded"] + phases["Failed"]
        table.add_row(str(priority), str(phases["Pending"]), str(placed), str(ended), _first_waiting(seen, priority))
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
