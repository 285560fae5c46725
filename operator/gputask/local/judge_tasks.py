"""What the judge holds against the statuses of tasks."""

from __future__ import annotations

from gputask.local.judge_leases import lease_rules
from gputask.local.judge_world import TERMINAL, Object, Said, World, condition, is_alive

COUNTERS = ("crashes", "evictions", "placementFailures")


def task_rules(world: World, verb: str, task: Object) -> Said:
    """*terminal changed*, *ended twice*, *evicted twice*, *told without entry*."""
    uid = task["metadata"]["uid"]
    before = world.tasks.get(uid, {})
    if verb != "DELETED":
        yield from _finish(before, task)
        yield from _counts(world, before, task)
        yield from lease_rules(world, before, task)
    world.tasks[uid] = task
    if verb == "DELETED":
        world.leases.pop(uid, None)
    elif "lease" in task.get("spec", {}):
        world.leases[uid] = task


def _finish(before: Object, task: Object) -> Said:
    name = task["metadata"]["name"]
    was, now = before.get("status", {}).get("phase"), task.get("status", {}).get("phase")
    if was in TERMINAL and now != was:
        yield "terminal changed", f"{name}: {was} became {now}"
    first, second = condition(before, "Finished"), condition(task, "Finished")
    if first.get("status") == "True" and second.get("reason") != first["reason"]:
        yield "ended twice", f"{name}: finished as {first['reason']}, then as {second.get('reason')}"


def _counts(world: World, before: Object, task: Object) -> Said:
    """Each end of a claimed pod counts once, in one counter, and only once the pod is dead."""
    was, now = before.get("status", {}), task.get("status", {})
    grown = {name: (now.get(name) or 0) - (was.get(name) or 0) for name in COUNTERS}
    grown = {name: more for name, more in grown.items() if more > 0}
    if not grown:
        return
    name, uid = task["metadata"]["name"], task["metadata"]["uid"]
    rule = "evicted twice" if "evictions" in grown else "ended twice"
    # The claim that ends: the write that counts may drop it.
    pod = (was.get("reservation") or {}).get("podUID")
    if sum(grown.values()) > 1 or pod is None or pod in world.charged[uid]:
        yield rule, f"{name}: {grown} more for one end of pod {pod}"
    elif pod in world.pods and is_alive(world.pods[pod]):
        yield rule, f"{name}: {grown} more while pod {pod} is alive"
    if pod is not None:
        world.charged[uid].add(pod)
