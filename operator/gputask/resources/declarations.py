"""What a node offers, from its annotations and its allocatable (design, section 3).

Nothing here raises: whatever cannot be understood is a :class:`~gputask.resources.pools.Problem` with the remedy, and
all else of the node stays usable. The outcome does not depend on the order in which names are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sized
from typing import Any

from gputask.resources.amounts import AmountError, parse_quantity
from gputask.resources.descriptors import parse_pool
from gputask.resources.names import check_device_id, check_name, is_kubernetes
from gputask.resources.pools import Device, Fault, Health, NodeResources, Pool, Problem, SumPool
from gputask.resources.text import ECHO, read_text

RESOURCES = "gputask.dev/resources"
DEVICES = "gputask.dev/devices"
ALLOCATABLE = "status.allocatable"

MAX_ENTRIES = 512
"""Names, or devices, of one annotation."""

_PLUGIN_PREFIXES = ("nvidia.com/gpu", "nvidia.com/mig-", "amd.com/gpu", "gpu.intel.com/")
_DEVICE_KEYS = {"id", "index", "class", "health", "resources"}


def understand(annotations: Mapping[str, str], allocatable: Mapping[str, Any]) -> NodeResources:
    """All pools and devices of a node, and one problem for each thing that cannot be understood."""
    reader = _Reader()
    reader.read_allocatable(allocatable)
    if (text := annotations.get(DEVICES)) is not None:
        reader.read_devices(text)
    if (text := annotations.get(RESOURCES)) is not None:
        reader.read_resources(text)
    return reader.outcome()


class _Reader:
    def __init__(self) -> None:
        self.pools: dict[str, Pool] = {}
        self.taken: frozenset[str] = frozenset()
        """Names in allocatable, readable or not."""
        self.devices: dict[str, Device] = {}
        self.device_pools: dict[str, dict[str, Pool]] = {}
        self.problems: list[Problem] = []
        self.withheld = False
        """Two devices of one id: whatever belongs to a device is not offered."""
        self.unclear = False
        """Some declared device is not understood, so an index that is not known may be that one's: making another
        device of it would offer one card twice."""

    def _blame(self, annotation: str, name: str, message: str, fault: Fault = Fault.BAD_VALUE) -> None:
        self.problems.append(Problem(annotation, name[:ECHO], message, fault))

    def outcome(self) -> NodeResources:
        devices = tuple(
            Device(d.id, self.device_pools[d.id], d.index, d.device_class, d.health)
            for d in sorted(self.devices.values(), key=lambda d: d.id)
        )
        plugin = next(
            (n for n in sorted(self.pools) if n.startswith(_PLUGIN_PREFIXES) and self.pools[n].capacity), None
        )
        if devices and plugin is not None:
            message = f"a device plugin offers {plugin} here too; keep one of the two, until then no device is offered"
            self._blame(DEVICES, "", message, Fault.DEVICE_PLUGIN)
            devices = ()
        return NodeResources(self.pools, () if self.withheld else devices, tuple(self.problems))

    # --- allocatable ----------------------------------------------------------------------------------

    def read_allocatable(self, allocatable: Mapping[str, Any]) -> None:
        self.taken = frozenset(allocatable)
        for name, value in sorted(allocatable.items()):
            try:
                self.pools[name] = SumPool(parse_quantity(value, name, rounding="down"))
            except AmountError as error:
                self._blame(ALLOCATABLE, name, str(error))

    # --- gputask.dev/devices --------------------------------------------------------------------------

    def read_devices(self, text: str) -> None:
        try:
            entries = read_text(text)
            if entries is None:  # an empty text
                return
            if not isinstance(entries, list):
                raise ValueError('it is no list; write [{"id": "GPU-1", "resources": {...}}]')
            _few(entries)
        except ValueError as error:
            self._blame(DEVICES, "", str(error), Fault.MALFORMED)
            self.unclear = True
            return
        for position, entry in enumerate(entries):
            try:
                self._read_device(entry)
            except ValueError as error:
                self._blame(DEVICES, f"[{position}]", str(error))
                self.unclear = True
        ids = Counter(entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str))
        for device_id, count in sorted(ids.items()):
            if count > 1:
                message = f"{count} devices have this id; give each its own, until then no device is offered"
                self._blame(DEVICES, device_id, message, Fault.DUPLICATE_DEVICE)
                self.withheld = True

    def _read_device(self, entry: Any) -> None:
        if not isinstance(entry, dict):
            raise ValueError("it is no map; write {id: GPU-1, resources: {...}}")
        if unknown := sorted(entry.keys() - _DEVICE_KEYS):
            raise ValueError(f"{unknown[0][:ECHO]!r} is unknown; a device has {', '.join(sorted(_DEVICE_KEYS))}")
        device_id = entry.get("id")
        if not isinstance(device_id, str) or not device_id:
            raise ValueError("id is missing; write the device's UUID as text")
        check_device_id(device_id)
        resources = entry.get("resources")
        if not isinstance(resources, dict):
            raise ValueError("resources is missing; write a map like {gpuSlot: 1, gpuMemoryMB: 24000}")
        device = Device(device_id, {}, _index(entry), _text(entry, "class"), _health(entry))
        if any(d.index == device.index and d.device_class == device.device_class for d in self._indexed(device)):
            raise ValueError(f"index {device.index} is taken by another device of the class; give each its own")
        self.devices[device_id] = device
        pools = self.device_pools.setdefault(device_id, {})
        for name, value in resources.items():
            if "/" in name:
                self._blame(DEVICES, f"{device_id}.{name}", "a pool of a device has no '/' in its name")
            elif (pool := self._pool(DEVICES, f"{device_id}.{name}", name, value)) is not None:
                pools[name] = pool

    def _indexed(self, device: Device) -> list[Device]:
        return [d for d in self.devices.values() if device.index is not None and d.id != device.id]

    # --- gputask.dev/resources ------------------------------------------------------------------------

    def read_resources(self, text: str) -> None:
        try:
            entries = read_text(text)
            if entries is None:  # an empty text
                return
            if not isinstance(entries, dict):
                raise ValueError("it is no map; write {name: amount, ...}")
            _few(entries)
        except ValueError as error:
            self._blame(RESOURCES, "", str(error), Fault.MALFORMED)
            return
        declared = NodeResources(devices=tuple(self.devices.values()))
        # Names of devices by id first: of `slot/GPU-a` and `slot/0`, which mean the same, the id counts.
        for name in sorted(entries, key=lambda n: (n.rpartition("/")[2] not in self.devices, n)):
            self._read_resource(name, entries[name], declared)

    def _read_resource(self, name: str, value: Any, declared: NodeResources) -> None:
        if name in self.taken or is_kubernetes(name):
            message = "this name belongs to allocatable; remove it here or choose another name"
            self._blame(RESOURCES, name, message, Fault.NAME_TAKEN)
            return
        pool = self._pool(RESOURCES, name, name, value)
        base, slash, suffix = name.rpartition("/")
        device = declared.device(suffix) if slash else None
        if device is None and not (slash and suffix.isdecimal()):
            if pool is not None:
                self.pools[name] = pool
            return
        if device is None and self.unclear:
            message = f"which device {suffix} is cannot be told while {DEVICES} is not understood; mend that first"
            self._blame(RESOURCES, name, message)
            return
        device_id = device.id if device is not None else str(int(suffix))
        pools = self.device_pools.setdefault(device_id, {})
        if base in pools:
            message = f"device {device_id} has {base} already; declare it once"
            self._blame(RESOURCES, name, message, Fault.NAME_TAKEN)
        elif pool is not None:
            pools[base] = pool
            self.devices.setdefault(device_id, Device(device_id, {}, index=int(suffix) if device is None else None))

    def _pool(self, annotation: str, place: str, name: str, value: Any) -> Pool | None:
        try:
            check_name(name)
            return parse_pool(value, name)
        except ValueError as error:
            self._blame(annotation, place, str(error))
            return None


def _few(entries: Sized) -> None:
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"{len(entries)} entries are too many; at most {MAX_ENTRIES} are read")


def _index(entry: Mapping[str, Any]) -> int | None:
    value = entry.get("index")
    text = str(value)
    if value is None:
        return None
    if isinstance(value, bool) or not text.isdecimal() or len(text) > 9:
        raise ValueError(f"index {text[:ECHO]!r} is no whole number; write 0, 1, 2, ... or leave it out")
    return int(text)


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{key} is no text")
    return value


def _health(entry: Mapping[str, Any]) -> Health:
    value = entry.get("health", Health.HEALTHY.value)
    try:
        return Health(value)
    except ValueError:
        raise ValueError(f"health {str(value)[:ECHO]!r} is unknown; use {', '.join(Health)}") from None
