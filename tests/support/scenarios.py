"""Builders of scenarios and histories: nodes and tasks in the planner's words, written short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gputask.planner.model import PODS, Amounts, DeviceDemand, Hold, Node, RequestClass, Task, Variant
from gputask.resources.amounts import SCALE, parse_amount
from gputask.resources.pools import Allocation, Device, IndexedPool, NodeResources, Pool, SumPool
from gputask.simulate.history import Event, Kind
from gputask.simulate.scenario import NodeVersion, Placement, SimTask


def units(amount: object) -> int:
    return parse_amount(amount, "pool")


def amounts(**resources: object) -> Amounts:
    """``gpuSlot__0`` is written for ``gpuSlot/0``."""
    return tuple(sorted((key.replace("__", "/"), units(amount)) for key, amount in resources.items()))


def pool(declared: object) -> Pool:
    return IndexedPool(tuple(declared)) if isinstance(declared, list) else SumPool(units(declared))


def node(name: str, *, cards: Mapping[str, Mapping[str, Any]] | None = None, **pools: Any) -> NodeVersion:
    """A node with sum pools (numbers) and indexed pools (lists), and cards that carry their own."""
    devices = tuple(
        Device(id=id, index=i, pools={key: pool(declared) for key, declared in card.items()})
        for i, (id, card) in enumerate((cards or {}).items())
    )
    resources = NodeResources({key: pool(declared) for key, declared in pools.items()}, devices)
    return NodeVersion(Node(name=name, resources=resources))


def changed(version: NodeVersion, **changes: Any) -> NodeVersion:
    """The same node version with other fields of its node."""
    return replace(version, node=replace(version.node, **changes))


def variant(
    name: str = "v0", *, card: Amounts | None = None, cards: int = 1, min_time: float = 0.0, **resources: object
) -> Variant:
    """``card``: what it asks on each of ``cards`` cards."""
    demand = DeviceDemand(cards, card) if card else None
    asked = tuple(sorted((*amounts(**resources), (PODS, SCALE))))
    return Variant(name=name, amounts=asked, devices=demand, min_time=min_time)


def task(
    name: str,
    *variants: Variant,
    priority: int = 0,
    at: float = 0,
    time_limit: float | None = None,
    unsupported: tuple[str, ...] = (),
    **sim: Any,
) -> SimTask:
    """A task of the default namespace. Times in seconds, also ``runs``, ``until``, ``backoff``, ``stops`` and
    ``min_runtime``."""
    times = ("runs", "until", "backoff", "stops", "min_runtime")
    sim |= {key: round(sim[key] * 1000) for key in times if sim.get(key) is not None}
    key = f"default/{name}"
    words = Task(
        key=key,
        uid=key,
        priority=priority,
        created=at,
        request=RequestClass(variants),
        time_limit=time_limit,
        unsupported=unsupported,
    )
    return SimTask(words, at=round(at * 1000), **sim)


def allocation(*devices: str, labels: Mapping[str, list[str]] | None = None, **taken: object) -> Allocation:
    return Allocation(
        amounts={**dict(amounts(**taken)), PODS: SCALE},
        labels={key: tuple(names) for key, names in (labels or {}).items()},
        devices=devices,
    )


def submitted(t: int, name: str) -> Event:
    return Event(t, Kind.SUBMITTED, task=f"default/{name}")


def joined(t: int, name: str) -> Event:
    return Event(t, Kind.NODE_ADDED, node=name)


def bound(t: int, name: str, on: str, taken: Allocation, *, index: int = 0) -> Event:
    return Event(t, Kind.BOUND, f"default/{name}", on, Placement(on, f"v{index}", index, taken, t))


def finished(t: int, name: str, on: str, taken: Allocation, reason: str = "Succeeded") -> Event:
    return Event(t, Kind.FINISHED, f"default/{name}", on, Placement(on, "v0", 0, taken, 0), reason)


def requeued(t: int, name: str, on: str, taken: Allocation, reason: str = "Crashed") -> Event:
    return Event(t, Kind.REQUEUED, f"default/{name}", on, Placement(on, "v0", 0, taken, 0), reason)


def hold(name: str, on: str, taken: Allocation) -> Hold:
    key = f"default/{name}"
    return Hold(task=key, uid=key, node=on, variant_index=0, allocation=taken, since=0)
