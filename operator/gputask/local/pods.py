"""Pods on the server's side: defaults, admission, validation, what may change, deletion with grace, binding."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gputask.local.metadata import name_problem
from gputask.local.statuses import (
    Cause,
    conflict,
    duplicate,
    forbidden,
    forbidden_field,
    invalid,
    required,
    unsupported,
)
from gputask.local.strategies import Lookup, Strategy

Object = dict[str, Any]

_SPEC_DEFAULTS: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER_DEFAULTS: Object = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_GRACE_TOLERATIONS = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
)
_FINISHED = ("Succeeded", "Failed")
_CHANGEABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)


class PodStrategy(Strategy):
    """Pods."""

    def on_create(self, obj: Object, lookup: Lookup) -> None:
        spec = obj["spec"] = _defaulted(obj.get("spec") or {})
        _priority(obj, lookup)
        obj["status"] = {"phase": "Pending"}
        if spec.get("schedulingGates"):
            message = "Scheduling is blocked due to non-empty scheduling gates"
            gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
            obj["status"]["conditions"] = [gated]

    def on_update(self, new: Object, old: Object) -> None:
        computed = {key: old["spec"][key] for key in ("priority", "preemptionPolicy") if key in old["spec"]}
        new["spec"] = computed | _defaulted(new.get("spec") or {})

    def problems(self, obj: Object, old: Object | None) -> Iterator[Cause]:
        spec = obj["spec"]
        if old is not None:
            yield from _changes(spec, old["spec"])
            return
        if not spec.get("containers"):
            yield required("spec.containers")
        seen: set[str] = set()
        for field in ("initContainers", "containers"):
            for i, container in enumerate(spec.get(field) or ()):
                yield from _container_problems(container, f"spec.{field}[{i}]", seen)
        if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
            yield unsupported("spec.restartPolicy", spec["restartPolicy"], ["Always", "OnFailure", "Never"])
        if spec["terminationGracePeriodSeconds"] < 0:
            yield invalid("spec.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"], _NOT_NEGATIVE)
        deadline = spec.get("activeDeadlineSeconds")
        if deadline is not None and not 1 <= deadline <= 2**31 - 1:
            yield invalid("spec.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")

    def grace(self, obj: Object, asked: int | None) -> int:
        spec, status = obj["spec"], obj.get("status") or {}
        # Nobody stops a pod that no kubelet has, and nothing is left to stop in one that has ended.
        if not spec.get("nodeName") or status.get("phase") in _FINISHED:
            return 0
        seconds = spec["terminationGracePeriodSeconds"] if asked is None else asked
        return int(seconds) if seconds >= 0 else 1


_NOT_NEGATIVE = "must be greater than or equal to 0"


def _defaulted(given: Object) -> Object:
    spec = {**_SPEC_DEFAULTS, **given}
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [_container(container) for container in spec[field]]
    spec["tolerations"] = _tolerations(given.get("tolerations") or [])
    return spec


def _container(container: Object) -> Object:
    full = {**_CONTAINER_DEFAULTS, **container}
    _, _, tag = str(full.get("image", "")).rpartition("/")[2].partition(":")
    full.setdefault("imagePullPolicy", "IfNotPresent" if tag and tag != "latest" else "Always")
    resources = full["resources"]
    if limits := resources.get("limits"):
        full["resources"] = {**resources, "requests": {**limits, **(resources.get("requests") or {})}}
    if "ports" in full:
        full["ports"] = [{"protocol": "TCP", **port} for port in full["ports"]]
    return full


def _tolerations(given: list[Object]) -> list[Object]:
    def tolerated(key: str) -> bool:
        return any(t.get("key") in (None, "", key) and t.get("effect") in (None, "", "NoExecute") for t in given)

    return [*given, *(dict(t) for t in _GRACE_TOLERATIONS if not tolerated(str(t["key"])))]


def _priority(obj: Object, lookup: Lookup) -> None:
    """What the Priority admission plugin does: the class' number into the spec."""
    spec, name = obj["spec"], obj["spec"].get("priorityClassName")
    found: Object = {}
    if name:
        stored = lookup("priorityclasses.scheduling.k8s.io", name)
        if stored is None:
            raise forbidden("", "pods", obj["metadata"]["name"], f"no PriorityClass with name {name} was found")
        found = stored
    value = found.get("value", 0)
    if spec.get("priority") not in (None, value):
        why = "the integer value of priority must not be provided in pod spec; priority admission controller computed"
        raise forbidden("", "pods", obj["metadata"]["name"], f"{why} {value} from the given PriorityClass name")
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", found.get("preemptionPolicy", "PreemptLowerPriority"))


def _container_problems(container: Object, path: str, seen: set[str]) -> Iterator[Cause]:
    name = container.get("name")
    if not name:
        yield required(f"{path}.name")
    elif why := name_problem(name, label=True):
        yield invalid(f"{path}.name", name, why)
    elif name in seen:
        yield duplicate(f"{path}.name", json.dumps(name))
    else:
        seen.add(name)
    if not container.get("image"):
        yield required(f"{path}.image")
    for i, env in enumerate(container.get("env") or ()):
        if not env.get("name"):
            yield required(f"{path}.env[{i}].name")
        if env.get("value") and env.get("valueFrom"):
            yield invalid(f"{path}.env[{i}].valueFrom", "", "may not be specified when `value` is not empty")


def _changes(new: Object, old: Object) -> Iterator[Cause]:
    """A pod's spec is fixed, but for images, the deadline, more tolerations, and gates that are lifted."""
    before = {json.dumps(t, sort_keys=True) for t in old.get("tolerations") or ()}
    after = {json.dumps(t, sort_keys=True) for t in new.get("tolerations") or ()}
    gates = [gate for gate in new.get("schedulingGates") or () if gate not in (old.get("schedulingGates") or ())]
    if gates:
        hint = "only deletion is allowed, but found new scheduling gates"
        yield forbidden_field("spec.schedulingGates", hint)
    elif not before <= after or _fixed(new, old) != _fixed(old, old):
        yield forbidden_field("spec", f"pod updates may not change fields other than {_CHANGEABLE}")


def _fixed(spec: Object, old: Object) -> Object:
    loose = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if old.get("schedulingGates"):
        # While a pod is gated its node constraints may be narrowed; that they are not widened is not judged here.
        loose |= {"nodeSelector", "affinity"}
    fixed = {key: value for key, value in spec.items() if key not in loose}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in container.items() if k != "image"} for container in fixed[field]]
    return fixed


def bound(pod: Object, binding: Object, when: str) -> Object:
    """The pod with a Binding applied: node, annotations and labels in one write.

    Raises: StatusError 409 as the real server does, for a pod that is terminating, bound, or gated.
    """
    meta, spec = pod["metadata"], pod["spec"]
    name = meta["name"]
    if meta.get("deletionTimestamp"):
        raise _unbindable(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _unbindable(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _unbindable(name, f"pod {name} has non-empty .spec.schedulingGates")
    given = binding.get("metadata") or {}
    merged = {
        field: {**(meta.get(field) or {}), **(given.get(field) or {})}
        for field in ("annotations", "labels")
        if meta.get(field) or given.get(field)
    }
    status = pod.get("status") or {}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": when}
    others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
    return {
        **pod,
        "metadata": {**meta, **merged},
        "spec": {**spec, "nodeName": binding["target"]["name"]},
        "status": {**status, "conditions": [*others, scheduled]},
    }


def _unbindable(name: str, why: str) -> Exception:
    return conflict("", "pods/binding", name, why)


def binding_problems(binding: Object) -> Iterator[Cause]:
    """What is wrong with a Binding itself."""
    target = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        yield unsupported("target.kind", target["kind"], ["Node", "<empty>"])
    if not target.get("name"):
        yield required("target.name")
