"""What must not be left once nothing is in progress any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from gputask.local.judge_leases import is_lease, is_left
from gputask.local.judge_world import TASK_UID, TERMINAL, Object, is_alive

_WAITING = (None, "", "Pending", "Preempting")


def leftovers(objects: Iterable[Object]) -> list[str]:
    """Entries, holds and pods of ours that nobody needs, one line each; ``objects`` is all that is stored."""
    by_kind: dict[str, list[Object]] = defaultdict(list)
    for obj in objects:
        by_kind[obj.get("kind", "")].append(obj)
    tasks = {task["metadata"]["uid"]: task for task in by_kind["GpuTask"]}
    pods = {pod["metadata"]["uid"]: pod for pod in by_kind["Pod"]}
    found = [line for gpunode in by_kind["GpuNode"] for line in _on_node(gpunode, tasks, pods)]
    return found + list(_pods(pods.values(), tasks))


def _on_node(gpunode: Object, tasks: dict[str, Object], pods: dict[str, Object]) -> Iterator[str]:
    node, status = gpunode["metadata"]["name"], gpunode.get("status", {})
    for uid, entry in (status.get("reservations") or {}).items():
        if is_lease(entry):
            if is_left(entry, uid, tasks):
                yield f"entry on {node} of a lease that is not claimed: {entry.get('task', uid)}"
        elif uid not in pods or not is_alive(pods[uid]):
            yield f"entry on {node} without a live pod: {entry.get('pod', uid)}"
    for uid, hold in (status.get("holds") or {}).items():
        if uid not in tasks or _phase(tasks[uid]) not in _WAITING:
            yield f"room on {node} for a task that does not wait: {hold.get('task', uid)}"


def _pods(pods: Iterable[Object], tasks: dict[str, Object]) -> Iterator[str]:
    of_task: dict[str, list[str]] = defaultdict(list)
    for pod in pods:
        task = pod["metadata"].get("labels", {}).get(TASK_UID)
        if task is None or not is_alive(pod):
            continue
        name = pod["metadata"]["name"]
        of_task[task].append(name)
        if not pod["spec"].get("nodeName") and (task not in tasks or _phase(tasks[task]) in TERMINAL):
            yield f"unbound pod of a task that is finished or gone: {name}"
    for task, names in of_task.items():
        if len(names) > 1:
            yield f"pods of one task {task}: {', '.join(sorted(names))}"


def _phase(task: Object) -> str | None:
    phase: str | None = task.get("status", {}).get("phase")
    return phase
