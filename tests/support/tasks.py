"""GpuTask manifests for tests: each part that does not matter has a default."""

from typing import Any

Manifest = dict[str, Any]

CONTAINER: Manifest = {"name": "main", "image": "busybox"}


def variant(name: str = "v0", devices: Manifest | None = None, **resources: Any) -> Manifest:
    """A variant by its resources; underscores stay: give other names as ``**{"gpuSlot/0": 1}``."""
    return {"name": name, "resources": resources, **({"devices": devices} if devices else {})}


def template(*containers: Manifest, **spec: Any) -> Manifest:
    return {"spec": {"containers": list(containers) or [CONTAINER], **spec}}


def gputask(*variants: Manifest, name: str = "t1", metadata: Manifest | None = None, **spec: Any) -> Manifest:
    """A whole GpuTask; ``variants`` default to one that asks one cpu."""
    return {
        "apiVersion": "gputask.dev/v1alpha1",
        "kind": "GpuTask",
        "metadata": {"name": name, "namespace": "default", **(metadata or {})},
        "spec": {"variants": list(variants) or [variant(cpu=1)], "template": template(), **spec},
    }
