"""GpuTasks: read from a manifest, and how the planner sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gputask.api.amounts import units
from gputask.api.gputask import DeviceRequest, GpuTask, Variant
from gputask.api.problems import ManifestError, read
from gputask.api.times import epoch
from gputask.planner import model
from gputask.translate.direct import refusals
from gputask.translate.pods import constraints, pod_amounts
from gputask.translate.podspec import SpecError, with_variant
from gputask.translate.template import asked_names, quantity_problems, skeleton

_encode = msgspec.json.Encoder(order="sorted").encode


class TaskError(ManifestError):
    """A GpuTask that cannot be understood: ``lines`` has one line for each problem, each with its field."""


class ClassTable:
    """Interns request classes: tasks that ask the same share one object, which is what the planner works on.

    It remembers every class that it has seen; classes are few, and small beside the objects that they come from.
    """

    def __init__(self) -> None:
        self._by_source: dict[bytes, model.RequestClass] = {}
        self._classes: dict[model.RequestClass, model.RequestClass] = {}

    def intern(self, source: bytes, build: Callable[[], model.RequestClass]) -> model.RequestClass:
        """The class that ``build`` makes of a source; made once for each source, and shared by all that are equal."""
        found = self._by_source.get(source)
        if found is None:
            built = build()
            found = self._by_source[source] = self._classes.setdefault(built, built)
        return found


def read_task(manifest: Mapping[str, Any]) -> GpuTask:
    """A GpuTask of a manifest.

    :raises TaskError: it does not keep the schema.
    """
    try:
        return read(GpuTask, manifest)
    except ManifestError as error:
        raise TaskError(error.lines) from None


def planner_task(task: GpuTask, classes: ClassTable, *, created: float | None = None) -> model.Task:
    """A task as the planner sees it: each variant with all that its pod would ask.

    That is the effective request of the pod that the variant would make, so the template's other containers, init
    containers, overhead and host ports count too.

    :param created: rank time, if it is not the creation timestamp.
    :raises TaskError: variants and template do not go together, or the template cannot be read.
    """
    meta, spec = task.metadata, task.spec
    key = f"{meta.namespace or 'default'}/{meta.name}"
    resolved = task.status.priority  # of priorityClassName
    return model.Task(
        key=key,
        uid=meta.uid or key,
        priority=spec.priority if spec.priority is not None else resolved or 0,
        created=_created(task) if created is None else created,
        request=_request(task, classes),
        time_limit=None if spec.time_limit_seconds is None else float(spec.time_limit_seconds),
        unsupported=tuple(refusals(task)),
        may_preempt=spec.preemption_policy != "Never",
    )


def _created(task: GpuTask) -> float:
    text = task.metadata.creation_timestamp
    try:
        return epoch(text) if text else 0.0
    except ValueError as error:
        raise TaskError([f"metadata.creationTimestamp: {error}"]) from None


def _request(task: GpuTask, classes: ClassTable) -> model.RequestClass:
    if task.spec.template is None:
        return classes.intern(b"lease " + _encode(_variants_source(task)), lambda: _build_lease(task))
    try:
        spec = skeleton(task.spec.template["spec"])
        source = _encode([_variants_source(task), task.spec.device_containers, spec])
        return classes.intern(source, lambda: _build(task, spec))
    except TaskError:
        raise
    except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        # The template is a pod's, and only a server knows all of its schema; what we read of it may be anything.
        text = str(error)[:80] or type(error).__name__
        raise TaskError([f"spec.template: it cannot be read as a pod template: {text}"]) from None


def _variants_source(task: GpuTask) -> Any:
    return [variant.model_dump() for variant in task.spec.variants]


def _build(task: GpuTask, spec: Mapping[str, Any]) -> model.RequestClass:
    present = [container["name"] for container in spec["containers"]]
    receivers = task.spec.device_containers or present[:1]
    lines = [f"spec.template.spec.{line}" for line in quantity_problems(spec)]
    lines += [
        f"spec.deviceContainers: the template has no container {name!r}; it has {', '.join(present)}"
        for name in receivers
        if name not in present
    ]
    if lines:
        raise TaskError(lines)
    variants = []
    for position, variant in enumerate(task.spec.variants):
        try:
            variants.append(_variant(variant, spec, receivers))
        except SpecError as error:
            lines.append(f"spec.variants[{position}].{error.field}: {error}")
    if lines:
        raise TaskError(lines)
    return model.RequestClass(tuple(variants), constraints(spec))


def _build_lease(task: GpuTask) -> model.RequestClass:
    """A lease is no pod: it takes what its variant says and no place among the pods, and tolerates no taint."""
    return model.RequestClass(tuple(_planned(variant, units(variant.resources)) for variant in task.spec.variants))


def _variant(variant: Variant, spec: Mapping[str, Any], receivers: Sequence[str]) -> model.Variant:
    # Names that the template asks must be extended resources wherever its pod runs; all others are pools of ours, or
    # become requests of just as much on the nodes that have them in allocatable.
    pod = with_variant({"spec": spec}, variant, device_containers=receivers, extended=asked_names(spec))
    return _planned(variant, {**units(variant.resources), **pod_amounts(pod)})


def _planned(variant: Variant, amounts: Mapping[str, int]) -> model.Variant:
    return model.Variant(
        name=variant.name,
        amounts=_amounts(amounts),
        devices=_devices(variant.devices),
        min_time=variant.min_time_seconds or 0.0,
        weight=variant.weight or 1.0,
    )


def _devices(request: DeviceRequest | None) -> model.DeviceDemand | None:
    amounts = _amounts(units(request.resources)) if request is not None else ()
    return model.DeviceDemand(request.count, amounts) if request is not None and request.count and amounts else None


def _amounts(amounts: Mapping[str, int]) -> model.Amounts:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
