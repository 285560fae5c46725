"""One store of everything the controller has seen, and who must look again after a change.

The store holds manifests as the API gave them; it judges nothing. Events come from Kopf (tasks and
nodes) and from informers (pods and GpuNodes), and from our own writes, whose replies are put in at once. Any of
them may be late, so a reader treats the store as a cache: what must be true is checked by compare-and-swap.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from gputask.api.names import QUEUE_ANNOTATION
from gputask.kube.packed import Packed
from gputask.ledger.pods import Manifest, is_terminal, task_uid_of, uid_of
from gputask.translate.budgets import Budget, budget_of

_TOMBSTONES = 10_000
_LAST_WORDS = 1_000
_VERSIONS = 8


@dataclass(slots=True)
class Dirty:
    """What changed since one consumer last looked. ``wake`` is set as long as something is in it."""

    tasks: set[str] = field(default_factory=set)
    """UIDs of GpuTasks."""
    nodes: set[str] = field(default_factory=set)
    """Names of nodes."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def mark(self, *, task: str | None = None, node: str | None = None) -> None:
        if task:
            self.tasks.add(task)
        if node:
            self.nodes.add(node)
        self.wake.set()

    def take(self, most: int) -> tuple[list[str], list[str]]:
        """Take at most so many tasks and nodes out of it: UIDs and names to look at again."""
        tasks = [self.tasks.pop() for _ in range(min(most, len(self.tasks)))]
        nodes = [self.nodes.pop() for _ in range(min(most, len(self.nodes)))]
        if not self.tasks and not self.nodes:
            self.wake.clear()
        return tasks, nodes


def name_of(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


def key_of(manifest: Manifest) -> str:
    """``namespace/name``."""
    metadata = manifest["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


class Store:
    """Tasks and pods by UID; nodes, GpuNodes and priority classes by name; indexes from nodes and tasks to pods."""

    def __init__(self) -> None:
        self.tasks = Packed()
        self.nodes: dict[str, Manifest] = {}
        self.gpunodes = Packed()
        self.pods: dict[str, Manifest] = {}
        self.priority_classes: dict[str, int] = {}
        self.budgets: dict[str, dict[str, Budget]] = {}
        """By namespace, then by name."""
        self.queue_modes: dict[str, str] = {}
        """The queue annotation of each namespace that has one."""
        self._pods_on_node: defaultdict[str, set[str]] = defaultdict(set)
        self._pods_of_task: defaultdict[str, set[str]] = defaultdict(set)
        self._uid_of_task: dict[str, str] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._ended: OrderedDict[str, Manifest] = OrderedDict()
        self._versions: dict[str, tuple[str, ...]] = {}
        """The latest versions of each object, the newest last. (A deque is 600 bytes.)"""
        self._consumers: list[Dirty] = []

    def subscribe(self) -> Dirty:
        """A new consumer; everything known is dirty for it."""
        dirty = Dirty(set(self.tasks), self.nodes.keys() | self.gpunodes.keys())
        dirty.wake.set()
        self._consumers.append(dirty)
        return dirty

    def task(self, uid: str) -> Manifest | None:
        return self.tasks.get(uid)

    def task_uids(self) -> Iterable[str]:
        """Tasks that are known themselves, or by a pod of theirs."""
        return self.tasks.keys() | self._pods_of_task.keys()

    def pods_on(self, node: str) -> Iterable[Manifest]:
        """Pods bound there, and unbound pods nominated to it."""
        return (self.pods[uid] for uid in self._pods_on_node.get(node, ()))

    def pods_of(self, task_uid: str) -> Iterable[Manifest]:
        return (self.pods[uid] for uid in self._pods_of_task.get(task_uid, ()))

    def last_words(self, pod_uid: str) -> Manifest | None:
        """A pod of ours as it ended, also if it was deleted right afterwards; None if nobody saw it end."""
        pod = self.pods.get(pod_uid) or self._ended.get(pod_uid)
        return pod if pod is not None and is_terminal(pod) else None

    # --- changes --------------------------------------------------------------------------------------

    def put_task(self, task: Manifest) -> None:
        uid, key = uid_of(task), key_of(task)
        if self._is_old(task):
            return
        before = self._uid_of_task.get(key)
        if before is not None and before != uid:
            # The name was taken anew and the DELETED of the first one got lost in a gap of the watch.
            self.drop_task(self.tasks[before])
        self.tasks[uid] = task
        self._uid_of_task[key] = uid
        self._mark(task=uid)

    def drop_task(self, task: Manifest) -> None:
        uid, key = uid_of(task), key_of(task)
        self._bury(uid)
        self.tasks.pop(uid, None)
        if self._uid_of_task.get(key) == uid:
            del self._uid_of_task[key]
        self._mark(task=uid)

    def put_node(self, node: Manifest) -> None:
        if not self._is_old(node):
            self.nodes[name_of(node)] = node
            self._mark(node=name_of(node))

    def drop_node(self, node: Manifest) -> None:
        self._bury(uid_of(node))
        known = self.nodes.get(name_of(node))
        if known is not None and uid_of(known) == uid_of(node):
            del self.nodes[name_of(node)]
        self._mark(node=name_of(node))

    def put_gpunode(self, gpunode: Manifest) -> None:
        if not self._is_old(gpunode):
            self.gpunodes[name_of(gpunode)] = gpunode
            self._mark(node=name_of(gpunode))

    def drop_gpunode(self, gpunode: Manifest) -> None:
        self._bury(uid_of(gpunode))
        known = self.gpunodes.get(name_of(gpunode))
        if known is not None and uid_of(known) == uid_of(gpunode):
            del self.gpunodes[name_of(gpunode)]
        self._mark(node=name_of(gpunode))

    def put_pod(self, pod: Manifest) -> None:
        uid = uid_of(pod)
        if self._is_old(pod):
            return
        self._unindex(uid)
        self.pods[uid] = pod
        node, task = _node_of_pod(pod), task_uid_of(pod)
        if node:
            self._pods_on_node[node].add(uid)
        if task:
            self._pods_of_task[task].add(uid)
        self._mark(task=task, node=node)

    def drop_pod(self, pod: Manifest) -> None:
        uid = uid_of(pod)
        self._bury(uid)
        self._unindex(uid)
        self.pods.pop(uid, None)
        if task_uid_of(pod) and is_terminal(pod):
            # Between its end and its deletion nobody may have looked, and only this event tells how it ended. It is
            # marked below and looked at in a moment, so few of them are kept at a time.
            self._ended[uid] = pod
            while len(self._ended) > _LAST_WORDS:
                self._ended.popitem(last=False)
        self._mark(task=task_uid_of(pod), node=_node_of_pod(pod))

    def put_priority_class(self, priority_class: Manifest) -> None:
        self.priority_classes[name_of(priority_class)] = int(priority_class["value"])
        for uid, task in self.tasks.items():
            if task["spec"].get("priorityClassName") == name_of(priority_class):
                self._mark(task=uid)

    def drop_priority_class(self, priority_class: Manifest) -> None:
        self.priority_classes.pop(name_of(priority_class), None)

    def put_budget(self, manifest: Manifest) -> None:
        """How many evictions it allows changes often, and concerns no node: only whom it counts does."""
        namespace, budget = manifest["metadata"]["namespace"], budget_of(manifest)
        before = self.budgets.setdefault(namespace, {}).get(name_of(manifest))
        self.budgets[namespace][name_of(manifest)] = budget
        if before is None or before.selector != budget.selector:
            self._mark_counted(namespace)

    def drop_budget(self, manifest: Manifest) -> None:
        namespace = manifest["metadata"]["namespace"]
        if self.budgets.get(namespace, {}).pop(name_of(manifest), None) is not None:
            self._mark_counted(namespace)

    def put_namespace(self, namespace: Manifest) -> None:
        mode = (namespace["metadata"].get("annotations") or {}).get(QUEUE_ANNOTATION)
        self._set_queue_mode(name_of(namespace), mode)

    def drop_namespace(self, namespace: Manifest) -> None:
        self._set_queue_mode(name_of(namespace), None)

    def _set_queue_mode(self, namespace: str, mode: str | None) -> None:
        if self.queue_modes.get(namespace) == mode:
            return
        if mode is None:
            del self.queue_modes[namespace]
        else:
            self.queue_modes[namespace] = mode
        for key, uid in self._uid_of_task.items():
            if key.startswith(f"{namespace}/"):
                self._mark(task=uid)

    def budgets_of(self, pod: Manifest) -> tuple[str, ...]:
        """The budgets that count a pod, as ``namespace/name``."""
        known = self.budgets.get(pod["metadata"].get("namespace") or "", {})
        return tuple(sorted(budget.key for budget in known.values() if budget.counts(pod)))

    # --- inside ---------------------------------------------------------------------------------------

    def _mark(self, *, task: str | None = None, node: str | None = None) -> None:
        for dirty in self._consumers:
            dirty.mark(task=task, node=node)

    def _mark_counted(self, namespace: str) -> None:
        for pod in self.pods.values():
            if pod["metadata"].get("namespace") == namespace and task_uid_of(pod) and (node := _node_of_pod(pod)):
                self._mark(node=node)

    def _is_old(self, manifest: Manifest) -> bool:
        """Whether this is a version that we have had before, or an object that is gone.

        A reply to our own write overtakes the watch, which then still delivers the versions before it; taking
        them in would show a claim, then none, then the claim again. Versions are compared for equality only.
        """
        uid, version = uid_of(manifest), manifest["metadata"].get("resourceVersion")
        if uid in self._deleted:
            return True
        versions = self._versions.get(uid, ())
        if version and version in versions:
            return True
        self._versions[uid] = (*versions[1 - _VERSIONS :], version)
        return False

    def _bury(self, uid: str) -> None:
        # A list that began before the DELETED event must not bring the object back.
        self._deleted[uid] = None
        self._versions.pop(uid, None)
        while len(self._deleted) > _TOMBSTONES:
            self._deleted.popitem(last=False)

    def _unindex(self, uid: str) -> None:
        before = self.pods.get(uid)
        if before is None:
            return
        node, task = _node_of_pod(before), task_uid_of(before)
        if node:
            _discard(self._pods_on_node, node, uid)
            self._mark(node=node)
        if task:
            _discard(self._pods_of_task, task, uid)


def _discard(index: dict[str, set[str]], key: str, uid: str) -> None:
    index[key].discard(uid)
    if not index[key]:
        del index[key]


def _node_of_pod(pod: Manifest) -> str | None:
    bound = (pod.get("spec") or {}).get("nodeName")
    return bound or (pod.get("status") or {}).get("nominatedNodeName") or None
