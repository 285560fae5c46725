"""What Direct binding cannot honour (design, section 10): refused at once, with the field and the remedy.

An own binder skips what kube-scheduler does between the choice of a node and the binding. Whatever depends on that
would be ignored silently, or would leave the pod Pending for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gputask.api import names
from gputask.api.gputask import GpuTask
from gputask.resources.names import ENV_PREFIX
from gputask.translate.template import all_containers

Spec = Mapping[str, Any]

_POD = "spec.template.spec"
_PINNED = "use spec.binding: Pinned (once it is served)"
"""The remedy for all that kube-scheduler must do."""


def refusals(task: GpuTask) -> list[str]:
    """One line for each thing that Direct binding cannot honour; empty if the task can be bound."""
    if task.spec.binding != "Direct":
        return [f"spec.binding: {task.spec.binding} is not served yet; use Direct"]
    if task.spec.template is None:
        return list(_policies(task))  # a lease: nothing is bound
    spec = task.spec.template["spec"]
    found = (*_policies(task), *_scheduling(spec), *_volumes(spec), *_spreading(spec), *_containers(spec))
    return [*found, *_metadata(task.spec.template.get("metadata") or {})]


def _policies(task: GpuTask) -> Iterator[str]:
    """What the API has and this operator does not serve: refused, where ignoring it would do something else."""
    if task.spec.variant_policy != "Ordered":
        yield f"spec.variantPolicy: {task.spec.variant_policy} is not served yet; use Ordered"
    if task.spec.priority_class_name is not None and task.status.priority is None:
        yield "spec.priorityClassName: is not resolved yet; write its value as spec.priority"


def _scheduling(spec: Spec) -> Iterator[str]:
    if spec.get("schedulerName"):
        yield f"{_POD}.schedulerName: Direct binds the pod itself; remove it, or {_PINNED}"
    if spec.get("nodeName"):
        yield f"{_POD}.nodeName: the planner chooses the node; use nodeSelector or node affinity"
    if spec.get("schedulingGates"):
        yield f"{_POD}.schedulingGates: Direct cannot wait for gates of others; remove them, or {_PINNED}"
    if spec.get("resourceClaims"):
        yield f"{_POD}.resourceClaims: only kube-scheduler allocates claims; {_PINNED}"


def _volumes(spec: Spec) -> Iterator[str]:
    for position, volume in enumerate(spec.get("volumes") or ()):
        for kind in ("persistentVolumeClaim", "ephemeral"):
            if kind in volume:
                yield f"{_POD}.volumes[{position}].{kind}: only kube-scheduler binds volumes; {_PINNED}"


def _spreading(spec: Spec) -> Iterator[str]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
            yield f"{_POD}.affinity.{kind}: required rules between pods are kube-scheduler's; prefer, or {_PINNED}"
    for position, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        if constraint.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            yield (
                f"{_POD}.topologySpreadConstraints[{position}]: DoNotSchedule is kube-scheduler's; "
                f"use ScheduleAnyway, or {_PINNED}"
            )


def _containers(spec: Spec) -> Iterator[str]:
    for place, container in all_containers(spec):
        for position, env in enumerate(container.get("env") or ()):
            name = str(env.get("name"))
            if name.startswith(ENV_PREFIX) or name == names.VISIBLE_DEVICES_ENV:
                yield f"{_POD}.{place}.env[{position}]: {name} is set by the operator; remove it"


def _metadata(metadata: Spec) -> Iterator[str]:
    for key in (*(metadata.get("annotations") or ()), *(metadata.get("labels") or ())):
        if str(key).startswith((names.ALLOC_PREFIX, f"{names.GROUP}/")):
            yield f"spec.template.metadata: {str(key)[:80]} is written by the operator alone; remove it"
