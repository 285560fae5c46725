"""Cases of the field about reservations without an owner, and owners without a reservation; numbers as published."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from gputask.kube.client import Client
from gputask.kube.resources import GPUNODES, GPUTASKS, NODES, PODS
from gputask.local.cluster import LocalCluster
from support.afterwards import all_is_well
from support.controller import on_device, task, variant
from support.local import eventually
from support.operator import Object, World, gpu_node, operated, operated_by

DEVICE = {"a": {"gpuMemoryMB": 8000}}


async def summary(world: World, node: str = "n1") -> Object:
    """What ``kubectl get gpunodes`` shows."""
    found: Object = (await world.get(GPUNODES, node))["status"]["summary"]
    return found


async def pod_of(world: World, name: str) -> str:
    return str((await world.reaches(name, "Running"))["reservation"]["pod"])


# --- B19 ------------------------------------------------------------------------------------------------


async def test_b19_the_reservation_of_a_task_that_was_deleted_while_nobody_looked_is_swept() -> None:
    async with LocalCluster(nodes=[gpu_node(cards=DEVICE)], history=True) as local, Client(local.connection) as client:
        async with operated_by(local, client) as world:
            await world.apply(task("t", variants=[on_device(gpuMemoryMB=4000)], grace=0))
            await world.reaches("t", "Running")
        await world.delete(GPUTASKS, "t")
        await eventually(lambda: gone(client))
        assert set(await world.ledger("n1")) == {"t"}
        async with operated_by(local, client) as world:
            await world.ledger_is("n1", ())
            await all_is_well(world)


async def gone(client: Client) -> bool:
    """Whether no pod is left, and nobody but the garbage collector and the kubelet did it."""
    return not (await client.list(PODS)).items


async def test_b19_a_reservation_that_is_released_twice_leaves_nothing_and_never_less() -> None:
    async with operated(gpu_node(cards=DEVICE)) as world:
        for name, amount in (("stays", 4000), ("t", 3000)):
            await world.apply(task(name, variants=[on_device(gpuMemoryMB=amount)], grace=0))
        await world.reaches("stays", "Running")
        await world.reaches("t", "Running")
        (entry,) = (e for e in world.engine.ledgers.known("n1").entries.values() if e.task == "default/t")
        await world.delete(GPUTASKS, "t")
        await world.ledger_is("n1", ("stays",))
        assert await asyncio.gather(world.engine.releaser.release(entry), world.engine.releaser.release(entry))
        assert "4000" in (await summary(world))["used"]
        await world.delete(GPUTASKS, "stays")
        await world.ledger_is("n1", ())
        assert await world.engine.releaser.release(entry)
        ledger = world.engine.ledgers.known("n1")
        assert ledger.used("gpuMemoryMB/a") == 0
        await all_is_well(world)


# --- B27 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("comes_back", ["at once", "later"])
async def test_b27_a_node_made_anew_under_its_name_has_all_its_room(comes_back: str) -> None:
    async with operated(gpu_node("n1", cards=DEVICE)) as world:
        await world.apply(task("lost", variants=[on_device(gpuMemoryMB=6000)]))
        claim = (await world.reaches("lost", "Running"))["reservation"]
        await world.apply(task("new", priority=10, variants=[on_device(gpuMemoryMB=8000)], preemptionPolicy="Never"))
        await world.says("new", "Reserved", "False")
        await world.delete(NODES, "n1")
        if comes_back == "later":
            await world.says("lost", "Evicted", "True")
            await world.ledger_is("n1", ())
        node, *_ = await world.apply(gpu_node("n1", cards=DEVICE))
        await world.reaches("new", "Running")
        assert set(await world.ledger("n1")) == {"new"}
        assert claim["podUID"] not in (await world.get(GPUNODES, "n1"))["status"]["reservations"]
        evicted = await world.says("lost", "Evicted", "True")
        assert (evicted["reason"], evicted["message"]) == ("NodeLost", "node n1 is gone")
        status = (await world.get(GPUNODES, "n1"))["status"]
        assert status["nodeUID"] == status["rebuilt"] == node["metadata"]["uid"]
        await all_is_well(world)


# --- B30 ------------------------------------------------------------------------------------------------


async def test_b30_an_owner_that_makes_a_new_task_for_each_evicted_pod_leaves_no_entry_behind() -> None:
    wants = [on_device(gpuMemoryMB=8000)]
    async with operated(gpu_node(cards=DEVICE), speed=100) as world:
        await world.apply(task("t1", variants=wants, grace=1))
        for turn in range(1, 10):
            pod = await pod_of(world, f"t{turn}")
            await evict(world, pod)
            await world.apply(task(f"t{turn + 1}", variants=wants, grace=1))  # as an owner does that sees its pod go
            await world.delete(GPUTASKS, f"t{turn}")
        await world.reaches("t10", "Running")
        await all_is_well(world)
        assert await world.phases() == {"t10": "Running"}
        assert set(await world.ledger("n1")) == {"t10"}
        assert len((await world.client.list(PODS)).items) == 1


async def test_b30_a_task_that_is_evicted_again_and_again_is_one_task_with_one_pod() -> None:
    async with operated(gpu_node(cards=DEVICE), speed=100) as world:
        await world.apply(task("t", variants=[on_device(gpuMemoryMB=8000)], grace=1))
        evicted: set[str] = set()
        for _ in range(9):
            pod = await runs_anew(world, "t", evicted)
            evicted.add(pod)
            await evict(world, pod)
        await runs_anew(world, "t", evicted)
        await all_is_well(world)
        status = await world.status("t")
        assert (status["evictions"], status["reservation"]["attempt"]) == (9, 10)
        assert set(await world.ledger("n1")) == {"t"}
        assert len((await world.client.list(PODS)).items) == 1


async def evict(world: World, name: str) -> None:
    """As a drain does."""
    metadata = (await world.get(PODS, name))["metadata"]
    await world.client.evict("default", name, uid=metadata["uid"], resource_version=metadata["resourceVersion"])


async def runs_anew(world: World, name: str, before: set[str]) -> str:
    """The pod of a task, once it runs in none of these."""

    async def other() -> str | None:
        status = await world.status(name)
        pod = (status.get("reservation") or {}).get("pod")
        return pod if status.get("phase") == "Running" and pod not in before else None

    return str(await eventually(other))


# --- B32 ------------------------------------------------------------------------------------------------


async def test_b32_of_four_pods_of_ours_only_the_running_and_the_terminating_one_count() -> None:
    async with operated(gpu_node(cpu=4)) as world:
        await world.apply(
            task("succeeded", sim={"runs": "0.1"}),
            task("failed", sim={"runs": "0.1", "exit-code": "1"}),
            task("running"),
            task("terminating", sim={"stops": "3600"}, grace=3600),
        )
        await world.reaches("succeeded", "Succeeded")
        await world.reaches("failed", "Failed")
        await world.reaches("running", "Running")
        pod = await pod_of(world, "terminating")
        await world.delete(PODS, pod)
        await world.apply(task("three", variants=[variant(cpu=3)], priority=1, preemptionPolicy="Never"))
        await world.waits_for("three", "cpu")
        assert set(await world.ledger("n1")) == {"running", "terminating"}
        assert world.engine.ledgers.known("n1").used("cpu") == 2 * 10_000
        await world.delete(GPUTASKS, "three")
        await world.apply(task("two", variants=[variant(cpu=2)]))
        await world.reaches("two", "Running")
        await all_is_well(world)


async def test_b32_of_four_foreign_pods_only_the_running_and_the_terminating_one_count() -> None:
    async with operated(gpu_node(cpu=4)) as world:
        await world.client.create(PODS, foreign("succeeded", {"runs": "0.1"}), "default")
        await world.client.create(PODS, foreign("failed", {"runs": "0.1", "exit-code": "1"}), "default")
        await world.client.create(PODS, foreign("running", {}), "default")
        await world.client.create(PODS, foreign("terminating", {"stops": "3600"}), "default")
        await eventually(lambda: phases_are(world, ["Failed", "Running", "Running", "Succeeded"]))
        await world.delete(PODS, "terminating")
        await world.apply(task("three", variants=[variant(cpu=3)]))
        await world.waits_for("three", "cpu")
        await world.apply(task("two", variants=[variant(cpu=2)], priority=1))
        await world.reaches("two", "Running")
        await all_is_well(world)


def foreign(name: str, sim: dict[str, str]) -> Object:
    """A pod of somebody else on n1 that asks for one cpu."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    annotations = {f"sim.gputask.dev/{key}": value for key, value in sim.items()}
    spec = {
        "containers": [container],
        "nodeName": "n1",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 3600,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": spec,
    }


async def phases_are(world: World, phases: list[str]) -> bool:
    return sorted(pod["status"].get("phase", "") for pod in (await world.client.list(PODS)).items) == phases


# --- B113 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("meanwhile", ["nothing", "restart", "ledger lost"])
async def test_b113_a_declaration_that_goes_and_comes_back_admits_nothing_and_loses_nobody(meanwhile: str) -> None:
    node = gpu_node(pools={"gpuMemoryMB/0": 8000})
    declared = node["metadata"]["annotations"]
    async with LocalCluster(nodes=[node], history=True) as local, Client(local.connection) as client:
        async with operated_by(local, client) as world:
            await world.apply(task("t1", variants=[variant(gpuMemoryMB__0=4000)]))
            await world.reaches("t1", "Running")
            await world.patch(NODES, "n1", {"metadata": {"annotations": dict.fromkeys(RESOURCES)}})
            await eventually(lambda: world.engine.ledgers.known("n1").resources.pool("gpuMemoryMB/0") is None)
            await world.apply(task("t2", variants=[variant(gpuMemoryMB__0=2000)]))
            await world.says("t2", "Feasible", "False")
            if meanwhile == "nothing":
                await back_with(world, declared)
                return
        if meanwhile == "ledger lost":
            await client.patch(GPUNODES, "n1", {"metadata": {"finalizers": None}})
            await client.delete(GPUNODES, "n1")
        async with operated_by(local, client) as world:
            # That nobody is booked for a while, and then on what is not declared, is what whoever deleted it did.
            lost = ["released while alive", "booked over capacity"] if meanwhile == "ledger lost" else []
            await back_with(world, declared, excused=lost)


RESOURCES = ("gputask.dev/resources",)


async def back_with(world: World, declared: Object, *, excused: Collection[str] = ()) -> None:
    """t1 was never touched; when the annotation is back, 4000 are free: t2 starts, and another 2001 do not."""
    assert (await world.status("t1"))["phase"] == "Running"
    assert (await world.ledger_is("n1", ("t1",)))["t1"]["amounts"]["gpuMemoryMB/0"] == "4000"
    await world.patch(NODES, "n1", {"metadata": {"annotations": {key: declared[key] for key in RESOURCES}}})
    await world.reaches("t2", "Running")
    await world.apply(task("t3", variants=[variant(gpuMemoryMB__0=2001)]))
    await world.waits_for("t3", "gpuMemoryMB")
    assert set(await world.ledger("n1")) == {"t1", "t2"}
    await all_is_well(world, excused=excused)
