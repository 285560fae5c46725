"""What the controller keeps of pods and nodes: with thousands of them, most of what the API says of one is in the way.

A cache only: what is written to the cluster is never made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputask.ledger.pods import ALLOCATION_ENV

Manifest = Mapping[str, Any]

_OF_POD = (
    "nodeName",
    "hostNetwork",
    "overhead",
    "resources",
    "schedulerName",
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
)
_OF_CONTAINER = ("name", "resources", "ports", "restartPolicy")
_OF_NODE = ("allocatable", "conditions")


def trim_pod(pod: Manifest) -> dict[str, Any]:
    """Whose it is, where it is, what it asks, how it is, and our own literals: no images, commands, volumes."""
    spec = pod.get("spec") or {}
    kept = {key: spec[key] for key in _OF_POD if key in spec}
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            kept[kind] = [_container(container) for container in spec[kind]]
    return {**pod, "spec": kept}


def _container(container: Manifest) -> dict[str, Any]:
    kept = {key: container[key] for key in _OF_CONTAINER if key in container}
    literals = [env for env in container.get("env") or () if env.get("name") == ALLOCATION_ENV]
    return {**kept, "env": literals} if literals else kept


def trim_node(node: Manifest) -> dict[str, Any]:
    """All but most of its status: the list of its images alone is larger than the rest."""
    status = node.get("status") or {}
    return {**node, "status": {key: status[key] for key in _OF_NODE if key in status}}
