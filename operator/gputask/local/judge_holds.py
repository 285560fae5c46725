"""What the judge holds against preemption: the room that is kept for a task, who leaves for it, who is evicted."""

from __future__ import annotations

from collections.abc import Iterable

from gputask.local.judge_room import overfull
from gputask.local.judge_world import Object, Said, World, condition, priority_of, rank, victims_of


def hold_rules(world: World, node: str, before: Object, admitted: Iterable[str]) -> Said:
    """*higher victim*, *kept room taken*: after the entries and holds of a node were stored.

    before: its holds until now, by task UID. admitted: pod UIDs of the new entries.
    """
    for uid, hold in world.holds[node].items():
        seen = victims_of(before.get(uid, {}))
        for victim in victims_of(hold) - seen:
            yield from _victim(world, node, hold, victim)
        for pod in admitted:
            yield from _taken(world, node, hold, pod)


def _victim(world: World, node: str, hold: Object, pod: str) -> Said:
    task = world.tasks.get(world.owners.get(pod, ""))
    if task is None:
        return
    name, priority = task["metadata"]["name"], priority_of(task)
    if priority >= hold["priority"]:
        yield (
            "higher victim",
            f"{name} of priority {priority} on {node} leaves for {hold['task']} of {hold['priority']}",
        )
    if task.get("spec", {}).get("preemptible") is False:
        yield "higher victim", f"{name} on {node} leaves for {hold['task']}, though it is not preemptible"


def _taken(world: World, node: str, hold: Object, pod: str) -> Said:
    entries = world.entries[node]
    entry = entries[pod]
    task = world.tasks.get(entry.get("taskUID", ""))
    if task is None or task["metadata"]["uid"] == hold["taskUID"]:
        return
    meta = task["metadata"]
    own = rank(priority_of(task), meta["creationTimestamp"], meta["uid"])
    if own < rank(hold["priority"], hold["created"], hold["taskUID"]):
        return
    declared, keys = world.nodes.get(node, {}), hold.get("amounts", {}).keys()
    gone = victims_of(hold) | {pod}
    before = [entries[uid] for uid in entries if uid not in gone]
    if any(short for key in keys for short in overfull(declared, key, [*before, hold])):
        return  # it waits for others too: for the victims of other holds, or as the node lost some of what it had
    for key in keys & entry.get("amounts", {}).keys():
        for short in overfull(declared, key, [*before, entry, hold]):
            yield "kept room taken", f"{meta['name']} on {node} beside the room of {hold['task']}: {short}"


def eviction_rules(world: World, before: Object, pod: Object) -> Said:
    """*evicted without hold*: ``before`` is the pod's last state, before this one is stored."""
    meta, node = pod["metadata"], pod.get("spec", {}).get("nodeName", "")
    if not world.only_operator_evicts or _is_evicted(before) or not _is_evicted(pod):
        return
    named = any(meta["uid"] in victims_of(hold) for hold in world.holds[node].values())
    if meta["uid"] in world.entries[node] and not named:
        yield "evicted without hold", f"pod {meta['name']} on {node} is evicted, and no room there is kept for it"


def _is_evicted(pod: Object) -> bool:
    found = condition(pod, "DisruptionTarget")
    return (found.get("status"), found.get("reason")) == ("True", "EvictionByEvictionAPI")
