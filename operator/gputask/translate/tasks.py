"""GpuTasks: read from a manifest, and how the planner sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from gputask.api.gputask import GpuTask, Variant
from gputask.api.problems import problems
from gputask.api.times import epoch
from gputask.planner import model
from gputask.resources.amounts import AmountError, parse_amount
from gputask.resources.names import collision
from gputask.translate.direct import refusals
from gputask.translate.pods import constraints, pod_amounts
from gputask.translate.podspec import SpecError, with_variant


class TaskError(ValueError):
    """A GpuTask that cannot be understood: one line for each problem, each with its field."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = tuple(lines)


class ClassTable:
    """Interns request classes: tasks that ask the same share one object, which is what the planner works on.

    It remembers every class that it has seen; classes are few, and small beside the objects that they come from.
    """

    def __init__(self) -> None:
        self._classes: dict[model.RequestClass, model.RequestClass] = {}

    def intern(self, request: model.RequestClass) -> model.RequestClass:
        return self._classes.setdefault(request, request)


class _Everything:
    """Contains every name: before a node is chosen, whatever a variant asks counts as a request of the pod."""

    def __contains__(self, _: object) -> bool:
        return True


def read_task(manifest: Mapping[str, Any]) -> GpuTask:
    """A GpuTask of a manifest.

    :raises TaskError: it does not keep the schema.
    """
    try:
        return GpuTask.model_validate(manifest)
    except ValidationError as error:
        raise TaskError(problems(error, GpuTask)) from None


def planner_task(task: GpuTask, classes: ClassTable, *, created: float | None = None) -> model.Task:
    """A task as the planner sees it: each variant with all that its pod would ask.

    That is the effective request of the pod that the variant would make, so the template's other containers, init
    containers, overhead and host ports count too.

    :param created: rank time, if it is not the creation timestamp.
    :raises TaskError: variants and template do not go together.
    """
    lines: list[str] = []
    request = None
    try:
        request = _request(task, lines)
    except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        # The template is a pod's, and only a server knows all of its schema; what we read of it may be anything.
        lines.append(f"spec.template: it cannot be read as a pod template: {str(error)[:80] or type(error).__name__}")
    if lines or request is None:
        raise TaskError(lines)
    meta, spec = task.metadata, task.spec
    key = f"{meta.namespace or 'default'}/{meta.name}"
    resolved = task.status.priority if task.status is not None else None  # of priorityClassName
    if created is None:
        created = epoch(meta.creation_timestamp) if meta.creation_timestamp else 0.0
    return model.Task(
        key=key,
        uid=meta.uid or key,
        priority=spec.priority if spec.priority is not None else resolved or 0,
        created=created,
        request=classes.intern(request),
        time_limit=None if spec.time_limit_seconds is None else float(spec.time_limit_seconds),
        unsupported=tuple(refusals(task)),
    )


def _request(task: GpuTask, lines: list[str]) -> model.RequestClass | None:
    template = task.spec.template
    if template is None:
        return model.RequestClass(tuple(_variant(v, dict(_amounts(v))) for v in task.spec.variants))
    present = [c["name"] for c in template["spec"]["containers"]]
    receivers = task.spec.device_containers or present[:1]
    lines += [
        f"spec.deviceContainers: the template has no container {name!r}; it has {', '.join(present)}"
        for name in receivers
        if name not in present
    ]
    if lines:
        return None
    variants = []
    for position, variant in enumerate(task.spec.variants):
        asked = [*variant.resources, *(variant.devices.resources if variant.devices else ())]
        if (clash := collision(asked)) is not None:
            lines.append(f"spec.variants[{position}]: {clash}")
        try:
            spec = with_variant(template, variant, device_containers=receivers, extended=_Everything())
            variants.append(_variant(variant, pod_amounts(spec)))
        except SpecError as error:
            lines.append(f"spec.variants[{position}].{error.field}: {error}")
        except AmountError as error:
            lines.append(f"spec.template: a container's resources: {error}")
            break
    return None if lines else model.RequestClass(tuple(variants), constraints(template["spec"]))


def _amounts(variant: Variant) -> Iterator[tuple[str, int]]:
    for name, value in variant.resources.items():
        yield name, parse_amount(value, name, rounding="up")


def _variant(variant: Variant, amounts: Mapping[str, int]) -> model.Variant:
    return model.Variant(
        name=variant.name,
        amounts=tuple(sorted((name, units) for name, units in amounts.items() if units)),
        devices=_devices(variant),
        min_time=float(variant.min_time_seconds or 0),
        weight=float(variant.weight or 1),
    )


def _devices(variant: Variant) -> model.DeviceDemand | None:
    if variant.devices is None:
        return None
    amounts = {name: parse_amount(value, name, rounding="up") for name, value in variant.devices.resources.items()}
    pairs = tuple(sorted((name, units) for name, units in amounts.items() if units))
    return model.DeviceDemand(variant.devices.count, pairs) if pairs and variant.devices.count else None
