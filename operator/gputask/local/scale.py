"""The scale subresource of custom resources: a view on three of an object's fields."""

from __future__ import annotations

from typing import Any

from gputask.local.kinds import Path, Resource

Object = dict[str, Any]


def scale_of(resource: Resource, obj: Object) -> Object:
    """The autoscaling/v1 Scale of an object."""
    paths = resource.scale
    assert paths is not None
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": _read(obj, paths.status) or 0}
    if paths.selector and (selector := _read(obj, paths.selector)):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in kept if name in meta},
        "spec": {"replicas": _read(obj, paths.spec) or 0},
        "status": status,
    }


def scaled(resource: Resource, obj: Object, scale: Any) -> Object:
    """The object with the replicas of a Scale, under the Scale's resourceVersion if it has one."""
    paths = resource.scale
    assert paths is not None
    asked = scale.get("metadata") or {}
    meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    meta |= {key: asked[key] for key in ("resourceVersion", "uid") if asked.get(key)}
    new = _write(obj, paths.spec, (scale.get("spec") or {}).get("replicas", 0))
    return {**new, "metadata": meta}


def _read(obj: Any, path: Path) -> Any:
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _write(obj: Any, path: Path, value: Any) -> Object:
    step, *rest = path
    inner = obj.get(step) if isinstance(obj, dict) else None
    return {**(obj or {}), step: _write(inner, tuple(rest), value) if rest else value}
