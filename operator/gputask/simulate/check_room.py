"""The checker's own arithmetic: what is left on a node beside some owners, and what is wrong with one more."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from gputask.planner.model import HOST_PORT, PODS, Foreign, Node, Variant
from gputask.resources.amounts import SCALE, format_amount
from gputask.resources.pools import Allocation, Health, IndexedPool, Pool, SumPool, UnknownPool

_ONE = SumPool(SCALE)


class Room:
    """One node with its declared pools, less what some owners and foreign pods take of them."""

    def __init__(self, node: Node, owners: Iterable[Allocation], foreign: Iterable[Foreign]) -> None:
        self._node = node
        self._used: Counter[str] = Counter()
        self._labels: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._foreign: Counter[str] = Counter()
        for owner in owners:
            self.take(owner)
        for use in foreign:
            self._foreign.update(dict(use.amounts))

    def take(self, allocation: Allocation) -> None:
        """One more owner, whether it fits or not."""
        self._used.update(allocation.amounts)
        for key in allocation.labels:
            self._labels[key].update(dict(allocation.label_units(key)))

    # --- would it fit -------------------------------------------------------------------------------

    def fits(self, variant: Variant) -> bool:
        """Whether a variant fits into what is left. Node life is not judged here."""
        asked: Counter[str] = Counter()
        for name, units in variant.amounts:
            key = self._key(name)
            if key is None:
                return False
            asked[key] += units
        if not all(self._has(key, units) for key, units in asked.items()):
            return False
        demand = variant.devices
        if demand is None:
            return True
        able = [
            device
            for device in self._node.resources.devices
            if all(
                self._has(f"{pool}/{device.id}", units + asked[f"{pool}/{device.id}"]) for pool, units in demand.amounts
            )
        ]
        return len(able) >= demand.count

    def _has(self, key: str, units: int) -> bool:
        pool = self._pool(key)
        match pool:
            case SumPool():
                return self._used[key] + self._foreign[key] + units <= pool.capacity
            case IndexedPool():
                return self._has_labels(pool, key, units)
        return units == 0 or (pool is None and key == PODS)

    def _has_labels(self, pool: IndexedPool, key: str, units: int) -> bool:
        whole, fraction = divmod(units, SCALE)
        taken = self._labels[key]
        left = [SCALE - taken[label] for label in pool.labels]
        free = sum(1 for units in left if units == SCALE) + (-self._foreign[key] // SCALE)
        in_a_touched_one = any(fraction <= units < SCALE for units in left)
        return free >= whole + (1 if fraction and not in_a_touched_one else 0)

    def _key(self, name: str) -> str | None:
        if name == PODS or name.startswith(HOST_PORT):
            return name
        return self._node.resources.resolve(name)

    def _pool(self, key: str) -> Pool | None:
        if key.startswith(HOST_PORT):
            return self._node.resources.pools.get(key, _ONE)
        device = next((d for d in self._node.resources.devices if key.endswith(f"/{d.id}")), None)
        if device is not None and device.health is not Health.HEALTHY and key not in self._node.resources.pools:
            return None
        return self._node.resources.pool(key)

    # --- what is wrong ------------------------------------------------------------------------------

    def faults(self, allocation: Allocation) -> Iterator[tuple[str, str]]:
        """Rule and message of all that is wrong once this owner has been taken in: pools, devices and labels that it
        touches. Pools that it does not touch are no fault of its."""
        for device in allocation.devices:
            if not any(d.id == device and d.health is Health.HEALTHY for d in self._node.resources.devices):
                yield "device", f"device {device} is not a healthy device of this node"
        for key, units in allocation.amounts.items():
            pool = self._pool(key)
            used = self._used[key] + self._foreign[key]
            if isinstance(pool, IndexedPool):  # who is on a label that was lost takes none of the others
                used = sum(self._labels[key][label] for label in pool.labels) + self._foreign[key]
            if pool is None or isinstance(pool, UnknownPool):
                if key != PODS:
                    yield "capacity", f"{key} is not known here, yet {format_amount(units)} of it were given"
            elif used > pool.capacity:
                yield "capacity", f"{key}: {format_amount(used)} in use, the capacity is {format_amount(pool.capacity)}"
            if isinstance(pool, IndexedPool):
                yield from self._label_faults(pool, key, allocation)

    def _label_faults(self, pool: IndexedPool, key: str, allocation: Allocation) -> Iterator[tuple[str, str]]:
        labels, units = allocation.labels.get(key, ()), allocation.amounts[key]
        if len(set(labels)) != len(labels) or len(labels) != -(-units // SCALE):
            yield "label", f"{key}: {format_amount(units)} of it came with labels {list(labels)}"
        for label in labels:
            if label not in pool.labels:
                yield "label", f"{key}: label {label!r} is not declared here"
            elif self._labels[key][label] > SCALE:
                yield "label", f"{key}: label {label!r} is given out {format_amount(self._labels[key][label])} times"


def request_fault(node: Node, variant: Variant, allocation: Allocation) -> str | None:
    """How an allocation differs from what its variant asks on this node: every pool in full, nothing more, and the
    amounts of a devices request on so many distinct devices."""
    rest = Counter(dict(allocation.amounts))
    for name, units in variant.amounts:
        rest[node.resources.resolve(name) or name] -= units
    demand = variant.devices
    if demand is not None:
        met = [
            d for d in set(allocation.devices) if all(rest[f"{pool}/{d}"] >= units for pool, units in demand.amounts)
        ]
        if len(met) < demand.count:
            return f"asks {demand.count} devices, got {list(allocation.devices)}"
        for device in sorted(met)[: demand.count]:
            for pool, units in demand.amounts:
                rest[f"{pool}/{device}"] -= units
    wrong = sorted(key for key, units in rest.items() if units)
    return f"differs from the variant in {', '.join(wrong)}" if wrong else None
