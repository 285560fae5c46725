"""A node that falls silent, comes back, is shut down or deleted while work of ours is or was on it (line 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gputask.controller import contact
from gputask.kube.client import Client
from gputask.kube.resources import GPUTASKS, NODES, PODS
from gputask.local.cluster import LocalCluster
from support.afterwards import all_is_well
from support.controller import on_device, task
from support.local import eventually
from support.operator import Object, World, gpu_node, operated, operated_by

ALL = [on_device(gpuMemoryMB=8000)]
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


@pytest.fixture(autouse=True)
def settled_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node needs after it is Ready again: a minute in the field, half a second here."""
    monkeypatch.setattr(contact, "SETTLE_SECONDS", 0.5)


def card() -> Object:
    return gpu_node(cards={"a": {"gpuMemoryMB": 8000}})


async def falls_silent(world: World, *, silent: str | None = "true") -> None:
    await world.patch(NODES, "n1", {"metadata": {"annotations": {"sim.gputask.dev/silent": silent}}})
    await eventually(lambda: _is_ready(world, "True" if silent is None else "Unknown"))


async def _is_ready(world: World, wanted: str) -> bool:
    """To the server and to the operator: what happens before the operator hears of it is as if the node were well."""
    seen = [await world.get(NODES, "n1"), world.engine.store.nodes["n1"]]
    return all(("Ready", wanted) in {(c["type"], c["status"]) for c in _conditions(node)} for node in seen)


def _conditions(node: Mapping[str, Any]) -> list[Object]:
    return node["status"].get("conditions") or []


async def a_runs_and_b_waits(world: World) -> str:
    """The name of A's pod."""
    await world.apply(task("a", priority=1, variants=ALL))
    await world.reaches("a", "Running")
    await world.apply(task("b", variants=ALL))
    await world.says("b", "Reserved", "False")
    return str((await world.status("a"))["reservation"]["pod"])


async def its_pod_is_deleted_by_force(world: World) -> None:
    """A goes on waiting beside B; its devices are quarantined."""
    pod = await a_runs_and_b_waits(world)
    await falls_silent(world)
    await world.client.delete(PODS, pod, "default", grace_seconds=0)
    await eventually(lambda: _quarantined(world))
    await world.reaches("a", "Pending")


async def _quarantined(world: World) -> bool:
    return (await world.ledger("n1")).get("a", {}).get("state") == "Quarantined"


async def test_b17_a_silent_node_keeps_the_room_of_what_runs_on_it() -> None:
    async with operated(card(), speed=200) as world:
        pod = await a_runs_and_b_waits(world)
        await falls_silent(world)
        await asyncio.sleep(0.5)  # 100 s of the cluster: longer than any reservation lives
        assert await world.phases() == {"a": "Running", "b": "Pending"}
        await falls_silent(world, silent=None)
        assert (await world.get(PODS, pod))["status"]["phase"] == "Running"
        assert await world.phases() == {"a": "Running", "b": "Pending"}
        await world.delete(GPUTASKS, "a")
        await world.reaches("b", "Running")
        await all_is_well(world)


async def test_b17_the_devices_of_a_pod_that_vanished_out_of_sight_are_quarantined_until_the_node_is_back() -> None:
    async with operated(card(), speed=200) as world:
        await its_pod_is_deleted_by_force(world)
        await world.patch(NODES, "n1", {"metadata": {"annotations": {"sim.gputask.dev/silent": None}}})
        await eventually(lambda: _is_ready(world, "True"))
        assert await _quarantined(world), "Ready is not enough: the kubelet has yet to stop what it still runs"
        await world.reaches("a", "Running")  # the more important one of the two
        await all_is_well(world)


async def test_what_is_quarantined_says_so_and_the_task_goes_on_elsewhere() -> None:
    async with operated(card(), speed=200) as world:
        await its_pod_is_deleted_by_force(world)
        await world.apply(gpu_node("n2", cards={"b": {"gpuMemoryMB": 8000}}))
        status = await world.reaches("a", "Running")
        assert status["reservation"]["node"] == "n2"
        assert await _quarantined(world)
        assert (await world.condition("b", "Reserved"))["status"] == "False"
        await falls_silent(world, silent=None)
        await world.reaches("b", "Running")
        await all_is_well(world)


async def test_an_operator_that_starts_meanwhile_keeps_the_quarantine() -> None:
    async with (
        LocalCluster(nodes=[card()], history=True, speed=200) as local,
        Client(local.connection) as client,
    ):
        async with operated_by(local, client) as world:
            await its_pod_is_deleted_by_force(world)
        async with operated_by(local, client) as world:
            await asyncio.sleep(0.3)
            assert await _quarantined(world)
            await falls_silent(world, silent=None)
            await world.reaches("a", "Running")
            await all_is_well(world)


async def test_an_admin_vouches_for_a_node_that_is_shut_down() -> None:
    async with operated(card(), speed=200) as world:
        await its_pod_is_deleted_by_force(world)
        taints = (await world.get(NODES, "n1"))["spec"].get("taints") or []
        await world.patch(NODES, "n1", {"spec": {"taints": [*taints, OUT_OF_SERVICE]}})
        await world.ledger_is("n1", set())


async def test_a_node_that_is_deleted_takes_its_quarantine_with_it() -> None:
    async with operated(card(), speed=200) as world:
        await its_pod_is_deleted_by_force(world)
        await world.delete(NODES, "n1")
        await world.ledger_is("n1", set())
        await world.apply(card())
        await world.reaches("a", "Running")
        await all_is_well(world)
