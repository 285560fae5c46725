"""Judges a history of the embedded server: what was stored, version by version, against what must never be stored.

Reads nothing but the objects and shares no code with the operator, the planner or the ledger: its own reading of the
declarations, its own sums. So it can be wrong only in its own way. What it holds against a history:

- *booked over capacity*: an admission brought the entries of a node over a pool, a device's pool or a label;
- *bound without entry*, *released while alive*: a live bound pod that the ledger of its node does not name;
- *other devices*: the container was told other devices than the ledger says;
- *task twice*: two live bound pods of one task; *ran again*: a pod is bound of a task that is finished, or of which a
  pod has succeeded;
- *terminal changed*: a finished task got another phase;
- *ended twice*, *evicted twice*: an end of a pod is counted again, or while the pod lives, or a task finishes for
  another reason than it did;
- *kept room taken*: an admission left less than what is kept for a task of higher rank, its victims aside;
- *higher victim*: work leaves for a task of no higher priority, or though it is not preemptible;
- *evicted without hold*: the operator evicts a pod for which no room on its node is kept;
- *lease taken away*: the entry of a lease, held or quarantined, goes while its task claims it;
- *lease not booked*, *told without entry*: a holder is told that it has devices which the ledger does not know.

What must not be left at the end is asked with :func:`leftovers`.
"""

from __future__ import annotations

from collections.abc import Iterable

from gputask.local.judge_holds import eviction_rules, hold_rules
from gputask.local.judge_leases import ledger_rules
from gputask.local.judge_leftovers import leftovers
from gputask.local.judge_room import declared, overfull, unknown_labels
from gputask.local.judge_tasks import task_rules
from gputask.local.judge_world import TASK_UID, TERMINAL, Change, Finding, Object, Said, World, is_alive

__all__ = ["TERMINAL", "Finding", "declared", "judge", "leftovers"]


def judge(history: Iterable[Change], *, only_operator_evicts: bool = False) -> list[Finding]:
    """All that is wrong in a history, in the order in which it happened.

    only_operator_evicts: no user, drain or test did; what is stored of an eviction does not say whose it was.
    """
    world = World(only_operator_evicts=only_operator_evicts)
    readers = {"Node": _node, "GpuNode": _gpunode, "Pod": _pod, "GpuTask": task_rules}
    findings: list[Finding] = []
    for version, verb, kind, obj in history:
        reader = readers.get(kind)
        if reader is not None:
            findings += [Finding(version, rule, text) for rule, text in reader(world, verb, obj)]
    return findings


def _node(world: World, verb: str, node: Object) -> Said:
    if verb == "DELETED":
        world.nodes.pop(node["metadata"]["name"], None)
    else:
        world.nodes[node["metadata"]["name"]] = node
    yield from ()


def _gpunode(world: World, verb: str, gpunode: Object) -> Said:
    name = gpunode["metadata"]["name"]
    before, holds = world.entries[name], world.holds[name]
    status = {} if verb == "DELETED" else gpunode.get("status", {})
    after = world.entries[name] = dict(status.get("reservations") or {})
    world.holds[name] = dict(status.get("holds") or {})
    for uid in before.keys() - after.keys():
        pod = world.bound(uid)
        if pod is not None and pod["spec"]["nodeName"] == name:
            yield "released while alive", f"pod {pod['metadata']['name']} still runs on {name}"
    admitted = sorted(after.keys() - before.keys())
    for uid in admitted:
        for key in after[uid].get("amounts", {}):
            node = world.nodes.get(name, {})
            for short in (*overfull(node, key, after.values()), *unknown_labels(node, key, after[uid])):
                yield "booked over capacity", f"{name} {short}"
    yield from hold_rules(world, name, holds, admitted)
    if verb == "DELETED":
        world.rebuilt[name] = False
    else:
        yield from ledger_rules(world, name, before, gpunode)


def _pod(world: World, verb: str, pod: Object) -> Said:
    meta = pod["metadata"]
    task = meta.get("labels", {}).get(TASK_UID)
    if task is None:
        return
    world.owners[meta["uid"]] = task
    world.pods_of[task].add(meta["uid"])
    if pod.get("status", {}).get("phase") == "Succeeded" and not meta.get("deletionTimestamp"):
        world.succeeded.add(task)
    if verb == "DELETED":
        world.pods.pop(meta["uid"], None)
        return
    yield from eviction_rules(world, world.pods.get(meta["uid"], {}), pod)
    if pod.get("spec", {}).get("nodeName") and is_alive(pod) and world.bound(meta["uid"]) is None:
        yield from _start(world, task, pod)
    world.pods[meta["uid"]] = pod


def _start(world: World, task: str, pod: Object) -> Said:
    """A pod was bound."""
    meta, node = pod["metadata"], pod["spec"]["nodeName"]
    entry = world.entries[node].get(meta["uid"])
    if entry is None:
        yield "bound without entry", f"pod {meta['name']} on {node}"
    elif sorted(_told_devices(pod)) != sorted(entry.get("devices", [])):
        yield "other devices", f"pod {meta['name']} was told {_told_devices(pod)}, booked {entry.get('devices')}"
    twin = next(filter(None, map(world.bound, sorted(world.pods_of[task]))), None)
    if twin is not None:
        yield "task twice", f"pods {twin['metadata']['name']} and {meta['name']} of task {task} are both alive"
    if world.tasks.get(task, {}).get("status", {}).get("phase") in TERMINAL:
        yield "ran again", f"pod {meta['name']} of the finished task {task} was bound to {node}"
    elif task in world.succeeded:
        yield "ran again", f"pod {meta['name']} of task {task}, which had succeeded, was bound to {node}"


def _told_devices(pod: Object) -> list[str]:
    for container in pod["spec"]["containers"]:
        for env in container.get("env", ()):
            if env["name"] == "GPUTASK_DEVICES":
                return [d for d in env.get("value", "").split(",") if d and d != "void"]
    return []
