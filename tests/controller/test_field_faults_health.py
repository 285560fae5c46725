"""Cases of the field about devices and capacity that go, come back or change their number; numbers as published."""

from __future__ import annotations

import json

import pytest

from gputask.kube.client import Client
from gputask.kube.resources import GPUNODES, LEASES, NODES, PODS
from gputask.local.cluster import LocalCluster
from support.afterwards import all_is_well
from support.controller import on_device, task, variant
from support.local import eventually
from support.operator import Object, World, gpu_node, operated, operated_by


async def declares(world: World, **annotations: object) -> None:
    """What an admin or an agent writes on n1; returns when the ledger knows it."""
    marks = {f"gputask.dev/{name}": json.dumps(value) for name, value in annotations.items()}
    node = await world.patch(NODES, "n1", {"metadata": {"annotations": marks}})
    version = node["metadata"]["resourceVersion"]

    def known() -> bool:
        return bool(world.engine.store.nodes["n1"]["metadata"]["resourceVersion"] == version)

    await eventually(known)
    await world.engine.gpunodes.reconcile("n1")


async def ends(world: World, name: str) -> None:
    pod = (await world.status(name))["reservation"]["pod"]
    await world.patch(PODS, pod, {"status": {"phase": "Succeeded"}}, subresource="status")
    await world.reaches(name, "Succeeded")


async def pod_uids(world: World, *names: str) -> list[str]:
    """The pods in which these run; the same before and after if nobody touched them."""
    found = []
    for name in names:
        status = await world.reaches(name, "Running")
        pod = await world.get(PODS, status["reservation"]["pod"])
        assert not pod["metadata"].get("deletionTimestamp")
        assert not {"evictions", "crashes", "placementFailures"} & {key for key, value in status.items() if value}
        found.append(pod["metadata"]["uid"])
    return found


# --- B34 ------------------------------------------------------------------------------------------------

ONE_GPU = [variant(cpu=1, gpu=1)]
RUNNING = ("r1", "r2", "r3", "r4")


async def test_b34_of_a_sum_that_shrank_under_its_users_nobody_is_touched_and_the_rest_of_the_node_goes_on() -> None:
    node = gpu_node(cpu=16, pools={"gpu": 4})
    async with LocalCluster(nodes=[node], history=True) as local, Client(local.connection) as client:
        async with operated_by(local, client) as world:
            await world.apply(*(task(name, variants=ONE_GPU) for name in RUNNING))
            before = await pod_uids(world, *RUNNING)
            await declares(world, resources={"gpu": 3})
            await world.apply(task("g", variants=ONE_GPU, priority=1, preemptionPolicy="Never"), task("k"))
            await world.reaches("k", "Running")
            await world.waits_for("g", "gpu")
            assert "gpu=0" in (await summary(world))["free"]
            assert await pod_uids(world, *RUNNING) == before
            await all_is_well(world)
        async with operated_by(local, client) as world:  # four of three, for an operator that never knew of the fourth
            assert await pod_uids(world, *RUNNING) == before
            await ends(world, "r1")
            await world.ledger_is("n1", ("r2", "r3", "r4", "k"))  # three of three
            await all_is_well(world)
            await world.waits_for("g", "gpu")
            await ends(world, "r2")
            await world.reaches("g", "Running")  # two of three, and g
            assert await pod_uids(world, "r3", "r4") == before[2:]
            await all_is_well(world)


async def summary(world: World) -> Object:
    """What ``kubectl get gpunodes`` shows."""
    found: Object = (await world.get(GPUNODES, "n1"))["status"]["summary"]
    return found


async def test_b34_a_label_that_was_lost_under_its_user_leaves_the_others_usable() -> None:
    async with operated(gpu_node(cpu=16, pools={"gpu": ["a", "b", "c", "d"]})) as world:
        await world.apply(*(task(name, variants=ONE_GPU) for name in RUNNING))
        before = dict(zip(RUNNING, await pod_uids(world, *RUNNING), strict=True))
        on = {entry["labels"]["gpu"][0]: name for name, entry in (await world.ledger("n1")).items()}
        assert set(on) == set("abcd")
        await declares(world, resources={"gpu": ["a", "b", "c"]})
        await world.apply(task("g", variants=ONE_GPU, priority=1, preemptionPolicy="Never"), task("k"))
        await world.reaches("k", "Running")
        await world.waits_for("g", "gpu")
        await ends(world, on["a"])
        await world.reaches("g", "Running")
        entries = await world.ledger("n1")
        assert entries["g"]["labels"]["gpu"] == ["a"]
        assert entries[on["d"]]["labels"]["gpu"] == ["d"]
        others = [on[label] for label in "bcd"]
        assert await pod_uids(world, *others) == [before[name] for name in others]
        await all_is_well(world)


# --- B61 ------------------------------------------------------------------------------------------------


def cards(**health: str) -> list[Object]:
    """Devices a and b, each for two."""
    return [
        {"id": id, "index": i, "health": health.get(id, "Healthy"), "resources": {"gpuSlot": 2}}
        for i, id in enumerate("ab")
    ]


@pytest.mark.parametrize("health", ["Unhealthy", "Lost"])
async def test_b61_a_device_that_is_well_again_is_offered_again_and_its_neighbour_never_noticed(health: str) -> None:
    async with operated(gpu_node(annotations={"gputask.dev/devices": json.dumps(cards())})) as world:
        await world.apply(task("one", variants=[variant(cpu=1, gpuSlot__0=1)]))
        before = await pod_uids(world, "one")
        assert (await summary(world))["devices"] == "2/2"
        await declares(world, devices=cards(b=health))
        assert (await summary(world))["devices"] == "1/2"
        await world.apply(task("two", variants=[on_device(count=2, gpuSlot=1)]))
        await world.waits_for("two", "asks 2 such devices; the most on one node is 1")
        await all_is_well(world)
        assert set(await world.ledger("n1")) == {"one"}
        await declares(world, devices=cards())
        assert (await summary(world))["devices"] == "2/2"
        claim = (await world.reaches("two", "Running"))["reservation"]
        assert sorted(claim["devices"]) == ["a", "b"]
        assert await pod_uids(world, "one") == before
        await all_is_well(world)


async def test_b61_who_runs_on_the_device_that_fell_ill_runs_on_and_stays_booked() -> None:
    async with operated(gpu_node(annotations={"gputask.dev/devices": json.dumps(cards())})) as world:
        await world.apply(task("ill", variants=[variant(cpu=1, gpuSlot__1=1)]))
        before = await pod_uids(world, "ill")
        await declares(world, devices=cards(b="Unhealthy"))
        await world.apply(task("next", variants=[on_device(gpuSlot=1)]))
        assert (await world.reaches("next", "Running"))["reservation"]["devices"] == ["a"]
        assert await pod_uids(world, "ill") == before
        await declares(world, devices=cards())
        await world.apply(task("both", variants=[on_device(count=2, gpuSlot=1)]))
        await world.reaches("both", "Running")
        await world.apply(task("more", variants=[on_device(gpuSlot=1)]))
        await world.waits_for("more", "gpuSlot")
        await all_is_well(world)


# --- B64 ------------------------------------------------------------------------------------------------

MEMORY = {"a": 24000, "b": 8000}


def numbered(*order: str) -> list[Object]:
    """The devices in this order: 0, 1, ..."""
    return [
        {"id": id, "index": index, "resources": {"gpuSlot": 4, "gpuMemoryMB": MEMORY[id]}}
        for index, id in enumerate(order)
    ]


@pytest.mark.parametrize("restarts", [False, True], ids=["", "the operator too"])
async def test_b64_a_reservation_stays_with_its_device_when_the_numbers_change(restarts: bool) -> None:
    node = gpu_node(annotations={"gputask.dev/devices": json.dumps(numbered("a", "b"))})
    async with LocalCluster(nodes=[node], history=True) as local, Client(local.connection) as client:
        async with operated_by(local, client) as world:
            await world.apply(task("t", variants=[variant(cpu=1, gpuSlot__0=1, gpuMemoryMB__0=20000)]))
            before = await pod_uids(world, "t")
            await declares(world, devices=numbered("b", "a"))
            if not restarts:
                await follows_the_uuid(world, before)
                return
        async with operated_by(local, client) as world:
            await follows_the_uuid(world, before)


async def follows_the_uuid(world: World, before: list[str]) -> None:
    """t is on a, which is number 1 by now: free are 8000 of b and 4000 of a."""
    assert await pod_uids(world, "t") == before
    claim = (await world.status("t"))["reservation"]
    assert claim["devices"] == ["a"]
    assert (await world.ledger("n1"))["t"]["amounts"]["gpuMemoryMB/a"] == "20000"
    assert "GPUTASK_DEVICES=a" in (await world.log(claim["pod"])).splitlines()
    devices = (await world.get(GPUNODES, "n1"))["status"]["devices"]
    assert {device["id"]: device["index"] for device in devices} == {"b": 0, "a": 1}
    await world.apply(task("zero", variants=[variant(cpu=1, gpuMemoryMB__0=8000)]))
    assert (await world.reaches("zero", "Running"))["reservation"]["devices"] == ["b"]
    await world.apply(task("too-much", variants=[on_device(gpuMemoryMB=4001)], preemptionPolicy="Never"))
    await world.waits_for("too-much", "gpuMemoryMB")
    await world.apply(task("one", variants=[variant(cpu=1, gpuMemoryMB__1=4000)], priority=1))
    assert (await world.reaches("one", "Running"))["reservation"]["devices"] == ["a"]
    await all_is_well(world)


# --- B59 ------------------------------------------------------------------------------------------------


def agent(renewed: int) -> Object:
    """The Lease of n1's agent; a limit of 60 s is 1 s here."""
    spec = {
        "holderIdentity": "agent",
        "leaseDurationSeconds": 1,
        "renewTime": f"2026-01-01T00:{renewed:02d}:00.000000Z",
    }
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "n1", "namespace": "default", "labels": {"gputask.dev/agent": "true"}},
        "spec": spec,
    }


async def test_b59_nothing_new_goes_to_a_node_whose_agent_is_silent_and_what_runs_there_runs_on() -> None:
    async with operated(gpu_node(cards={"a": {"gpuMemoryMB": 8000}}), speed=20) as world:
        await world.client.create(LEASES, agent(0), "default")
        await world.apply(task("t1", variants=[on_device(gpuMemoryMB=4000)]))
        before = await pod_uids(world, "t1")
        await eventually(lambda: world.engine.snapshots.nodes["n1"].out)
        await world.apply(task("t2", variants=[on_device(gpuMemoryMB=4000)]))

        async def says_why() -> bool:
            said = await world.condition("t2", "Reserved")
            return said.get("reason") == "NodeOut" and "agent has not been heard of" in said["message"]

        await eventually(says_why)
        age = world.engine.metrics.registry.get_sample_value("gputask_node_agent_age_seconds", {"node": "n1"})
        assert age is not None
        assert age > 1
        await world.client.patch(LEASES, "n1", {"spec": agent(1)["spec"]}, "default")
        await world.reaches("t2", "Running")
        assert await pod_uids(world, "t1") == before
        assert (await world.condition("t1", "Evicted")) == {}
        await world.client.delete(LEASES, "n1", "default")
        await all_is_well(world)


async def test_b59_a_node_without_an_agent_is_as_its_admin_says() -> None:
    async with operated(gpu_node(), speed=20) as world:
        await world.client.create(LEASES, agent(0), "default")
        await eventually(lambda: world.engine.snapshots.nodes["n1"].out)
        await world.client.delete(LEASES, "n1", "default")
        await world.apply(task("t"))
        await world.reaches("t", "Running")
