"""What the judge holds against leases: entries that no pod stands behind, only the claim of a GpuTask."""

from __future__ import annotations

from collections.abc import Mapping

from gputask.local.judge_world import Object, Said, World


def is_lease(entry: Object) -> bool:
    """Whether an entry of a ledger is a lease's."""
    return entry.get("pod") == ""


def ledger_rules(world: World, node: str, before: Mapping[str, Object], gpunode: Object) -> Said:
    """*lease taken away*, *lease not booked*."""
    status = gpunode.get("status", {})
    after = status.get("reservations") or {}
    for grant, entry in before.items():
        if is_lease(entry) and grant not in after and _owns(world.leases.get(entry.get("taskUID", ""), {}), grant):
            yield "lease taken away", f"{entry.get('task')} still has {entry.get('devices')} of {node}"
    world.rebuilt[node] = bool(status.get("rebuilt"))
    for task in world.leases.values() if world.rebuilt[node] else ():
        claim = _told(task)
        if claim.get("node") == node and claim.get("podUID") not in after:
            yield (
                "lease not booked",
                f"{task['metadata']['name']} was told that it has {claim.get('devices')} of {node}",
            )


def lease_rules(world: World, before: Object, task: Object) -> Said:
    """*told without entry*."""
    claim = _told(task)
    if not claim or claim == _told(before):
        return
    node = claim.get("node", "")
    if world.rebuilt.get(node) and claim.get("podUID") not in world.entries[node]:
        yield "told without entry", f"{task['metadata']['name']} is told that it has {claim.get('devices')} of {node}"


def is_left(entry: Object, grant: str, tasks: Mapping[str, Object]) -> bool:
    """Whether the entry of a lease is nobody's any more."""
    return not _owns(tasks.get(entry.get("taskUID", ""), {}), grant)


def _owns(task: Object, grant: str) -> bool:
    """Whether the claim of a task names the grant, and has not ended."""
    claim = task.get("status", {}).get("reservation") or {}
    return claim.get("podUID") == grant and claim.get("state") != "Ended"


def _told(task: Object) -> Object:
    """The claim of a lease of which the status says that it is held; empty if it says nothing of the kind."""
    status = task.get("status", {})
    claim = status.get("reservation") or {}
    held = status.get("phase") == "Bound" and "lease" in task.get("spec", {}) and claim.get("state") == "Claimed"
    return claim if held else {}
