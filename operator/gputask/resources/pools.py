"""Pools, devices and what a placement takes of them (design, section 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gputask.resources.amounts import SCALE


@dataclass(frozen=True, slots=True)
class SumPool:
    """A plain number of units; any part of it can be taken."""

    capacity: int


@dataclass(frozen=True, slots=True)
class IndexedPool:
    """Labels with identity, one whole each. The whole part of a request takes wholly free labels, its
    fraction comes from one label."""

    labels: tuple[str, ...]

    @property
    def capacity(self) -> int:
        return len(self.labels) * SCALE


@dataclass(frozen=True, slots=True)
class UnknownPool:
    """Declared, but how much is not known (no sample, NotSupported): neither 0 nor infinite. Admits
    nothing that asks for it."""

    @property
    def capacity(self) -> int:
        return 0


Pool = SumPool | IndexedPool | UnknownPool


class Health(StrEnum):
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    LOST = "Lost"


@dataclass(frozen=True, slots=True)
class Device:
    """One card or MIG slice. ``id`` is its identity (a UUID); ``index`` is its name of the day, unique per class."""

    id: str
    pools: Mapping[str, Pool]
    index: int | None = None
    device_class: str = ""
    health: Health = Health.HEALTHY


class Fault(StrEnum):
    """The closed set of what can be wrong in a declaration; the reason of the condition ``Declared``."""

    MALFORMED = "Malformed"
    """No JSON or YAML map or list at all, or too large: nothing of the annotation counts."""
    BAD_VALUE = "BadValue"
    """One name or one device cannot be read; only that one is dropped."""
    NAME_TAKEN = "NameTaken"
    """allocatable, or a device, has this name already."""
    DUPLICATE_DEVICE = "DuplicateDevice"
    """Two devices of one id: no device of the node is offered."""
    DEVICE_PLUGIN = "DevicePlugin"
    """A device plugin offers the same cards: the kubelet would pick the card, and the ledger would not know."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a declaration: where it stands, and one line with the remedy."""

    annotation: str
    name: str
    message: str
    fault: Fault = Fault.BAD_VALUE

    def __str__(self) -> str:
        return f"{self.annotation}: {self.name}: {self.message}" if self.name else f"{self.annotation}: {self.message}"


@dataclass(frozen=True, slots=True)
class NodeResources:
    """Everything a node offers, as understood: pools of the node, and devices that carry pools of their own."""

    pools: Mapping[str, Pool] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    problems: tuple[Problem, ...] = ()

    def pool(self, key: str) -> Pool | None:
        """The pool behind a flat key: ``cpu``, or ``gpuMemoryMB/ID`` where ID is a device's id."""
        found = self.pools.get(key)
        if found is not None:
            return found
        name, slash, suffix = key.rpartition("/")
        if not slash:
            return None
        return next((d.pools.get(name) for d in self.devices if d.id == suffix), None)

    def resolve(self, key: str) -> str | None:
        """The flat key by device *id* of a key that a request wrote, or None where this node has no such pool.

        ``pool/K``: K is the id of a device, else the index of one, else part of a node-level name (R2).
        """
        name, slash, suffix = key.rpartition("/")
        if slash:
            device = self.device(suffix)
            if device is not None and name in device.pools:
                return f"{name}/{device.id}"
        return key if key in self.pools else None

    def device(self, suffix: str) -> Device | None:
        """The device that a suffix names here: by id first, then by index (the first class in id order)."""
        for device in self.devices:
            if device.id == suffix:
                return device
        if suffix.isdecimal():
            for device in sorted(self.devices, key=lambda d: (d.device_class, d.id)):
                if device.index == int(suffix):
                    return device
        return None


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one placement takes on one node.

    ``amounts``: flat key -> units; a device's pool is ``pool/ID``. ``labels``: flat key of an indexed
    pool -> its labels, wholly taken ones first; the last one gives the fraction, if there is one.
    ``devices``: ids, in the order they are handed over.
    """

    amounts: Mapping[str, int]
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    devices: tuple[str, ...] = ()

    def label_units(self, key: str) -> list[tuple[str, int]]:
        """The units taken of each label of an indexed pool."""
        whole, fraction = divmod(self.amounts[key], SCALE)
        labels = self.labels.get(key, ())
        return [(label, SCALE if i < whole else fraction) for i, label in enumerate(labels)]
