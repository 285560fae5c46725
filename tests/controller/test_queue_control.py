"""Namespaces that are paused, drained and resumed; what ``gputask queue`` and ``gputask explain`` say of a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gputask.kube.client import Client
from gputask.kube.resources import GPUTASKS, NAMESPACES, PODS
from gputask.local.cluster import LocalCluster
from support.command import Command, command
from support.controller import on_device, task, variant
from support.local import eventually
from support.operator import Object, World, gpu_node, operated, operated_by


async def waits_for(world: World, name: str, reason: str) -> None:
    async def so() -> bool:
        return (await world.condition(name, "Reserved")).get("reason") == reason

    await eventually(so)


async def test_a_paused_namespace_starts_nothing_until_it_is_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with operated(gpu_node(cpu=2), speed=20) as world:
        gputask = command(world, tmp_path, capsys)
        await world.apply(task("runs"))
        await world.reaches("runs", "Running")
        assert (await gputask("queue", "pause"))[:2] == (0, "namespace/default Hold\n")
        await world.apply(task("waits", priority=9))
        await waits_for(world, "waits", "Paused")
        assert (await world.status("runs"))["phase"] == "Running"
        other = await world.client.create(NAMESPACES, {"metadata": {"name": "other"}})
        free = task("free", priority=1)
        free["metadata"]["namespace"] = "other"
        await world.apply(free)

        async def started() -> bool:
            pods = (await world.client.list(PODS, other["metadata"]["name"])).items
            return any(pod["status"].get("phase") == "Running" for pod in pods)

        await eventually(started)  # nothing is held for a task of a paused namespace
        await gputask("queue", "resume")
        await world.reaches("waits", "Running", "Preempting")


async def test_a_drained_namespace_stops_and_waits_at_its_old_rank_over_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with LocalCluster(nodes=[gpu_node()], history=True, speed=20) as local, Client(local.connection) as client:
        async with operated_by(local, client) as world:
            gputask = command(world, tmp_path, capsys)
            await world.apply(task("t", grace=1))
            await world.reaches("t", "Running")
            await gputask("queue", "drain", "-n", "default")
            found = await world.reaches("t", "Pending")
            assert (found["evictions"], found.get("crashes")) == (1, None)
            await world.ledger_is("n1", ())
        async with operated_by(local, client) as world:
            await waits_for(world, "t", "Paused")
            await gputask("queue", "resume")
            await world.reaches("t", "Running")
            world.judged()


async def test_the_queue_tells_position_and_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with operated(gpu_node(cards={"a": {"gpuMemoryMB": 8000}}), speed=20) as world:
        gputask = command(world, tmp_path, capsys)
        wants = [on_device(gpuMemoryMB=8000)]
        await world.apply(task("runs", priority=9, variants=wants))
        await world.reaches("runs", "Running")
        await world.apply(task("low", variants=wants), task("high", priority=5, variants=wants))
        await world.apply(
            task("never", priority=1, variants=[variant(cpu=999)]), task("off", priority=-1, suspend=True)
        )
        for name, reason in (("low", "Short"), ("high", "Holding"), ("never", "Short"), ("off", "Suspended")):
            await waits_for(world, name, reason)
        code, out, _ = await gputask("queue", "-o", "json")
        rows: list[Object] = json.loads(out)["queue"]
        assert code == 0
        assert [(row["position"], row["task"], row["priority"], row["reason"]) for row in rows] == [
            (1, "default/high", 5, "Holding"),
            (2, "default/never", 1, "Short"),
            (3, "default/low", 0, "Short"),
            (None, "default/off", -1, "Suspended"),
        ]
        code, out, _ = await gputask("queue")
        assert "default/high" in out

        code, out, _ = await gputask("explain", "low", "-o", "json")
        shape = json.loads(out)
        assert (code, shape["position"], shape["feasible"]) == (0, 3, True)
        assert shape["wouldRunIf"][0]["heldBy"]
        assert (await gputask("explain", "never", "-o", "json"))[0] == 1
        code, _, err = await gputask("explain", "nobody")
        assert (code, "no GpuTask of this name" in err) == (2, True)


async def test_a_cluster_that_does_not_answer_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with LocalCluster() as local:
        kubeconfig = local.write_kubeconfig(tmp_path / "kubeconfig")
    gputask = Command(kubeconfig, capsys)
    for arguments in (("queue",), ("explain", "t"), ("queue", "pause")):
        code, out, err = await gputask(*arguments)
        assert (code, out, err.count("\n")) == (3, "", 1)


async def all_accepted_are(world: World, *wanted: str) -> None:
    async def so() -> bool:
        said = {name: await world.condition(name, "Accepted") for name in await world.phases()}
        refused = {c["reason"] for c in said.values() if c.get("status") == "False"}
        return {name for name, c in said.items() if c.get("status") == "True"} == set(wanted) and refused <= {
            "QueueFull"
        }

    await eventually(so)


async def test_a_full_queue_refuses_the_newcomer_and_drops_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with operated(gpu_node(cpu=1), speed=20, max_waiting=2) as world:
        await world.apply(task("runs"))
        await world.reaches("runs", "Running")
        for name in ("w1", "w2"):
            await world.apply(task(name))
            await world.says(name, "Accepted", "True")
        await world.apply(task("new", priority=9))
        await world.says("new", "Accepted", "False")
        await all_accepted_are(world, "runs", "w1", "w2")
        code, out, _ = await command(world, tmp_path, capsys)("queue", "-o", "json")
        rows = {row["task"]: row for row in json.loads(out)["queue"]}
        assert (code, rows["default/new"]["reason"], rows["default/new"]["position"]) == (0, "QueueFull", None)
        assert "--max-waiting" in rows["default/new"]["message"]
        await world.delete(GPUTASKS, "w2")
        await all_accepted_are(world, "runs", "w1", "new")


async def test_who_was_accepted_stays_so_under_the_next_operator_and_when_it_comes_back_evicted() -> None:
    nodes = [gpu_node(cpu=1)]
    async with LocalCluster(nodes=nodes, history=True, speed=20) as local, Client(local.connection) as client:
        async with operated_by(local, client) as world:
            await world.apply(task("runs"))
            await world.reaches("runs", "Running")
            await world.apply(*(task(f"w{i}") for i in range(3)))
            await all_accepted_are(world, "runs", "w0", "w1", "w2")
        async with operated_by(local, client, max_waiting=1) as world:
            await world.apply(task("new"))
            await world.says("new", "Accepted", "False")
            pod = (await world.status("runs"))["reservation"]["pod"]
            await world.client.delete(PODS, pod, "default")
            await world.says("runs", "Evicted", "True")
            await all_accepted_are(world, "runs", "w0", "w1", "w2")
            world.judged()
