"""One line for a person about a class that waits: its closest miss, or what no node has and the largest value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gputask.planner.filters import refusal
from gputask.planner.model import NodeConstraints, Reason
from gputask.planner.probe import Probe, ProbePart
from gputask.planner.reasons import cells
from gputask.planner.table import Bools, Ints, Table, View
from gputask.resources.amounts import format_amount

NO_NODE = "there is no node"

_MOST = 3
"""Options, or resources of one node, that a line names."""


def closest_miss(probes: Sequence[Probe], table: Table, excluded: Bools) -> str:
    """What keeps a feasible class from starting where least is to be freed."""
    best: tuple[int, int, int] | None = None
    for position, probe in enumerate(probes):
        nodes = np.flatnonzero(probe.fits(View.EMPTY, probe.lasting & ~excluded))
        if len(nodes):
            least = probe.least_to_free(View.NOW)[nodes]
            n = int(np.argmin(least))
            best = min(filter(None, (best, (int(least[n]), position, int(nodes[n])))))
    if best is None:
        return "pauses on every node that is large enough, after refusals there"
    found = cells(table.states[best[2]], probes[best[1]].option)
    return "; ".join(cell.message for cell in _nearest(found)) or f"{table.states[best[2]].node.name}: fits soon"


def _nearest(found: list[Reason]) -> list[Reason]:
    """The cells of the node itself, and of the device that is closest to fitting."""

    def missing(cell: Reason) -> float:
        return (cell.short or 0) / (cell.asked or 1)

    by_device: dict[str, list[Reason]] = {}
    for cell in found:
        by_device.setdefault(cell.device or "", []).append(cell)
    node = by_device.pop("", [])
    device = min(by_device.values(), key=lambda of_one: sum(map(missing, of_one)), default=[])
    return sorted([*node, *device], key=missing, reverse=True)[:_MOST]


def infeasible(probes: Sequence[Probe], table: Table, constraints: NodeConstraints) -> str:
    """Why no present node could ever run the class, even empty of our work."""
    usable = probes[0].usable
    if not table.states:
        return NO_NODE
    if not usable.any():
        state = table.states[0]
        return f"no usable node among {len(table.states)}; {state.node.name}: {refusal(state.node, constraints)}"
    lines = ["; ".join(_lacks(probe, table)) or _together(probe) for probe in probes[:_MOST]]
    more = f"; or {len(probes) - _MOST} more variants" if len(probes) > _MOST else ""
    return "; or ".join(dict.fromkeys(lines)) + more


def _lacks(probe: Probe, table: Table) -> Iterator[str]:
    """What no node that lives long enough has, amount by amount."""
    if not probe.lasting.any():
        yield f"asks a node that lives {probe.option.min_time:g} s, and none does"
        return
    for key, units in probe.fixed:
        values = (
            table.node[View.EMPTY, table.rows[key]] if key in table.rows else np.zeros_like(probe.lasting, np.int64)
        )
        yield from _larger_than_any(key, units, np.where(probe.lasting, values, 0), table.node_names)
    for part in probe.parts:
        yield from _part_lacks(part, probe.lasting, table)


def _part_lacks(part: ProbePart, lasting: Bools, table: Table) -> Iterator[str]:
    allowed = part.allowed & lasting[table.node_of]
    covered = table.per_node(allowed & part.covered(table.device[View.EMPTY]))
    if not covered.any():
        names = [table.node_names[n] for n in table.node_of]
        for row, units in part.rows:
            values = np.where(allowed, table.device[View.EMPTY, row], 0)
            yield from _larger_than_any(f"{table.pools[row]} on one device", units, values, names)
    elif covered.max() < part.count:
        most = int(np.argmax(covered))
        yield f"asks {part.count} such devices; the most on one node is {covered[most]} on {table.node_names[most]}"


def _larger_than_any(what: str, units: int, values: Ints, names: Sequence[str]) -> Iterator[str]:
    largest = int(values.max(initial=0))
    if largest >= units:
        return
    if largest == 0:
        yield f"asks {format_amount(units)} {what}, and no node has any"
    else:
        node = names[int(np.argmax(values))]
        yield f"asks {format_amount(units)} {what}; the largest is {format_amount(largest)} on {node}"


def _together(probe: Probe) -> str:
    pools = [key for key, _ in probe.option.amounts] + [pool for part in probe.option.parts for pool in part.pools]
    return f"no node has all of {', '.join(pools)} together"
