"""What must be true after every case of the field, whatever it tests; asked of a running operator and its cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gputask.controller import status
from gputask.controller.engine import timestamp
from gputask.kube.resources import GPUNODES, GPUTASKS, PODS
from gputask.ledger.entries import State
from gputask.local.judge import TERMINAL, judge
from support.local import eventually
from support.operator import World

Object = dict[str, Any]


async def all_is_well(world: World, *, excused: Collection[str] = ()) -> None:
    """Once nothing is left to do: every rule that holds after every case.

    ``excused`` are rules of the judge that the test broke itself, as a user with too many rights.
    """
    await eventually(lambda: _a_second_pass_changes_nothing(world))
    assert world.cluster.store.history is not None
    findings = [f"{found}" for found in judge(world.cluster.store.history) if found.rule not in excused]
    assert findings == [], findings
    pods = {pod["metadata"]["uid"]: pod for pod in (await world.client.list(PODS)).items}
    entries = await _entries(world)
    tasks = {task["metadata"]["uid"]: task for task in (await world.client.list(GPUTASKS)).items}
    for entry in entries:
        if not entry["pod"]:
            _is_of_its_lease(entry, tasks)
            continue
        pod = pods.get(entry["podUID"])
        assert pod is not None, f"an entry without a pod: {entry}"
        assert pod["status"].get("phase") not in TERMINAL, f"an entry of a pod that has ended: {entry}"
        assert all(float(amount) > 0 for amount in entry["amounts"].values()), entry
    for task in tasks.values():
        if "lease" in task["spec"]:
            _says_where_it_is_held(task, entries)
        else:
            _says_where_its_pod_is(task, pods)
    counted = [_metric(world, "gputask_reservations", state=state.value) for state in State]
    assert min(counted) >= 0
    assert sum(counted) == len(entries)
    assert world.errors.logged == []


async def _a_second_pass_changes_nothing(world: World) -> bool:
    """Whether everything is looked at once more, by each part of the operator, and nothing at all is written."""
    engine, store = world.engine, world.cluster.store
    before, passes = store.number, _passes(world)
    await engine.gpunodes.start()
    await engine.recovery.sweep_all()
    engine.dispatch.changed.set()
    await eventually(lambda: _passes(world) > passes)
    views = [view for uid in engine.store.tasks if (view := engine.view(uid)) is not None]
    unsaid = [patch for view in views if (patch := status.patch(view, now=timestamp()))]
    return store.number == before and not unsaid and not any(map(engine.admission.busy, engine.store.tasks))


def _passes(world: World) -> float:
    return _metric(world, "gputask_pass_seconds_count")


def _metric(world: World, name: str, **labels: str) -> float:
    return world.engine.metrics.registry.get_sample_value(name, labels) or 0.0


async def _entries(world: World) -> list[Object]:
    found = []
    for gpunode in (await world.client.list(GPUNODES)).items:
        for uid, entry in ((gpunode.get("status") or {}).get("reservations") or {}).items():
            assert entry["node"] == gpunode["metadata"]["name"]
            found.append({"podUID": uid, **entry})
    return found


def _is_of_its_lease(entry: Object, tasks: dict[str, Object]) -> None:
    assert entry["taskUID"] in tasks, f"an entry of a lease that is gone: {entry}"
    status = tasks[entry["taskUID"]]["status"]
    assert status["reservation"]["podUID"] == entry["podUID"], f"an entry that its lease does not claim: {entry}"
    assert (entry["state"], status["phase"]) in (("Bound", "Bound"), ("Quarantined", "Failed"))


def _says_where_it_is_held(task: Object, entries: list[Object]) -> None:
    said = task.get("status") or {}
    held = [e for e in entries if e["taskUID"] == task["metadata"]["uid"]]
    quarantined = said.get("phase") == "Failed" and said["reservation"]["state"] == "Quarantined"
    assert len(held) == (1 if said.get("phase") == "Bound" or quarantined else 0), f"{said} and entries {held}"
    for entry in held:
        claim = said["reservation"]
        assert (claim["node"], claim.get("devices") or []) == (entry["node"], entry.get("devices") or [])


def _says_where_its_pod_is(task: Object, pods: dict[str, Object]) -> None:
    said = task.get("status") or {}
    claim = said.get("reservation")
    if said.get("phase") not in ("Bound", "Running") or not claim:
        return
    pod = pods[claim["podUID"]]
    assert pod["spec"].get("nodeName") == claim["node"], f"{task['metadata']['name']} says {claim['node']}"
    told = {env["name"]: env.get("value") for env in pod["spec"]["containers"][0].get("env") or ()}
    assert told["GPUTASK_DEVICES"] == (",".join(claim.get("devices") or ()) or "void")
