"""What people see with kubectl."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from support.controller import on_device, task, variant
from support.operator import World, gpu_node, operated

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")


async def kubectl(world: World, folder: Path, *arguments: str, stdin: str = "") -> str:
    """The output of a command that must succeed."""
    config = world.cluster.write_kubeconfig(folder / "kubeconfig")
    process = await asyncio.create_subprocess_exec(
        "kubectl", "--kubeconfig", str(config), *arguments, stdin=-1, stdout=-1, stderr=-1,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin:/usr/local/bin"},
    )  # fmt: skip
    out, err = await process.communicate(stdin.encode())
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_a_task_applied_with_kubectl_shows_variant_node_and_devices_and_its_node_what_is_used(
    tmp_path: Path,
) -> None:
    cards = {"GPU-a": {"gpuMemoryMB": 24000}}
    async with operated(gpu_node("node-1", cards=cards), speed=50) as world:
        manifest = task("train", variants=[on_device("on-card", gpuMemoryMB=20000), variant("on-cpu", cpu=4)])
        await kubectl(world, tmp_path, "apply", "-f", "-", stdin=json.dumps(manifest))
        await world.reaches("train", "Running")
        tasks = await kubectl(world, tmp_path, "get", "gt")
        header, row = tasks.splitlines()
        assert {"NAME", "PHASE", "VARIANT", "NODE", "DEVICES"} <= set(header.split())
        assert {"train", "Running", "on-card", "node-1"} <= set(row.split())
        assert "GPU-a" in row
        nodes = await kubectl(world, tmp_path, "get", "gn")
        assert "node-1" in nodes
        assert "20000" in nodes
        log = await kubectl(world, tmp_path, "logs", (await world.status("train"))["reservation"]["pod"])
        assert "GPUTASK_VARIANT=on-card" in log
        await kubectl(world, tmp_path, "delete", "gt", "train", "--wait=false")
        await world.ledger_is("node-1", ())
