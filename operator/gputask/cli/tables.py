"""The same outcomes as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

_BAR = 20


def plan_tables(console: Console, outcome: Mapping[str, Any], messages: Mapping[str, str]) -> None:
    """What a pass decides, who waits and why (``messages``: one line for each task), nodes with something to say."""
    decisions = _table("Decisions", "action", "task", "node", "variant", "devices", "takes", "starts by", "evicts")
    for decision in outcome["decisions"]:
        takes = " ".join(f"{key}={amount}" for key, amount in decision["amounts"].items())
        decisions.add_row(
            decision["action"],
            decision["task"],
            decision["node"],
            decision["variant"],
            " ".join(decision["devices"]),
            takes,
            decision["startsBy"] or "",
            " ".join(decision["victims"]),
        )
    _print(console, decisions)
    waiting = _table("Waiting", "task", "feasible", "why")
    for entry in outcome["waiting"]:
        waiting.add_row(entry["task"], "yes" if entry["feasible"] else "no", messages.get(entry["task"], ""))
    _print(console, waiting)
    nodes = _table("Nodes", "node", "condition", "status", "reason", "message")
    for node in outcome["nodes"]:
        for condition in node["conditions"]:
            values = (condition[key] for key in ("type", "status", "reason", "message"))
            nodes.add_row(node["node"], *map(str, values))
    _print(console, nodes)
    if not outcome["decisions"] and not outcome["waiting"]:
        console.print("No task waits.")


def queue_table(console: Console, shape: Mapping[str, Any]) -> None:
    """Who waits, in the order in which they are looked at."""
    queue = _table("Waiting", "position", "task", "priority", "since", "reason", "message")
    for row in shape["queue"]:
        place = "-" if row["position"] is None else str(row["position"])
        queue.add_row(place, row["task"], str(row["priority"]), row["since"], row["reason"] or "", row["message"])
    _print(console, queue)
    if not shape["queue"]:
        console.print("No task waits.")


def lease_table(console: Console, shape: Mapping[str, Any]) -> None:
    """Leases: who waits, who holds what, what has expired."""
    leases = _table("Leases", "task", "state", "node", "variant", "devices", "ttl s", "renewed", "message")
    for row in shape["leases"]:
        where = (row[key] or "" for key in ("task", "state", "node", "variant"))
        devices = " ".join(row["devices"])
        leases.add_row(*where, devices, f"{row['ttlSeconds']}", row["renewTime"] or "", row["message"])
    _print(console, leases)
    if not shape["leases"]:
        console.print("There is no lease.")


def explain_tables(console: Console, shape: Mapping[str, Any]) -> None:
    """Where a task stands, why it does not start on each node, and what would make it start."""
    place = "" if shape["position"] is None else f", position {shape['position']}"
    feasible = "" if shape["feasible"] else ": no node could ever run it"
    console.print(f"{shape['task']}: {shape['phase']}{place}{feasible}")
    matrix = _table("Why not", "node", "variant", "cause", "message", "held by")
    for cell in shape["matrix"]:
        named = (cell[key] or "" for key in ("node", "variant", "cause", "message"))
        matrix.add_row(*map(str, named), " ".join(cell["heldBy"]))
    _print(console, matrix)
    ways = _table("Would run if", "node", "variant", "freed", "held by", "not before")
    for way in shape["wouldRunIf"]:
        freed = " ".join(f"{key}={amount}" for key, amount in way["freed"].items())
        ways.add_row(way["node"], way["variant"], freed or "now", " ".join(way["heldBy"]), way["notBefore"] or "")
    _print(console, ways)


def summary_tables(console: Console, summary: Mapping[str, Any]) -> None:
    """Tasks by priority, use of each pool, violations."""
    tasks = summary["tasks"]
    by_priority = _table(
        f"Tasks after {summary['t']} s",
        "priority",
        "submitted",
        "placed",
        "finished",
        *_waits("mean", "p50", "p99", "max"),
    )
    for priority, of in sorted(summary["byPriority"].items(), key=lambda entry: -int(entry[0])):
        waits = of["wait"]
        by_priority.add_row(
            priority,
            *(str(of[key]) for key in ("submitted", "placed", "finished")),
            *("-" if waits[key] is None else f"{waits[key]:g}" for key in ("mean", "p50", "p99", "max")),
        )
    by_priority.add_section()
    by_priority.add_row("all", *(str(tasks[key]) for key in ("submitted", "placed", "finished")))
    console.print(by_priority)
    use = _table("Use", "pool", "mean", "")
    for pool, share in summary["use"].items():
        use.add_row(pool, f"{share:.0%}", "█" * round(min(share, 1) * _BAR))
    _print(console, use)
    console.print(f"{tasks['waiting']} tasks wait. {len(summary['violations'])} violations.")
    broken = _table("Violations", "t", "rule", "task", "node", "message")
    for violation in summary["violations"]:
        broken.add_row(*(str(violation[key] or "") for key in ("t", "rule", "task", "node", "message")))
    _print(console, broken)


def _waits(*names: str) -> Iterable[str]:
    return (f"wait {name} s" for name in names)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _print(console: Console, table: Table) -> None:
    if table.row_count:
        console.print(table)
        console.print()
