"""Pods whose kubelet will never report their end: of nodes that are gone, or that somebody marked as out of service."""

from __future__ import annotations

import asyncio
from typing import Any

from gputask.local.kinds import Resource
from gputask.local.objects import Deletion, Objects, Options
from gputask.local.store import Event, Key

Object = dict[str, Any]

LOST_NODE_SECONDS = 40.0
"""How long a pod may be bound to a node that nobody knows (the real pod collector's quarantine)."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_FINISHED = ("Succeeded", "Failed")


class LostPodCollector:
    """A role of the controllers: removes the pods of a node that is gone."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def on_change(self, resource: str, event: Event) -> None:
        if resource == "nodes" and event.type == "DELETED":
            self._collect(event.now.obj["metadata"]["name"])
        elif resource == "pods" and event.type != "DELETED":
            node = _node(event.now.obj)
            newly_bound = node and (event.before is None or not _node(event.before.obj))
            if newly_bound and _stored_node(self._objects, node) is None:
                # A node object may come a little after its first pod.
                asyncio.get_running_loop().call_later(LOST_NODE_SECONDS, self._collect, node)

    def _collect(self, node: str) -> None:
        if _stored_node(self._objects, node) is None:
            for key, pod in _pods_on(self._objects, node):
                lost = _disrupted(self._objects, "DeletionByPodGC", "PodGC: node no longer exists")
                _fail_and_delete(self._objects, key, pod, lost)


class OutOfServiceCollector:
    """A role of the controllers: pods of a node with the taint ``node.kubernetes.io/out-of-service``.

    NoExecute deletes the pods there (the taint manager's part); while the node is not Ready, those that are being
    deleted are removed by force (the pod collector's part), which a silent kubelet would never allow.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def on_change(self, resource: str, event: Event) -> None:
        if resource not in ("nodes", "pods") or event.type == "DELETED":
            return
        obj = event.now.obj
        node = _stored_node(self._objects, obj["metadata"]["name"] if resource == "nodes" else _node(obj))
        if node is None or not (effects := _out_of_service(node)):
            return
        for key, pod in _pods_on(self._objects, node["metadata"]["name"]):
            self._judge(key, pod, node, effects)

    def _judge(self, key: Key, pod: Object, node: Object, effects: set[str]) -> None:
        terminating = bool(pod["metadata"].get("deletionTimestamp"))
        if not terminating and "NoExecute" in effects and not _tolerates(pod):
            reason = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
            _put_status(self._objects, key, pod, {}, _disrupted(self._objects, *reason))
            self._objects.delete(_pods(self._objects), key)
        elif terminating and not _is_ready(node):
            _fail_and_delete(self._objects, key, pod, None)


def _out_of_service(node: Object) -> set[str]:
    """The effects of the taint; empty without it."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return {str(taint.get("effect")) for taint in taints if taint["key"] == OUT_OF_SERVICE}


def _tolerates(pod: Object) -> bool:
    return any(
        t.get("key") in (None, "", OUT_OF_SERVICE) and t.get("effect") in (None, "", "NoExecute")
        for t in pod["spec"].get("tolerations") or ()
    )


def _is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _node(pod: Object) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _stored_node(objects: Objects, name: str) -> Object | None:
    nodes = objects.kinds.by_key("nodes")
    assert nodes is not None
    version = objects.kinds.table(nodes).rows.get(("", name))
    return version.obj if version else None


def _pods(objects: Objects) -> Resource:
    pods = objects.kinds.by_key("pods")
    assert pods is not None
    return pods


def _pods_on(objects: Objects, node: str) -> list[tuple[Key, Object]]:
    rows = objects.kinds.table(_pods(objects)).rows.items()
    return [(key, version.obj) for key, version in rows if _node(version.obj) == node]


def _disrupted(objects: Objects, reason: str, message: str) -> Object:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return {**condition, "lastTransitionTime": objects.timestamp()}


def _fail_and_delete(objects: Objects, key: Key, pod: Object, condition: Object | None) -> None:
    """The end of a pod is on record before the pod goes, as from the real pod collector."""
    if (pod.get("status") or {}).get("phase") not in _FINISHED:
        _put_status(objects, key, pod, {"phase": "Failed"}, condition)
    objects.delete(_pods(objects), key, Deletion(grace=0))


def _put_status(objects: Objects, key: Key, pod: Object, more: Object, condition: Object | None) -> None:
    status = {**(pod.get("status") or {}), **more}
    if condition is not None:
        others = [c for c in status.get("conditions") or () if c["type"] != condition["type"]]
        status["conditions"] = [*others, condition]
    objects.update(_pods(objects), key, {**pod, "status": status}, Options(), subresource="status", whole=False)
