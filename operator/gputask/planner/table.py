"""All nodes at once: numpy arrays that say where an option can fit at all, and in which order to try (R3).

The arrays are an index over the exact :class:`NodeState` objects and never admit anybody: a node that they
rule out is out, a node that they pass is tried exactly. Node-level resources are ``[key, node]``, pools of
devices ``[pool, device]`` with the healthy devices of all nodes in one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from gputask.planner.model import HOST_PORT, PODS
from gputask.planner.nodes import NodeState
from gputask.planner.options import DevicePart, Option
from gputask.planner.stock import Stock

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class View(IntEnum):
    """Which stock: see :class:`NodeState`. ``ROOM`` is *now* within what the holds leave."""

    EMPTY = 0
    NOW = 1
    ROOM = 2
    UNHELD = 3
    SPARE = 4


class Table:
    """The index over the nodes of a pass."""

    def __init__(self, states: Sequence[NodeState], options: Iterable[Option]) -> None:
        self.states = states
        self.node_names = [state.node.name for state in states]
        self._dirty: set[int] = set()
        self._names: dict[str, list[int]] = {}
        self.node_of = np.array([s.index for s in states for _ in s.devices], dtype=np.int64)
        first = 0
        self._devices: list[slice] = []
        for state in states:
            self._devices.append(slice(first, first + len(state.devices)))
            first += len(state.devices)
        self._device_ids = [device.id for state in states for device in state.devices]
        self._name_devices()
        keys, pools = self._tracked(options)
        self.rows = {key: row for row, key in enumerate(keys)}
        self.pools = pools
        self.pool_rows = {pool: row for row, pool in enumerate(pools)}
        self.node = np.zeros((len(View), len(keys), len(states)), dtype=np.int64)
        self.device = np.zeros((len(View), len(pools), len(self._device_ids)), dtype=np.int64)
        self.pool_total = np.zeros((len(pools), len(states)), dtype=np.int64)
        for state in states:
            self._write(state)
        self.pool_capacity = np.array(
            [np.bincount(self.node_of, row, len(states)) for row in self.device[View.EMPTY]], dtype=np.int64
        ).reshape(len(pools), len(states))
        self.devices_offered, self.pools_offered = self._offers()
        self.with_unknown = [state for state in states if state.has_unknown()]
        self.held = np.zeros(len(states), dtype=np.bool_)
        """Nodes with holds."""
        self.node_life = np.array(
            [np.inf if s.node.lives_until is None else s.node.lives_until for s in states], dtype=np.float64
        )

    # --- construction ---------------------------------------------------------------------------------

    def _name_devices(self) -> None:
        for state, devices in zip(self.states, self._devices, strict=True):
            for offset, device in enumerate(state.devices):
                for name in {device.id, "" if device.index is None else str(device.index)} - {""}:
                    found = state.node.resources.device(name)
                    if found is not None and found.id == device.id:
                        self._names.setdefault(name, []).append(devices.start + offset)

    def _tracked(self, options: Iterable[Option]) -> tuple[list[str], list[str]]:
        """The keys that requests name, apart into those of nodes and (without suffix) those of devices."""
        written: set[str] = set()
        pools: set[str] = set()
        for option in options:
            written.update(key for key, _ in option.amounts)
            for part in option.parts:
                pools.update(part.pools)
                written.update(f"{pool}/{name}" for name in part.named or () for pool in part.pools)
        pools.update(key.rpartition("/")[0] for key in written if key.rpartition("/")[2] in self._names)
        offered = {key for state in self.states for key in state.node.resources.pools}
        implicit = {key for key in written if key == PODS or key.startswith(HOST_PORT)}
        return sorted(written & offered | implicit), sorted(pools)

    def _offers(self) -> tuple[Ints, Ints]:
        """For each node, how many devices and how many node-level pools have anything to offer (harm, R3)."""
        devices, pools = np.zeros((2, len(self.states)), dtype=np.int64)
        for state in self.states:
            for device in state.devices:
                devices[state.index] += any(pool.capacity for pool in device.pools.values())
            pools[state.index] = sum(1 for pool in state.node.resources.pools.values() if pool.capacity)
        return devices, pools

    # --- upkeep ---------------------------------------------------------------------------------------

    def touch(self, state: NodeState) -> None:
        """A node has changed; its columns are written again before the next question."""
        self._dirty.add(state.index)

    def sync(self) -> None:
        """Write the columns of all changed nodes."""
        for index in self._dirty:
            self._write(self.states[index])
            self.held[index] = bool(self.states[index].holds)
        self._dirty.clear()

    def _write(self, state: NodeState) -> None:
        n, devices = state.index, self._devices[state.index]
        shared: dict[int, View] = {}
        for view, stock in self._stocks(state):
            source = shared.setdefault(id(stock), view)
            if source is not view:
                self.node[view, :, n] = self.node[source, :, n]
                self.device[view, :, devices] = self.device[source, :, devices]
                continue
            self.node[view, :, n] = [stock.available(key) for key in self.rows]
            for pool, row in self.pool_rows.items():
                self.device[view, row, devices] = [stock.available(f"{pool}/{d.id}") for d in state.devices]
        self._limit(state, n, devices)
        self.pool_total[:, n] = np.maximum(self.device[View.NOW, :, devices], 0).sum(axis=1)

    def _stocks(self, state: NodeState) -> list[tuple[View, Stock]]:
        return [
            (View.EMPTY, state.empty),
            (View.NOW, state.now),
            (View.ROOM, state.now),
            (View.UNHELD, state.unheld),
            (View.SPARE, state.spare),
        ]

    def _limit(self, state: NodeState, n: int, devices: slice) -> None:
        room = state.room
        for key in (*room.amounts, *room.labels):
            if key in self.rows:
                row = self.rows[key]
                self.node[View.ROOM, row, n] = min(self.node[View.ROOM, row, n], room.limit(key))
            device = state.device_of.get(key)
            pool = key.rpartition("/")[0]
            if device is not None and pool in self.pool_rows:
                row, column = self.pool_rows[pool], devices.start + [d.id for d in state.devices].index(device)
                self.device[View.ROOM, row, column] = min(self.device[View.ROOM, row, column], room.limit(key))

    # --- questions ------------------------------------------------------------------------------------

    def devices_named(self, names: Iterable[str] | None) -> Bools:
        """Which devices a part may take: all, or those that one of these names means on their node."""
        if names is None:
            return np.ones(len(self._device_ids), dtype=np.bool_)
        mask = np.zeros(len(self._device_ids), dtype=np.bool_)
        for name in names:
            mask[self._names.get(name, [])] = True
        return mask

    def per_node(self, mask: Bools) -> Ints:
        """How many of the masked devices each node has."""
        return np.bincount(self.node_of[mask], minlength=len(self.states)).astype(np.int64, copy=False)

    def at_node_level(self, part: DevicePart) -> Bools | None:
        """Nodes that offer all pools of a named part under these very names without such a device; None if none."""
        keys = {f"{pool}/{name}" for name in part.named or () for pool in part.pools}
        if not keys & self.rows.keys():
            return None
        return np.array([not keys.isdisjoint(s.node.resources.pools) for s in self.states], dtype=np.bool_)
