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

Spec = Mapping[str, Any]

_POD = "spec.template.spec"
_PINNED = "use spec.binding: Pinned"


def refusals(task: GpuTask) -> list[str]:
    """One line for each thing in the template that Direct binding cannot honour; empty if it can be bound."""
    if task.spec.template is None:
        return ["spec.lease: leases are not built yet; give a template"]
    if task.spec.binding != "Direct":
        return [f"spec.binding: {task.spec.binding} is not built yet; use Direct"]
    spec = task.spec.template.get("spec") or {}
    found = (*_scheduling(spec), *_volumes(spec), *_spreading(spec), *_containers(spec))
    return [*found, *_metadata(task.spec.template.get("metadata") or {})]


def _scheduling(spec: Spec) -> Iterator[str]:
    if spec.get("schedulerName"):
        yield f"{_POD}.schedulerName: Direct binds the pod itself; remove it, or {_PINNED}"
    if spec.get("nodeName"):
        yield f"{_POD}.nodeName: the planner chooses the node; use nodeSelector or node affinity"
    if spec.get("schedulingGates"):
        yield f"{_POD}.schedulingGates: Direct cannot wait for gates of others; remove them, or {_PINNED}"
    if spec.get("resourceClaims"):
        yield f"{_POD}.resourceClaims: only kube-scheduler allocates claims; {_PINNED}"
    if spec.get("restartPolicy") not in (None, "Never", "OnFailure"):
        yield f"{_POD}.restartPolicy: {spec['restartPolicy']} never ends; use Never or OnFailure"


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
    for kind in ("initContainers", "containers"):
        for position, container in enumerate(spec.get(kind) or ()):
            for env in container.get("env") or ():
                name = str(env.get("name"))
                if name.startswith(ENV_PREFIX) or name == names.VISIBLE_DEVICES_ENV:
                    yield f"{_POD}.{kind}[{position}].env: {name} is set by the operator; remove it"


def _metadata(metadata: Spec) -> Iterator[str]:
    for key in (*(metadata.get("annotations") or ()), *(metadata.get("labels") or ())):
        if str(key).startswith((names.ALLOC_PREFIX, f"{names.GROUP}/")):
            yield f"spec.template.metadata: {str(key)[:80]} is written by the operator alone; remove it"
