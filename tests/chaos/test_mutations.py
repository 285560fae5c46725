"""The judge finds what goes wrong once a part of the protocol is removed from the real operator."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gputask.kube.client import Client
from gputask.kube.resources import GPUTASKS
from gputask.local.api import Reply
from gputask.local.cluster import LocalCluster
from gputask.local.judge import judge
from gputask.local.requests import Request
from support.controller import on_device, task, variant
from support.local import eventually
from support.operator import Object, gpu_node

PROGRAM = Path(__file__).with_name("doomed.py")
CARD = gpu_node("n1", cards={"a": {"gpuMemoryMB": 8000}})


@asynccontextmanager
async def mutated(
    folder: Path, mutation: str, *, nodes: list[Object], operators: int = 1, **cluster: Any
) -> AsyncIterator[tuple[LocalCluster, Client]]:
    """A cluster under operators that lack a part of the protocol ("" lacks none)."""
    async with AsyncExitStack() as stack:
        local = await stack.enter_async_context(LocalCluster(nodes=nodes, history=True, **cluster))
        client = await stack.enter_async_context(Client(local.connection))
        kubeconfig = local.write_kubeconfig(folder / "kubeconfig")
        for _ in range(operators):
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(PROGRAM), str(kubeconfig), "nowhere", "before", "1",
                env={**os.environ, "MUTATION": mutation}, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            stack.push_async_callback(process.wait)
            stack.callback(process.kill)
        yield local, client


async def apply(client: Client, *manifests: Object) -> None:
    await asyncio.gather(*(client.create(GPUTASKS, manifest, "default") for manifest in manifests))


async def running(client: Client) -> int:
    tasks = (await client.list(GPUTASKS, "default")).items
    return sum((found.get("status") or {}).get("phase") == "Running" for found in tasks)


def rules(cluster: LocalCluster) -> set[str]:
    assert cluster.store.history is not None
    return {finding.rule for finding in judge(cluster.store.history)}


async def races(folder: Path, mutation: str) -> set[str]:
    """Two operators, and many small tasks on one node."""
    nodes = [gpu_node("n1", cards={"a": {"gpuMemoryMB": 8000}}, cpu=8)]
    async with mutated(folder, mutation, nodes=nodes, operators=2, speed=20) as (cluster, client):
        wants = [on_device(gpuMemoryMB=2000, cpu=1)]
        for _ in range(10):
            await apply(client, *(task(f"t{i}", variants=wants, sim={"runs": "4"}) for i in range(8)))
            await asyncio.sleep(0.8)
            if found := rules(cluster):
                return found
            tasks = (await client.list(GPUTASKS, "default")).items
            await asyncio.gather(*(client.delete(GPUTASKS, t["metadata"]["name"], "default") for t in tasks))

            async def all_gone() -> bool:
                return not (await client.list(GPUTASKS, "default")).items

            await eventually(all_gone)
        return rules(cluster)


async def stops_slowly(folder: Path, mutation: str) -> set[str]:
    """Work that takes its time to stop, evicted for work of higher priority."""
    async with mutated(folder, mutation, nodes=[CARD], speed=5) as (cluster, client):
        wants = [on_device(gpuMemoryMB=8000)]
        await apply(client, task("low", variants=wants, sim={"stops": "10"}))
        await eventually(lambda: running(client))
        await apply(client, task("high", priority=9, variants=wants))
        await asyncio.sleep(3)
        return rules(cluster)


async def ends_at_once(folder: Path, mutation: str) -> set[str]:
    """One task that runs for a moment."""
    async with mutated(folder, mutation, nodes=[CARD], speed=10) as (cluster, client):
        await apply(client, task("t", sim={"runs": "1"}))
        await asyncio.sleep(4)
        return rules(cluster)


class LosesLedger:
    """The ledger of a node is lost while a bind there is on its way."""

    def __init__(self) -> None:
        self.cluster: LocalCluster | None = None
        self._done = False

    async def __call__(self, request: Request, answer: Callable[[], Reply]) -> Reply | None:
        if request.path.endswith("/binding") and self.cluster is not None and not self._done:
            self._done = True
            merge, ledger = "application/merge-patch+json", "/apis/gputask.dev/v1alpha1/gpunodes/n1"
            self.cluster.api.handle(Request("PATCH", ledger, {}, b'{"metadata":{"finalizers":null}}', merge))
            self.cluster.api.handle(Request("DELETE", ledger, {}))
            await asyncio.sleep(3)
        return answer()


async def ledger_is_lost(folder: Path, mutation: str) -> set[str]:
    """A ledger that is lost under a bind; the late bind must not take effect."""
    loses = LosesLedger()
    async with mutated(folder, mutation, nodes=[CARD], speed=10, fault=loses) as (cluster, client):
        loses.cluster = cluster
        await apply(client, task("t", variants=[variant(cpu=1)]))
        await asyncio.sleep(6)
        return rules(cluster)


SCENES = {"version": races, "end": stops_slowly, "claim": ends_at_once, "fence": ledger_is_lost}


@pytest.mark.parametrize("mutation", SCENES)
async def test_the_judge_finds_what_the_protocol_prevents(mutation: str, tmp_path: Path) -> None:
    assert await SCENES[mutation](tmp_path, mutation) != set()


@pytest.mark.parametrize("mutation", SCENES)
async def test_and_finds_nothing_in_the_same_scene_with_the_whole_protocol(mutation: str, tmp_path: Path) -> None:
    assert await SCENES[mutation](tmp_path, "") == set()
