"""What kube-controller-manager does that the product relies on: garbage collection, namespaces and CRDs that empty
before they go, pods of nodes that are lost or out of service, taints that follow a node's conditions, and disruption
budgets.

The roles are told of every change after it was stored, one by one, in steps of the event loop between requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from gputask.local.collect import OwnerCollector, drop_finalizer
from gputask.local.crds import CLEANUP
from gputask.local.crds import KEY as CRDS
from gputask.local.disruption import BudgetKeeper
from gputask.local.objects import Objects, Options
from gputask.local.pod_gc import LostPodCollector, OutOfServiceCollector
from gputask.local.statuses import StatusError
from gputask.local.store import Event

Object = dict[str, Any]

logger = logging.getLogger(__name__)

STEP = 100
"""Changes handled before requests get their turn again."""


class Controllers:
    """All roles, over one queue of changes."""

    def __init__(self, objects: Objects) -> None:
        self._queue: deque[tuple[str, Event]] = deque()
        self._scheduled = False
        self._roles = (
            OwnerCollector(objects),
            NamespaceEmptier(objects),
            CrdEmptier(objects),
            LostPodCollector(objects),
            OutOfServiceCollector(objects),
            NodeTainter(objects),
            BudgetKeeper(objects),
        )
        objects.store.listeners.append(self._on_change)

    def _on_change(self, resource: str, event: Event) -> None:
        self._queue.append((resource, event))
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        for _ in range(min(STEP, len(self._queue))):
            change = self._queue.popleft()
            for role in self._roles:
                try:
                    role.on_change(*change)
                except StatusError as error:
                    # Changes are told late: what a role acts on may have gone, or is terminating, by now.
                    logger.info("%s: %s", type(role).__name__, error.message)
        self._scheduled = bool(self._queue)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._step)


class NamespaceEmptier:
    """Deletes what is in a terminating namespace, and then lets it go."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._terminating: set[str] = set()

    def on_change(self, resource: str, event: Event) -> None:
        meta = event.now.obj["metadata"]
        if resource == "namespaces":
            if event.type == "DELETED":
                self._terminating.discard(meta["name"])
            elif meta.get("deletionTimestamp") and meta["name"] not in self._terminating:
                self._terminating.add(meta["name"])
                self._empty(meta["name"])
        elif event.type == "DELETED" and meta.get("namespace") in self._terminating:
            self._finish(meta["namespace"])

    def _empty(self, namespace: str) -> None:
        for resource in self._objects.kinds:
            for key in [key for key in self._objects.kinds.table(resource).rows if key[0] == namespace]:
                self._objects.delete(resource, key)
        self._finish(namespace)

    def _finish(self, namespace: str) -> None:
        namespaces = self._objects.kinds.by_key("namespaces")
        assert namespaces is not None
        key = ("", namespace)
        if key not in self._objects.kinds.table(namespaces).rows:
            return
        if any(key[0] == namespace for _, table in self._objects.store.tables() for key in table.rows):
            return
        old = self._objects.get(namespaces, *key).obj
        new = {**old, "metadata": dict(old["metadata"]), "spec": {"finalizers": []}}
        self._objects.store_update(namespaces, self._objects.kinds.table(namespaces), key, new, dry_run=False)


class CrdEmptier:
    """Deletes the objects of a terminating CRD, and then lets it go."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._terminating: set[str] = set()

    def on_change(self, resource: str, event: Event) -> None:
        meta = event.now.obj["metadata"]
        if resource == CRDS:
            if event.type == "DELETED":
                self._terminating.discard(meta["name"])
            elif meta.get("deletionTimestamp") and meta["name"] not in self._terminating:
                self._terminating.add(meta["name"])
                self._empty(meta["name"])
        elif event.type == "DELETED" and resource in self._terminating:
            self._finish(resource)

    def _empty(self, name: str) -> None:
        if (resource := self._objects.kinds.by_key(name)) is not None:
            for key in list(self._objects.kinds.table(resource).rows):
                self._objects.delete(resource, key)
        self._finish(name)

    def _finish(self, name: str) -> None:
        resource = self._objects.kinds.by_key(name)
        crds = self._objects.kinds.by_key(CRDS)
        assert crds is not None
        if ("", name) not in self._objects.kinds.table(crds).rows:
            return
        if resource is None or not self._objects.kinds.table(resource).rows:
            drop_finalizer(self._objects, crds, ("", name), CLEANUP)


NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class NodeTainter:
    """Keeps the NoSchedule taints of a node equal to what its Ready condition and its cordon say."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def on_change(self, resource: str, event: Event) -> None:
        if resource != "nodes" or event.type == "DELETED":
            return
        nodes = self._objects.kinds.by_key("nodes")
        assert nodes is not None
        key = ("", event.now.obj["metadata"]["name"])
        version = self._objects.kinds.table(nodes).rows.get(key)
        if version is None:
            return
        node = version.obj
        spec = node.get("spec") or {}
        taints = [taint for taint in spec.get("taints") or () if not _ours(taint, node)]
        have = {taint["key"] for taint in taints if taint.get("effect") == "NoSchedule"}
        taints += [{"key": name, "effect": "NoSchedule"} for name in _wanted(node) if name not in have]
        if taints == (spec.get("taints") or []):
            return
        kept = {key: value for key, value in spec.items() if key != "taints"}
        new = {**node, "spec": kept | ({"taints": taints} if taints else {})}
        self._objects.update(nodes, key, new, Options(), whole=False)


def _ready(node: Object) -> str | None:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((condition.get("status") for condition in conditions if condition.get("type") == "Ready"), None)


def _wanted(node: Object) -> list[str]:
    wanted = [UNSCHEDULABLE] if (node.get("spec") or {}).get("unschedulable") else []
    # A node that has not reported yet keeps the taint that it was created with.
    return wanted + {"False": [NOT_READY], "Unknown": [UNREACHABLE]}.get(_ready(node) or "", [])


def _ours(taint: Object, node: Object) -> bool:
    """A taint of this role that no longer holds."""
    if taint.get("effect") != "NoSchedule" or taint["key"] in _wanted(node):
        return False
    return taint["key"] == UNSCHEDULABLE or (taint["key"] in (NOT_READY, UNREACHABLE) and _ready(node) is not None)
