"""The pod of one attempt: the template with the chosen variant as requests, and what the container is told.

What was decided stands in the spec as literals: nobody can change it afterwards, and nobody has to be asked for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gputask.api import names
from gputask.api.gputask import GpuTask
from gputask.ledger.pods import Literals, allocation_env, pod_name
from gputask.resources.amounts import format_amount
from gputask.resources.names import LABELS_SUFFIX, env_name
from gputask.resources.pools import Allocation
from gputask.translate.podspec import with_variant


def manifest(task: GpuTask, *, attempt: int, literals: Literals, extended: Collection[str]) -> dict[str, Any]:
    """The pod for ``attempt`` of a Direct task, to be bound to ``literals.node``.

    ``extended`` are the resources in that node's allocatable: of a variant's own names only those can become requests.
    """
    template = task.spec.template
    assert template is not None, "a lease has no pod"
    receivers = device_containers(task)
    variant = task.spec.variants[literals.variant_index]
    spec = with_variant(template, variant, device_containers=receivers, extended=extended)
    spec["schedulerName"] = names.SCHEDULER_NAME
    spec.setdefault("restartPolicy", "Never")
    if task.spec.time_limit_seconds is not None:
        spec["activeDeadlineSeconds"] = task.spec.time_limit_seconds
    told = environment(literals)
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        extra = told if container["name"] in receivers else [_env(names.VISIBLE_DEVICES_ENV, names.NO_DEVICES)]
        carries = [allocation_env(literals)] if container["name"] == receivers[0] else []
        container["env"] = [*(container.get("env") or ()), *extra, *carries]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(task, template, attempt), "spec": spec}


def device_containers(task: GpuTask) -> Sequence[str]:
    """The containers that get the devices: those named, else the first one."""
    first = task.spec.template["spec"]["containers"][:1] if task.spec.template is not None else []
    return task.spec.device_containers or [container["name"] for container in first]


def environment(literals: Literals) -> list[dict[str, str]]:
    """What a container that gets the devices is told.

    ``GPUTASK_<RESOURCE>`` is the amount, and ``GPUTASK_<RESOURCE>_LABELS`` the labels of an indexed pool. For pools of
    devices both have one value for each device, in the order of ``GPUTASK_DEVICES``: amounts are separated by commas,
    the labels of one device by ``+``.
    """
    devices = ",".join(literals.allocation.devices) or names.NO_DEVICES
    told = {names.VARIANT_ENV: literals.variant, names.DEVICES_ENV: devices, names.VISIBLE_DEVICES_ENV: devices}
    for resource, keys in _keys_by_resource(literals.allocation).items():
        amounts = literals.allocation.amounts
        told[env_name(resource)] = ",".join(format_amount(amounts[key]) for key in keys)
        labels = ["+".join(literals.allocation.labels.get(key, ())) for key in keys]
        if any(labels):
            told.setdefault(env_name(resource) + LABELS_SUFFIX, ",".join(labels))
    return [_env(name, value) for name, value in told.items()]


def _keys_by_resource(allocation: Allocation) -> Mapping[str, list[str]]:
    """The flat keys of each resource; pools of devices in the order in which the devices are handed over."""
    order = {device: position for position, device in enumerate(allocation.devices)}
    found: dict[str, list[str]] = {}
    for key in sorted(allocation.amounts, key=lambda key: order.get(key.rpartition("/")[2], -1)):
        if ":" in key or key == "pods":
            continue  # implicit pools (host ports, the number of pods) say nothing to a container
        name, _, suffix = key.rpartition("/")
        found.setdefault(name if name and suffix in order else key, []).append(key)
    return found


def _metadata(task: GpuTask, template: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    given = template.get("metadata") or {}
    simulated = {
        name: value for name, value in (task.metadata.annotations or {}).items() if name.startswith(names.SIM_PREFIX)
    }
    return {
        "name": pod_name(task.metadata.uid or "", attempt),
        "namespace": task.metadata.namespace,
        "labels": {
            **(given.get("labels") or {}),
            names.TASK_LABEL: task.metadata.name,
            names.TASK_UID_LABEL: task.metadata.uid,
        },
        "annotations": {**simulated, **(given.get("annotations") or {}), names.ATTEMPT_ANNOTATION: str(attempt)},
        "ownerReferences": [
            {
                "apiVersion": names.API_VERSION,
                "kind": names.GPUTASK_KIND,
                "name": task.metadata.name,
                "uid": task.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def _env(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}
