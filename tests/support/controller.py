"""Builders for tests of the controller: manifests as the API gives them."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

CONTAINER: Object = {"name": "main", "image": "busybox"}


def task(
    name: str = "t",
    *,
    uid: str = "",
    version: str = "",
    status: Object | None = None,
    sim: dict[str, str] | None = None,
    grace: int | None = None,
    **spec: Any,
) -> Object:
    """A GpuTask that asks for one cpu unless ``variants`` says otherwise; ``sim`` are its annotations for simulated
    nodes, ``grace`` the seconds its pod has to stop. Without ``uid`` it is a manifest as a user writes it."""
    spec.setdefault("variants", [variant(cpu=1)])
    template: Object = {"spec": {"containers": [dict(CONTAINER)]}}
    if grace is not None:
        template["spec"]["terminationGracePeriodSeconds"] = grace
    if "lease" not in spec:
        spec.setdefault("template", template)
    found: Object = {
        "apiVersion": "gputask.dev/v1alpha1",
        "kind": "GpuTask",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
    if sim:
        found["metadata"]["annotations"] = {f"sim.gputask.dev/{key}": value for key, value in sim.items()}
    if uid:
        found["metadata"] |= {"uid": uid, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    if version:
        found["metadata"]["resourceVersion"] = version
    if status is not None:
        found["status"] = status
    return found


def variant(name: str = "v", *, devices: Object | None = None, **resources: Any) -> Object:
    """One alternative; ``gpuSlot__0`` in a keyword is ``gpuSlot/0``."""
    found: Object = {"name": name, "resources": {key.replace("__", "/"): value for key, value in resources.items()}}
    if devices is not None:
        found["devices"] = devices
    return found


def on_device(name: str = "gpu", count: int = 1, *, cpu: Any = 1, **resources: Any) -> Object:
    """A variant that asks for ``resources`` on each of ``count`` devices."""
    return variant(name, devices={"count": count, "resources": resources}, cpu=cpu)


def pod(
    name: str = "p",
    *,
    uid: str = "p1",
    owner: str = "",
    node: str = "",
    version: str = "",
    phase: str = "Pending",
    **status: Any,
) -> Object:
    """A pod as stored; ``owner`` is the UID of the GpuTask that controls it."""
    metadata: Object = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": version or None}
    if owner:
        metadata["ownerReferences"] = [{"kind": "GpuTask", "name": "t", "uid": owner, "controller": True}]
    spec: Object = {"containers": [dict(CONTAINER)]}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase, **status},
    }


class FakeClock:
    """Seconds that pass only when a test says so."""

    def __init__(self, start: float = 1_000.0) -> None:
        self.seconds = start

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
