"""One option against all nodes: where it can fit, in which order the nodes are tried (R3), what is to be freed (R5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gputask.planner.model import HOST_PORT, PODS
from gputask.planner.options import DevicePart, Option
from gputask.planner.placement import PPM
from gputask.planner.table import Bools, Ints, Table, View

_INDEX_BITS, _FULL_BITS, _RANK_BITS = 18, 26, 17


@dataclass(frozen=True, slots=True)
class ProbePart:
    """A device part on the table: which devices may serve it, and nodes where a pool of the node itself may."""

    allowed: Bools
    rows: tuple[tuple[int, int], ...]
    count: int
    node_level: Bools | None

    def covered(self, device: Ints) -> Bools:
        """Which allowed devices cover the part in a ``[pool, device]`` view."""
        mask = self.allowed.copy()
        for row, units in self.rows:
            mask &= device[row] >= units
        return mask


class Probe:
    """An option compiled for one table.

    :param usable: the nodes that the filters admit.
    """

    def __init__(self, table: Table, option: Option, usable: Bools, now: float) -> None:
        self.option = option
        self.usable = usable
        self.lasting = usable & (table.node_life - now >= option.min_time)
        """Usable nodes that live long enough."""
        self._table = table
        self.fixed, named = self._sort_out(table, option)
        self._offered = all(key in table.rows for key, _ in self.fixed)
        self._fixed = tuple((table.rows[key], units) for key, units in self.fixed if key in table.rows)
        self.parts = tuple(_compile(table, part) for part in (*option.parts, *named))
        self._scored = [row for (key, _), (row, _) in zip(self.fixed, self._fixed, strict=False) if not _implicit(key)]
        self._scored_pools = sorted({row for part in self.parts for row, _ in part.rows})
        self._rank = self._static_rank()
        self.open = self.lasting.copy()
        """Nodes still worth trying: what did not fit never fits later in the pass."""

    @staticmethod
    def _sort_out(table: Table, option: Option) -> tuple[list[tuple[str, int]], list[DevicePart]]:
        """Keys of nodes, and keys that name a device by suffix somewhere: those are a part of one device each."""
        fixed: list[tuple[str, int]] = []
        by_device: dict[str, list[tuple[str, int]]] = {}
        for key, units in option.amounts:
            pool, _, suffix = key.rpartition("/")
            if pool in table.pool_rows and table.devices_named([suffix]).any():
                by_device.setdefault(suffix, []).append((pool, units))
            else:
                fixed.append((key, units))
        parts = [
            DevicePart(1, tuple(p for p, _ in pairs), tuple(u for _, u in pairs), (suffix,))
            for suffix, pairs in by_device.items()
        ]
        return fixed, parts

    def _static_rank(self) -> Ints:
        """The order of nodes by what never changes in a pass: harm in devices, harm in pools, node life."""
        table = self._table
        served = np.zeros(len(table.node_of), dtype=np.bool_)
        for part in self.parts:
            for row, _ in part.rows:
                served |= part.allowed & (table.device[View.EMPTY, row] > 0)
        idle_devices = table.devices_offered - table.per_node(served)
        rows = [row for row, _ in self._fixed]
        idle_pools = table.pools_offered - (table.node[View.EMPTY][rows] > 0).sum(axis=0)
        return _dense_rank(idle_devices, idle_pools, table.node_life)

    def fits(self, view: View, among: Bools) -> Bools:
        """Nodes among these where the option can fit in a view: no other can; sum pools and one device surely do."""
        table = self._table
        if not self._offered:
            return np.zeros_like(among)
        mask = among.copy()
        for row, units in self._fixed:
            mask &= table.node[view, row] >= units
        for part in self.parts:
            enough = table.per_node(part.covered(table.device[view])) >= part.count
            mask &= enough if part.node_level is None else enough | part.node_level
        return mask

    def without_room(self) -> Bools:
        """Nodes where holds leave nothing at all of something that the option asks."""
        table = self._table
        mask = np.zeros(len(table.states), dtype=np.bool_)
        for row, _ in self._fixed:
            mask |= table.node[View.ROOM, row] == 0
        for part in self.parts:
            some = part.covered(table.device[View.NOW])
            for row, _ in part.rows:
                some &= table.device[View.ROOM, row] > 0
            mask |= table.per_node(some) < part.count
        return mask

    def candidates(self) -> Iterator[int]:
        """The nodes to try now, best first (R3): without holds, least harm, shortest life, fullest, name."""
        self._table.sync()
        nodes = np.flatnonzero(self.fits(View.ROOM, self.open))
        if not len(nodes):
            return
        key = (self._table.held[nodes].astype(np.int64) << _RANK_BITS) + self._rank[nodes]
        key = (key << _FULL_BITS) + self._emptiness(nodes)
        key = (key << _INDEX_BITS) + nodes
        mask = (1 << _INDEX_BITS) - 1
        yield int(key.min()) & mask  # a run is often one task: then sorting all nodes is work for nothing
        key.sort()
        yield from (key[1:] & mask).tolist()

    def _emptiness(self, nodes: Ints) -> Ints:
        """The sum over the asked resources of free / capacity, in millionths: less is fuller."""
        table = self._table
        total = np.zeros(len(nodes), dtype=np.int64)
        for row in self._scored:
            total += _millionths(table.node[View.NOW, row, nodes], table.node[View.EMPTY, row, nodes])
        for row in self._scored_pools:
            total += _millionths(table.pool_total[row, nodes], table.pool_capacity[row, nodes])
        return np.minimum(total, (1 << _FULL_BITS) - 1)

    def least_to_free(self, view: View) -> Ints:
        """For each node a lower bound of what is still to be freed there, in millionths (R5)."""
        table = self._table
        total = np.zeros(len(table.states), dtype=np.int64)
        for row, units in self._fixed:
            total += _millionths(units - table.node[view, row], units)
        for part in self.parts:
            if part.node_level is not None:
                continue
            device = np.zeros(len(table.node_of), dtype=np.int64)
            for row, units in part.rows:
                device += _millionths(units - table.device[view, row], units)
            least = np.full(len(table.states), np.iinfo(np.int64).max >> 16)
            np.minimum.at(least, table.node_of[part.allowed], device[part.allowed])
            total += least * part.count
        return total


def _compile(table: Table, part: DevicePart) -> ProbePart:
    rows = tuple((table.pool_rows[pool], units) for pool, units in zip(part.pools, part.units, strict=True))
    return ProbePart(table.devices_named(part.named), rows, part.count, table.at_node_level(part))


def _millionths(part: Ints, whole: Ints | int) -> Ints:
    """As :func:`gputask.planner.placement.ratio`, for arrays."""
    return (np.maximum(part, 0) / np.maximum(whole, 1) * PPM).astype(np.int64)


def _dense_rank(*keys: npt.NDArray[Any]) -> Ints:
    """The rank of each node by these keys, the first one first; equal nodes share a rank."""
    order = np.lexsort(keys[::-1])
    steps = np.zeros(len(order), dtype=np.int64)
    for key in keys:
        steps[1:] |= key[order][1:] != key[order][:-1]
    rank = np.empty_like(steps)
    rank[order] = np.cumsum(steps)
    return rank


def _implicit(key: str) -> bool:
    return key == PODS or key.startswith(HOST_PORT)
