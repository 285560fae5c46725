"""One line for a person about a class that waits: its closest miss, or what no node has and the largest value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gputask.planner.filters import refusal
from gputask.planner.model import NodeConstraints, Reason
from gputask.planner.probe import Probe
from gputask.planner.reasons import cells
from gputask.planner.table import Bools, Ints, Table, View
from gputask.resources.amounts import format_amount

_MOST = 3
"""Options, or resources of one node, that a line names."""


def closest_miss(probes: Sequence[Probe], table: Table) -> str:
    """What keeps a feasible class from starting where least is to be freed."""
    best: tuple[int, int, int] | None = None
    for position, probe in enumerate(probes):
        nodes = np.flatnonzero(probe.fits(View.EMPTY, probe.lasting))
        if len(nodes):
            least = probe.least_to_free(View.NOW)[nodes]
            n = int(np.argmin(least))
            best = min(filter(None, (best, (int(least[n]), position, int(nodes[n])))))
    if best is None:
        return "no node is large enough"
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
        return "there is no node"
    if not usable.any():
        state = table.states[0]
        return f"no usable node among {len(table.states)}; {state.node.name}: {refusal(state.node, constraints)}"
    lines = ["; ".join(_lacks(probe, table)) or _together(probe) for probe in probes[:_MOST]]
    more = f"; or {len(probes) - _MOST} more variants" if len(probes) > _MOST else ""
    return "; or ".join(dict.fromkeys(lines)) + more


def _lacks(probe: Probe, table: Table) -> Iterator[str]:
    if not probe.lasting.any():
        yield f"asks a node that lives {probe.option.min_time:g} s, and none does"
        return
    for key, units in probe.fixed:
        if key in table.rows:
            yield from _larger_than_any(key, units, table.node[View.EMPTY, table.rows[key]], probe.lasting, table)
        else:
            yield f"asks {format_amount(units)} {key}, and no node has it"
    for part in probe.parts:
        lasting = part.allowed & probe.lasting[table.node_of]
        if not lasting.any():
            yield f"asks a device with {' and '.join(table.pools[row] for row, _ in part.rows)}, and no node has it"
            continue
        covered = table.per_node(lasting & part.covered(table.device[View.EMPTY]))
        if covered.any():
            if covered.max() < part.count:
                node = table.states[int(np.argmax(covered))].node.name
                yield f"asks {part.count} such devices; the most on one node is {covered.max()} on {node}"
            continue
        for row, units in part.rows:
            values = np.where(lasting, table.device[View.EMPTY, row], -1)
            d = int(np.argmax(values))
            if values[d] < units:
                asked = f"asks {format_amount(units)} {table.pools[row]} on one device"
                node = table.states[int(table.node_of[d])].node.name
                yield f"{asked}; the largest is {format_amount(int(values[d]))} on {node}"


def _larger_than_any(key: str, units: int, row: Ints, lasting: Bools, table: Table) -> Iterator[str]:
    values = np.where(lasting, row, -1)
    n = int(np.argmax(values))
    if values[n] < units:
        largest = format_amount(int(values[n]))
        yield f"asks {format_amount(units)} {key}; the largest is {largest} on {table.states[n].node.name}"


def _together(probe: Probe) -> str:
    pools = [key for key, _ in probe.option.amounts] + [pool for part in probe.option.parts for pool in part.pools]
    return f"no node has all of {', '.join(pools)} together"
