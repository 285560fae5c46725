"""Judges a history of the embedded server: what was stored, version by version, against what must never be stored.

Reads nothing but the objects and shares no code with the operator, the planner or the ledger: its own reading of the
declarations, its own sums. So it can be wrong only in its own way. What it holds against a history:

- *booked over capacity*: an admission brought the entries of a node over a pool, a device's pool or a label;
- *bound without entry*, *released while alive*: a live bound pod that the ledger of its node does not name;
- *other devices*: the container was told other devices than the ledger says;
- *task twice*: two live bound pods of one task; *ran again*: a pod is bound of a task that is finished, or of which a
  pod has succeeded;
- *terminal changed*: a finished task got another phase.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import yaml

TERMINAL = ("Succeeded", "Failed")
Object = Mapping[str, Any]
Change = tuple[int, str, str, Object]
"""(resourceVersion, ADDED | MODIFIED | DELETED, kind, the object as stored)."""

_BYTES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not have happened: at which version, which rule, what exactly."""

    version: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule} at version {self.version}: {self.message}"


@dataclass
class _World:
    nodes: dict[str, Object] = field(default_factory=dict)
    entries: dict[str, dict[str, Object]] = field(default_factory=lambda: defaultdict(dict))
    live: dict[str, Object] = field(default_factory=dict)
    """Bound pods of ours that have not ended, by UID."""
    phases: dict[str, str] = field(default_factory=dict)
    succeeded: set[str] = field(default_factory=set)
    """Tasks of which a pod has succeeded."""


def judge(history: Iterable[Change]) -> list[Finding]:
    """All that is wrong in a history, in the order in which it happened."""
    world = _World()
    readers = {"Node": _node, "GpuNode": _gpunode, "Pod": _pod, "GpuTask": _task}
    findings: list[Finding] = []
    for version, verb, kind, obj in history:
        reader = readers.get(kind)
        if reader is not None:
            findings += [Finding(version, rule, text) for rule, text in reader(world, verb, obj)]
    return findings


Said = Iterator[tuple[str, str]]


def _node(world: _World, verb: str, node: Object) -> Said:
    if verb == "DELETED":
        world.nodes.pop(node["metadata"]["name"], None)
    else:
        world.nodes[node["metadata"]["name"]] = node
    yield from ()


def _gpunode(world: _World, verb: str, gpunode: Object) -> Said:
    name = gpunode["metadata"]["name"]
    before = world.entries[name]
    after = {} if verb == "DELETED" else dict(gpunode.get("status", {}).get("reservations") or {})
    world.entries[name] = after
    for uid in before.keys() - after.keys():
        pod = world.live.get(uid)
        if pod is not None and pod["spec"]["nodeName"] == name:
            yield "released while alive", f"pod {pod['metadata']['name']} still runs on {name}"
    for uid in after.keys() - before.keys():
        for key in after[uid].get("amounts", {}):
            yield from _over_capacity(world, name, key)


def _over_capacity(world: _World, node: str, key: str) -> Said:
    capacity, labels = declared(world.nodes.get(node, {})).get(key, (Decimal(0), None))
    total = Decimal(0)
    by_label: dict[str, Decimal] = defaultdict(Decimal)
    for entry in world.entries[node].values():
        amount = Decimal(entry.get("amounts", {}).get(key, "0"))
        total += amount
        for label in entry.get("labels", {}).get(key, ()):
            by_label[label] += min(amount, Decimal(1))
            amount -= min(amount, Decimal(1))
    if total > capacity:
        yield "booked over capacity", f"{node} {key}: {total} of {capacity}"
    for label, taken in by_label.items():
        if taken > 1 or (labels is not None and label not in labels):
            yield "booked over capacity", f"{node} {key}: label {label} taken {taken} times"


def _pod(world: _World, verb: str, pod: Object) -> Said:
    meta = pod["metadata"]
    task = meta.get("labels", {}).get("gputask.dev/task-uid")
    node = pod.get("spec", {}).get("nodeName")
    if task is None or not node:
        return
    if verb == "DELETED" or pod.get("status", {}).get("phase") in TERMINAL:
        world.live.pop(meta["uid"], None)
        if pod.get("status", {}).get("phase") == "Succeeded" and not meta.get("deletionTimestamp"):
            world.succeeded.add(task)
        return
    if meta["uid"] not in world.live:
        entry = world.entries[node].get(meta["uid"])
        if entry is None:
            yield "bound without entry", f"pod {meta['name']} on {node}"
        elif sorted(_told_devices(pod)) != sorted(entry.get("devices", [])):
            yield "other devices", f"pod {meta['name']} was told {_told_devices(pod)}, booked {entry.get('devices')}"
        twin = next((p for p in world.live.values() if p["metadata"]["labels"]["gputask.dev/task-uid"] == task), None)
        if twin is not None:
            yield "task twice", f"pods {twin['metadata']['name']} and {meta['name']} of task {task} are both alive"
        if world.phases.get(task) in TERMINAL:
            yield "ran again", f"pod {meta['name']} of the finished task {task} was bound to {node}"
        elif task in world.succeeded:
            yield "ran again", f"pod {meta['name']} of task {task}, which had succeeded, was bound to {node}"
    world.live[meta["uid"]] = pod


def _told_devices(pod: Object) -> list[str]:
    for container in pod["spec"]["containers"]:
        for env in container.get("env", ()):
            if env["name"] == "GPUTASK_DEVICES":
                return [d for d in env.get("value", "").split(",") if d and d != "void"]
    return []


def _task(world: _World, verb: str, task: Object) -> Said:
    uid, phase = task["metadata"]["uid"], task.get("status", {}).get("phase")
    before = world.phases.get(uid)
    if verb != "DELETED" and before in TERMINAL and phase != before:
        yield "terminal changed", f"{task['metadata']['name']}: {before} became {phase}"
    world.phases[uid] = phase


def declared(node: Object) -> dict[str, tuple[Decimal, frozenset[str] | None]]:
    """Capacity of each pool of a Node manifest, device pools as ``pool/ID``, with the labels of indexed ones."""
    annotations = node.get("metadata", {}).get("annotations") or {}
    pools: dict[str, tuple[Decimal, frozenset[str] | None]] = {}
    for name, value in (node.get("status", {}).get("allocatable") or {}).items():
        pools[name] = (_quantity(str(value), in_bytes=name in {"memory", "ephemeral-storage"}), None)
    devices = _loaded(annotations.get("gputask.dev/devices"), [])
    ids = {str(d["id"]) for d in devices}
    by_index = {str(d["index"]): str(d["id"]) for d in devices if d.get("index") is not None}
    for device in devices:
        for name, value in device.get("resources", {}).items():
            pools[f"{name}/{device['id']}"] = _pool(value)
    for name, value in _loaded(annotations.get("gputask.dev/resources"), {}).items():
        base, slash, suffix = str(name).rpartition("/")
        device_id = suffix if suffix in ids else by_index.get(suffix, suffix)
        pools[f"{base}/{device_id}" if slash else str(name)] = _pool(value)
    return pools


def _loaded(text: str | None, nothing: Any) -> Any:
    """An annotation; what cannot be read declares nothing."""
    try:
        return yaml.safe_load(text or "") or nothing
    except yaml.YAMLError:
        return nothing


def _pool(value: Any) -> tuple[Decimal, frozenset[str] | None]:
    text = str(value).strip() if not isinstance(value, list) else "[" + ",".join(_flat(value)) + "]"
    if match := re.fullmatch(r"sum\((.*)\)", text):
        return Decimal(match[1]), None
    if match := re.fullmatch(r"range\((\d+)-(\d+)\)", text):
        labels = frozenset(str(i) for i in range(int(match[1]), int(match[2]) + 1))
        return Decimal(len(labels)), labels
    if match := re.fullmatch(r"(\d+)x(\d+)", text):
        return Decimal(int(match[1]) * int(match[2])), None
    if text.startswith("["):
        labels = frozenset(part.strip(" []\"'") for part in text.split(",") if part.strip(" []\"'"))
        return Decimal(len(labels)), labels
    return _quantity(text, in_bytes=False), None


def _flat(value: list[Any]) -> Iterator[str]:
    for item in value:
        yield from _flat(item) if isinstance(item, list) else [str(item)]


def _quantity(text: str, *, in_bytes: bool) -> Decimal:
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    if match is None:
        return Decimal(0)
    number, unit = Decimal(match[1]), match[2]
    if unit == "m":
        return number / 1000
    size = number * _BYTES.get(unit, 1)
    return size / 2**20 if in_bytes or unit else size
