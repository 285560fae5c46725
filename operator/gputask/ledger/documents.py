"""The ledger as it is stored: the status of a GpuNode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gputask.api.conditions import NodeCondition, OverbookedReason
from gputask.api.times import epoch, rfc3339
from gputask.kube.client import Object
from gputask.ledger.entries import Entry, NodeLedger, RoomKept, State, Victim
from gputask.ledger.summary import summary
from gputask.resources.amounts import format_amount
from gputask.resources.pools import Device, Health, IndexedPool, NodeResources, Pool, SumPool, UnknownPool
from gputask.translate.reservations import allocation_from_json, allocation_to_json, units_from_json

UNKNOWN = "unknown"


def read_ledger(gpunode: Mapping[str, Any]) -> NodeLedger:
    """The ledger that a GpuNode stores; an empty status is a ledger that was not rebuilt yet."""
    metadata, status = gpunode["metadata"], gpunode.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    overbooked = conditions.pop(NodeCondition.OVERBOOKED.value, {}).get("status") == "True"
    return NodeLedger(
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        node_uid=status.get("nodeUID") or "",
        rebuilt=status.get("rebuilt") or "",
        resources=_resources_from_json(status),
        entries={uid: _entry_from_json(record) for uid, record in (status.get("reservations") or {}).items()},
        holds={uid: _hold_from_json(record) for uid, record in (status.get("holds") or {}).items()},
        overbooked=overbooked,
        conditions=conditions,
    )


def write_ledger(gpunode: Mapping[str, Any], ledger: NodeLedger, *, now: float) -> Object:
    """The GpuNode to PUT: ``gpunode``, the version that the ledger was read from, with the ledger's status.

    ``now`` (seconds since the epoch) is the transition time of a condition of ours that changes.
    """
    conditions = [dict(condition) for condition in ledger.conditions.values()]
    conditions.append(_overbooked(gpunode, ledger, now))
    status = {
        **(gpunode.get("status") or {}),
        "nodeUID": ledger.node_uid,
        "rebuilt": ledger.rebuilt,
        **_resources_to_json(ledger.resources),
        "summary": summary(ledger),
        "conditions": conditions,
        "reservations": {uid: _entry_to_json(entry) for uid, entry in ledger.entries.items()},
        "holds": {uid: _hold_to_json(hold) for uid, hold in ledger.holds.items()},
    }
    return {**gpunode, "status": status}


def _overbooked(gpunode: Mapping[str, Any], ledger: NodeLedger, now: float) -> Object:
    status = "True" if ledger.overbooked else "False"
    for condition in (gpunode.get("status") or {}).get("conditions") or ():
        if condition["type"] == NodeCondition.OVERBOOKED and condition["status"] == status:
            return dict(condition)
    reason = OverbookedReason.TWO_OWNERS if ledger.overbooked else OverbookedReason.WITHIN_CAPACITY
    return {
        "type": NodeCondition.OVERBOOKED.value,
        "status": status,
        "reason": reason.value,
        "message": f"{ledger.doubly_owned()} has two live owners" if ledger.overbooked else "",
        "lastTransitionTime": rfc3339(int(now)),
    }


# --- entries ---


def _entry_to_json(entry: Entry) -> Object:
    return {
        "task": entry.task,
        "taskUID": entry.task_uid,
        "attempt": entry.attempt,
        "pod": entry.pod,
        "podUID": entry.pod_uid,
        "podResourceVersion": entry.pod_version,
        "node": entry.node,
        "variant": entry.variant,
        "variantIndex": entry.variant_index,
        **allocation_to_json(entry.allocation),
        "state": entry.state.value,
        **_times(startTime=entry.start_time, expiresAt=entry.expires_at),
    }


def _times(**seconds: float | None) -> dict[str, str]:
    # A time that does not apply is left out: the CRD knows no null.
    return {name: rfc3339(value) for name, value in seconds.items() if value is not None}


def _entry_from_json(record: Mapping[str, Any]) -> Entry:
    start_time, expires_at = record.get("startTime"), record.get("expiresAt")
    return Entry(
        task=record["task"],
        task_uid=record["taskUID"],
        pod=record["pod"],
        pod_uid=record["podUID"],
        pod_version=record["podResourceVersion"],
        attempt=record["attempt"],
        node=record["node"],
        variant=record["variant"],
        variant_index=record["variantIndex"],
        allocation=allocation_from_json(record),
        state=State(record["state"]),
        start_time=epoch(start_time) if start_time else None,
        expires_at=epoch(expires_at) if expires_at else None,
    )


# --- room that is kept ---


def _hold_to_json(hold: RoomKept) -> Object:
    return {
        "task": hold.task,
        "taskUID": hold.task_uid,
        "priority": hold.priority,
        "variant": hold.variant,
        "variantIndex": hold.variant_index,
        **allocation_to_json(hold.allocation),
        "victims": [{"task": v.task, "pod": v.pod, "podUID": v.pod_uid} for v in hold.victims],
        **_times(created=hold.created, startTime=hold.start_time, expiresAt=hold.expires_at),
    }


def _hold_from_json(record: Mapping[str, Any]) -> RoomKept:
    return RoomKept(
        task=record["task"],
        task_uid=record["taskUID"],
        priority=record["priority"],
        created=epoch(record["created"]),
        variant=record["variant"],
        variant_index=record["variantIndex"],
        allocation=allocation_from_json(record),
        victims=tuple(Victim(v["task"], v["pod"], v["podUID"]) for v in record.get("victims") or ()),
        start_time=epoch(record["startTime"]),
        expires_at=epoch(record["expiresAt"]),
    )


# --- what the node offers, as understood ---


def _resources_to_json(resources: NodeResources) -> Object:
    return {
        "capacity": {name: _pool_to_json(pool) for name, pool in resources.pools.items()},
        "devices": [
            {
                "id": device.id,
                **({"index": device.index} if device.index is not None else {}),
                "class": device.device_class,
                "health": device.health.value,
                "resources": {name: _pool_to_json(pool) for name, pool in device.pools.items()},
            }
            for device in resources.devices
        ],
    }


def _resources_from_json(status: Mapping[str, Any]) -> NodeResources:
    return NodeResources(
        pools={name: _pool_from_json(text) for name, text in (status.get("capacity") or {}).items()},
        devices=tuple(
            Device(
                id=device["id"],
                pools={name: _pool_from_json(text) for name, text in (device.get("resources") or {}).items()},
                index=device.get("index"),
                device_class=device.get("class") or "",
                health=Health(device.get("health") or Health.HEALTHY),
            )
            for device in status.get("devices") or ()
        ),
    )


def _pool_to_json(pool: Pool) -> str:
    """A number, a JSON list of labels, or ``unknown``."""
    match pool:
        case SumPool(capacity):
            return format_amount(capacity)
        case IndexedPool(labels):
            return msgspec.json.encode(labels).decode()
        case UnknownPool():
            return UNKNOWN


def _pool_from_json(text: str) -> Pool:
    if text == UNKNOWN:
        return UnknownPool()
    if text.startswith("["):
        return IndexedPool(tuple(msgspec.json.decode(text, type=list[str])))
    return SumPool(units_from_json(text))
