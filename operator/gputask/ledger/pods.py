"""What a pod of ours says about itself. Pure; a pod is a plain dict as the API gave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec

from gputask.api import names
from gputask.api.times import epoch
from gputask.ledger.entries import Entry, State
from gputask.resources.effective import effective_requests
from gputask.resources.pools import Allocation
from gputask.translate.reservations import allocation_from_json, allocation_to_json

Manifest = Mapping[str, Any]

ALLOCATION_ENV = "GPUTASK_ALLOCATION"
"""Literal in the spec of a pod that we make: where it was decided to run, and with what. It cannot be changed or
forged afterwards, so that a pod found without its claim can still be understood (protocol line 2)."""


@dataclass(frozen=True, slots=True)
class Literals:
    """What was decided for a pod when it was made."""

    node: str
    variant: str
    variant_index: int
    allocation: Allocation


def pod_name(task_uid: str, attempt: int) -> str:
    """The name of the pod of one attempt (protocol line 2): nobody can make a second one."""
    return f"{task_uid}-{attempt}"


def attempt_of(pod: Manifest) -> int | None:
    """The attempt by the pod's name, or None where the name is none of ours."""
    _, dash, number = pod["metadata"]["name"].rpartition("-")
    return int(number) if dash and number.isdecimal() else None


def task_uid_of(pod: Manifest) -> str | None:
    """UID of the GpuTask that controls this pod. The label alone proves nothing: anybody can write it (B67)."""
    owner = _controller(pod)
    return str(owner["uid"]) if owner is not None else None


def task_name_of(pod: Manifest) -> str | None:
    """Name of the GpuTask that controls this pod."""
    owner = _controller(pod)
    return str(owner["name"]) if owner is not None else None


def _controller(pod: Manifest) -> Manifest | None:
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == names.GPUTASK_KIND:
            found: Manifest = owner
            return found
    return None


def is_ours(pod: Manifest, task_uid: str, attempt: int) -> bool:
    """Whether this is the pod of that attempt, and no stranger under its name (protocol line 2)."""
    return task_uid_of(pod) == task_uid and pod["metadata"]["name"] == pod_name(task_uid, attempt)


def allocation_env(literals: Literals) -> dict[str, str]:
    """The environment entry that carries the literals; for the first device container."""
    value = {
        "node": literals.node,
        "variant": literals.variant,
        "variantIndex": literals.variant_index,
        **allocation_to_json(literals.allocation),
    }
    return {"name": ALLOCATION_ENV, "value": msgspec.json.encode(value).decode()}


def literals_of(pod: Manifest) -> Literals | None:
    """The literals of a pod; None where it has none, or some that nobody could act on."""
    for container in pod["spec"].get("containers") or ():
        for env in container.get("env") or ():
            if env.get("name") == ALLOCATION_ENV:
                return _read(env.get("value") or "")
    return None


def _read(text: str) -> Literals | None:
    try:
        value = msgspec.json.decode(text)
        allocation = allocation_from_json(value)
        return Literals(str(value["node"]), str(value["variant"]), int(value["variantIndex"]), allocation)
    except (msgspec.DecodeError, ValueError, KeyError, TypeError):
        return None


class Place(StrEnum):
    """Where a pod stands, as far as the protocol cares. ``GONE``: no object of that UID is stored."""

    GONE = "gone"
    TERMINAL = "terminal"
    UNBOUND = "unbound"
    HERE = "bound here"
    ELSEWHERE = "bound elsewhere"

    @property
    def dead(self) -> bool:
        """No container of it runs, and none ever will (protocol line 3)."""
        return self in (Place.GONE, Place.TERMINAL)


def place_of(pod: Manifest | None, *, uid: str, node: str) -> Place:
    """Where the pod ``uid`` stands, seen from ``node``; ``pod`` is what is stored under its name."""
    if pod is None or pod["metadata"]["uid"] != uid:
        return Place.GONE
    if is_terminal(pod):
        return Place.TERMINAL
    bound = pod["spec"].get("nodeName")
    if not bound:
        return Place.UNBOUND
    return Place.HERE if bound == node else Place.ELSEWHERE


def is_terminal(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def is_terminating(pod: Manifest) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def version_of(manifest: Manifest) -> str:
    """The resourceVersion: compared for equality only (protocol line 1)."""
    return str(manifest["metadata"]["resourceVersion"])


def uid_of(manifest: Manifest) -> str:
    return str(manifest["metadata"]["uid"])


def start_time_of(pod: Manifest | None) -> float | None:
    """When the kubelet began with it, in seconds since the epoch."""
    text = ((pod or {}).get("status") or {}).get("startTime")
    return epoch(text) if text else None


def booked(allocation: Allocation, pod: Manifest) -> Allocation:
    """What the ledger books for a pod of ours: the decision, or more where the stored pod asks more (protocol line 2).

    LimitRanges, webhooks and runtime classes may have added to the pod that we sent.
    """
    asked = effective_requests(pod.get("spec") or {})
    more = {key: max(units, allocation.amounts.get(key, 0)) for key, units in asked.items()}
    return replace(allocation, amounts={**allocation.amounts, **more})


def bound_entry(pod: Manifest, literals: Literals, *, now: float) -> Entry | None:
    """The entry of a pod of ours that was found bound; None if it does not say whose it is."""
    owner, attempt = _controller(pod), attempt_of(pod)
    if owner is None or attempt is None:
        return None
    return Entry(
        task=f"{pod['metadata']['namespace']}/{owner['name']}",
        task_uid=owner["uid"],
        pod=pod["metadata"]["name"],
        pod_uid=uid_of(pod),
        pod_version=version_of(pod),
        attempt=attempt,
        node=pod["spec"]["nodeName"],
        variant=literals.variant,
        variant_index=literals.variant_index,
        allocation=booked(literals.allocation, pod),
        state=State.BOUND,
        start_time=start_time_of(pod) or now,
    )
