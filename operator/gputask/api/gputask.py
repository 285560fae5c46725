"""GpuTask: work to be placed, as a user writes it (spec) and as the operator reports it (status).

The CRD is generated from these models (:mod:`gputask.api.crds`); a new field is added here and nowhere else.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic.config import JsonDict

from gputask.api.amounts import Amounts
from gputask.api.base import CONDITIONS, Condition, Model, ObjectMeta, Reported
from gputask.api.conditions import Phase
from gputask.api.problems import Location, refuse
from gputask.api.template import template_problems
from gputask.api.times import epoch
from gputask.resources.names import collision

MOST_VARIANTS = 128

_NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
_MAX_SECONDS = 10**9


class DeviceRequest(Model):
    """``resources`` on each of ``count`` distinct devices of one node."""

    count: int = Field(default=1, ge=0, le=64)
    """How many; 0 is as if devices were absent."""
    resources: Amounts
    """What each of them gives, by the names of its own pools."""

    @model_validator(mode="after")
    def _pools_of_devices(self) -> DeviceRequest:
        bad: list[tuple[Location, str]] = [
            (("resources", name), f"names the device itself; write {name.rpartition('/')[0]!r}")
            for name in self.resources
            if name.rpartition("/")[2].isdecimal() and "/" in name
        ]
        if not self.resources:
            bad.append((("resources",), "is empty; name what each device must give, like gpuSlot: 1"))
        refuse(bad, self.resources)
        return self


class Variant(Model):
    """One alternative of a request; the first that fits is taken (R2)."""

    name: str = Field(min_length=1, max_length=63, pattern=_NAME)
    resources: Amounts = Field(default_factory=dict)
    """Of the node, or of a device named outright (gpuSlot/0). Fractions are quoted: "0.125"."""
    devices: DeviceRequest | None = None
    min_time_seconds: float | None = Field(default=None, ge=0, le=_MAX_SECONDS)
    """Start only on a node that lives at least so long."""
    weight: float | None = Field(default=None, gt=0, le=10**6)

    def asked_names(self) -> list[str]:
        """Names of all resources, of the node and of devices."""
        return [*self.resources, *(self.devices.resources if self.devices else ())]

    @model_validator(mode="after")
    def _names_apart(self) -> Variant:
        of_devices = self.devices.resources if self.devices else {}
        twice: list[tuple[Location, str]] = [
            (("devices", "resources", name), "is asked of the node too; ask it once, of the node or of the devices")
            for name in of_devices
            if name in self.resources
        ]
        refuse(twice, self.resources)
        return self


PLACEMENT_FAILURE_LIMIT = 3
"""placementFailureLimit of a task that does not say."""


class RestartPolicy(Model):
    """How often a task that crashed starts again. Evictions and drains are no crashes."""

    limit: int = Field(default=0, ge=0, le=10**6)
    backoff_seconds: int = Field(default=10, ge=0, le=_MAX_SECONDS)


def _is_time(text: str) -> str:
    epoch(text)
    return text


class Lease(Model):
    """A reservation without a pod, for work outside the cluster's pods: its holder renews it, else it expires."""

    ttl_seconds: int = Field(default=300, ge=1, le=_MAX_SECONDS)
    """So long after it was last renewed it expires, by the operator's own clock."""
    renew_time: Annotated[str, AfterValidator(_is_time)] | None = Field(
        default=None, json_schema_extra={"format": "date-time"}
    )
    """RFC 3339, written by the holder. Any other value than before renews the lease; it is compared with no clock."""


def _variants_apart(variants: list[Variant]) -> list[Variant]:
    first: dict[str, int] = {}
    found: list[tuple[Location, str]] = [
        ((position, "name"), f"{variant.name!r} is the name of variant {first[variant.name]} too; names are unique")
        for position, variant in enumerate(variants)
        if first.setdefault(variant.name, position) != position
    ]
    # A container reads one variable whichever variant it got, so a name means one resource in all of them.
    clash = collision(name for variant in variants for name in variant.asked_names())
    if clash is not None:
        found.append(((), clash))
    refuse(found, variants)
    return variants


_VARIANTS_SCHEMA: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
_TEMPLATE_SCHEMA: JsonDict = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class GpuTaskSpec(Model):
    """What is asked."""

    priority: int | None = Field(default=None, ge=-(10**9), le=10**9)
    """Higher wins; neither this nor priorityClassName is 0."""
    priority_class_name: str | None = Field(default=None, max_length=253)
    """In place of priority; resolved once into status.priority."""
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = "PreemptLowerPriority"
    """Whether this task may evict others."""
    preemptible: bool = True
    """Whether others may evict this task."""
    min_runtime_seconds: int = Field(default=0, ge=0, le=_MAX_SECONDS)
    """For so long after its start it is protected from preemption."""
    binding: Literal["Direct", "Pinned"] = "Direct"
    """Who binds the pod: the operator, or kube-scheduler on the node that the operator chose."""
    variant_policy: Literal["Ordered", "Throughput"] = "Ordered"
    """Which variant is taken: the first that fits, or the one that can start the most weight now."""
    variants: Annotated[list[Variant], AfterValidator(_variants_apart)] = Field(
        min_length=1, max_length=MOST_VARIANTS, json_schema_extra=_VARIANTS_SCHEMA
    )
    """Alternatives in order of preference; exactly one is used."""
    time_limit_seconds: int | None = Field(default=None, ge=1, le=_MAX_SECONDS)
    """Becomes the pod's activeDeadlineSeconds."""
    start_timeout_seconds: int = Field(default=600, ge=1, le=_MAX_SECONDS)
    """Bound but not running for so long: the room is given back and the next attempt begins."""
    reservation_ttl_seconds: int = Field(default=60, ge=1, le=_MAX_SECONDS, alias="reservationTTLSeconds")
    """An unconfirmed reservation is fenced after this."""
    restart_policy: RestartPolicy = Field(default_factory=RestartPolicy, json_schema_extra={"default": {}})
    """Of the task, not of its containers."""
    placement_failure_limit: int = Field(default=PLACEMENT_FAILURE_LIMIT, ge=1, le=10**6)
    """Kubelet refusals and refused binds in a row after which the task has failed."""
    ttl_seconds_after_finished: int | None = Field(default=None, ge=0, le=_MAX_SECONDS)
    """Deleted so long after its end."""
    suspend: bool = False
    """Stop the pod, if there is one, and wait."""
    device_containers: list[Annotated[str, Field(max_length=63)]] = Field(default_factory=list, max_length=16)
    """Containers that get the devices, by default the first; the first of them gets the variant's requests."""
    template: dict[str, Any] | None = Field(default=None, json_schema_extra=_TEMPLATE_SCHEMA)
    """A PodTemplateSpec; its restartPolicy is Never by default, Always is refused. Exactly one of this and lease."""
    lease: Lease | None = None
    """In place of a template: nothing runs, and what is reserved is its holder's until it expires or is deleted."""
    replicas: Literal[1] = Field(default=1, json_schema_extra={"type": "integer", "minimum": 1, "maximum": 1})
    """Always 1. For the scale subresource, without which disruption budgets in percent refuse every eviction."""

    @model_validator(mode="after")
    def _one_priority(self) -> GpuTaskSpec:
        if self.priority is not None and self.priority_class_name is not None:
            refuse([(("priorityClassName",), "stands beside priority; give at most one of them")], self.priority)
        return self

    @model_validator(mode="after")
    def _template_or_lease(self) -> GpuTaskSpec:
        bad: list[tuple[Location, str]] = []
        if self.lease is None and self.template is None:
            bad = [(("template",), "missing; write a pod template (or a lease, for work outside the cluster's pods)")]
        elif self.lease is None:
            bad = [(("template", *place), text) for place, text in template_problems(self.template or {})]
        elif self.template is not None:
            bad = [(("lease",), "stands beside template; give exactly one of them")]
        elif self.binding != "Direct":
            bad = [(("binding",), f"{self.binding} binds a pod, and a lease has none; remove it")]
        refuse(bad, self.template)
        return self


class Reservation(Reported):
    """Who holds what where: the claim in a GpuTask's status, or an entry of a GpuNode's ledger (protocol lines 3, 5).

    In files ``node`` and ``variant`` are enough, the rest is derived. Amounts are decimal strings by flat key (a
    device's pool is ``pool/ID``), memory in MiB; ``labels`` are those of indexed pools. Times are RFC 3339.
    """

    task: str | None = None
    """``namespace/name``; in the ledger only."""
    task_uid: str | None = Field(default=None, alias="taskUID")
    attempt: int | None = None
    pod: str | None = None
    pod_uid: str | None = Field(default=None, alias="podUID")
    pod_resource_version: str | None = None
    node: str
    variant: str
    variant_index: int | None = None
    devices: list[str] | None = None
    amounts: dict[str, str] | None = None
    labels: dict[str, list[str]] | None = None
    state: str | None = None
    start_time: str | None = None
    expires_at: str | None = None


class GpuTaskStatus(Reported):
    """What the operator says of a task."""

    phase: Annotated[Phase, Field(strict=False)] = Phase.PENDING
    priority: int | None = None
    """The priority that counts, resolved once."""
    observed_generation: int | None = None
    replicas: int | None = None
    selector: str | None = None
    crashes: int | None = None
    """Attempts that failed by themselves; compared with restartPolicy.limit."""
    placement_failures: int | None = None
    """Refusals by a kubelet in a row; compared with placementFailureLimit."""
    evictions: int | None = None
    """Attempts that were stopped from outside: drained, evicted, or their pod deleted by somebody."""
    retry_time: str | None = None
    """RFC 3339: not started before this (the pause after a crash)."""
    finish_time: str | None = None
    """RFC 3339: when it ended; ttlSecondsAfterFinished counts from here."""
    reservation: Reservation | None = None
    conditions: list[Condition] = Field(default_factory=list, json_schema_extra=CONDITIONS)


class GpuTask(Reported):
    """A whole GpuTask. Unknown fields are errors in its spec only: the API server adds others."""

    api_version: Literal["gputask.dev/v1alpha1"]
    kind: Literal["GpuTask"]
    metadata: ObjectMeta
    spec: GpuTaskSpec
    status: GpuTaskStatus = Field(default_factory=GpuTaskStatus)
