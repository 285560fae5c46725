"""GpuNode: the ledger of one Node (cluster-scoped, named like it), and what it is understood to offer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gputask.api.base import CONDITIONS, Condition, ObjectMeta, Reported
from gputask.api.gputask import Reservation

MOST_RESERVATIONS = 256
"""Entries of one ledger: an object of this size still writes in tens of milliseconds."""


MOST_HOLDS = 64
"""Preemptors that one node makes room for at a time."""


class NodeDevice(Reported):
    """One device as understood. Pools are written as in :attr:`GpuNodeStatus.capacity`."""

    id: str
    index: int | None = None
    device_class: str = Field(default="", alias="class")
    health: Literal["Healthy", "Unhealthy", "Lost"] = "Healthy"
    resources: dict[str, str] = Field(default_factory=dict)


class Summary(Reported):
    """Short texts for the columns of ``kubectl get gpunodes``."""

    devices: str = ""
    used: str = ""
    free: str = ""


class Victim(Reported):
    """A pod that is evicted for somebody."""

    task: str
    """``namespace/name``."""
    pod: str
    pod_uid: str = Field(alias="podUID")


class PreemptionHold(Reported):
    """Room that is kept for a task while its victims leave (protocol line 16). It names no pod of its own.

    Written before the first eviction. What it needs is for its task alone, and for those of higher rank; any leader
    may drop it once ``expiresAt`` is over.
    """

    task: str
    """``namespace/name``."""
    task_uid: str = Field(alias="taskUID")
    priority: int
    created: str
    """When the task was created: with priority and UID its rank (R1)."""
    variant: str
    variant_index: int
    devices: list[str] = Field(default_factory=list)
    amounts: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, list[str]] = Field(default_factory=dict)
    victims: list[Victim] = Field(default_factory=list)
    start_time: str
    expires_at: str


class GpuNodeStatus(Reported):
    """The ledger. Only the operator's leader writes it, by PUT under its resourceVersion (protocol line 5)."""

    node_uid: str | None = Field(default=None, alias="nodeUID")
    rebuilt: str | None = None
    """UID of the Node for which the ledger is complete; nothing is admitted while it differs (protocol line 17)."""
    capacity: dict[str, str] = Field(default_factory=dict)
    """Pools of the node: a decimal (memory in MiB), a list of labels, or ``unknown``."""
    devices: list[NodeDevice] = Field(
        default_factory=list, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]}
    )
    conditions: list[Condition] = Field(default_factory=list, json_schema_extra=CONDITIONS)
    summary: Summary | None = None
    reservations: Annotated[dict[str, Reservation], Field(max_length=MOST_RESERVATIONS)] = Field(
        default_factory=dict, json_schema_extra={"x-kubernetes-map-type": "atomic"}
    )
    """By pod UID."""
    holds: Annotated[dict[str, PreemptionHold], Field(max_length=MOST_HOLDS)] = Field(
        default_factory=dict, json_schema_extra={"x-kubernetes-map-type": "atomic"}
    )
    """Of preemptors, by task UID."""


class GpuNode(Reported):
    """A whole GpuNode. It has no spec: what a node offers is declared on its Node."""

    api_version: Literal["gputask.dev/v1alpha1"]
    kind: Literal["GpuNode"]
    metadata: ObjectMeta
    status: GpuNodeStatus = Field(default_factory=GpuNodeStatus)
