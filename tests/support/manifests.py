"""Manifests as a user writes them, written short."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]


def node(
    name: str, *, declares: Mapping[str, Any] | str | None = None, devices: str | None = None, **allocatable: Any
) -> Manifest:
    """``declares`` becomes the annotation gputask.dev/resources."""
    annotations = {}
    if declares is not None:
        annotations["gputask.dev/resources"] = declares if isinstance(declares, str) else yaml.safe_dump(declares)
    if devices is not None:
        annotations["gputask.dev/devices"] = devices
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations},
        "status": {"allocatable": {key: str(amount) for key, amount in allocatable.items()}},
    }


def variant(name: str = "v0", *, devices: Manifest | None = None, **resources: Any) -> Manifest:
    """``gpuSlot__0`` is written for ``gpuSlot/0``."""
    found: Manifest = {"name": name, "resources": {key.replace("__", "/"): value for key, value in resources.items()}}
    return {**found, "devices": devices} if devices else found


def gputask(name: str, *variants: Manifest, namespace: str = "default", **spec: Any) -> Manifest:
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    return {
        "apiVersion": "gputask.dev/v1alpha1",
        "kind": "GpuTask",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"variants": list(variants), "template": template, **spec},
    }


def pod(name: str, *, on: str | None = None, phase: str = "Running", **requests: Any) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": on,
            "containers": [{"name": "main", "resources": {"requests": {k: str(v) for k, v in requests.items()}}}],
        },
        "status": {"phase": phase},
    }


def annotated(manifest: Manifest, **sim: Any) -> Manifest:
    """With ``sim.gputask.dev/`` annotations; ``exit_code`` is written for ``exit-code``."""
    annotations = manifest["metadata"].setdefault("annotations", {})
    annotations.update({f"sim.gputask.dev/{key.replace('_', '-')}": str(value) for key, value in sim.items()})
    return manifest


def meta(manifest: Manifest, **metadata: Any) -> Manifest:
    """With more metadata."""
    manifest["metadata"].update(metadata)
    return manifest


def reserved(manifest: Manifest, phase: str = "Running", **reservation: Any) -> Manifest:
    """A GpuTask whose status holds a reservation."""
    manifest["status"] = {"phase": phase, "reservation": reservation}
    return manifest


def write(folder: Path, *manifests: Manifest, name: str = "all.yaml") -> str:
    """One file with one document for each manifest; its path."""
    path = folder / name
    path.write_text(yaml.safe_dump_all(manifests, sort_keys=False))
    return str(path)
