"""Two replicas: one is killed, one is stopped and goes on, and two act at the same time. Judged from the history."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gputask.kube.client import Client
from gputask.kube.errors import NotFound
from gputask.kube.resources import GPUNODES, GPUTASKS, LEASES
from gputask.local.cluster import LocalCluster
from gputask.local.judge import judge
from gputask.local.supervisor import OperatorProcess
from support.controller import on_device, task, variant
from support.local import eventually
from support.operator import Object, gpu_node

ELECTED = ("--lease-name", "op", "--lease-namespace", "default", "--lease-seconds", "3")
FORCED = ("--no-leader-elect",)


class Pair:
    """One cluster and two operators on it."""

    def __init__(self, cluster: LocalCluster, client: Client, operators: list[OperatorProcess]) -> None:
        self.cluster = cluster
        self.client = client
        self.operators = operators

    async def apply(self, *manifests: Object) -> None:
        await asyncio.gather(*(self.client.create(GPUTASKS, manifest, "default") for manifest in manifests))

    async def ended(self) -> int:
        tasks = (await self.client.list(GPUTASKS, "default")).items
        return sum((found.get("status") or {}).get("phase") == "Succeeded" for found in tasks)

    async def leader(self) -> OperatorProcess | None:
        """Whoever says that it acts."""
        for operator in self.operators:
            if await metric(operator, "gputask_leader") == 1.0:
                return operator
        return None

    async def holder(self) -> str:
        try:
            spec: Object = (await self.client.get(LEASES, "op", "default"))["spec"]
        except NotFound:
            return ""
        return str(spec.get("holderIdentity") or "")

    async def left(self) -> list[Object]:
        return [
            entry
            for gpunode in (await self.client.list(GPUNODES)).items
            for kind in ("reservations", "holds")
            for entry in ((gpunode.get("status") or {}).get(kind) or {}).values()
        ]

    async def is_over(self, count: int) -> None:
        """All of so many tasks have ended, once, with nothing left and nothing wrong on the way."""

        async def over() -> bool:
            return await self.ended() == count and not await self.left()

        await eventually(over, seconds=90)
        assert self.cluster.store.history is not None
        assert [str(finding) for finding in judge(self.cluster.store.history)] == []


async def metric(operator: OperatorProcess, pattern: str) -> float:
    """The sum of all series whose line starts so; 0 where the operator does not answer."""
    try:
        timeout = aiohttp.ClientTimeout(total=1)
        url = f"http://127.0.0.1:{operator.port}/metrics"
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            lines = (await answer.text()).splitlines()
    except (aiohttp.ClientError, TimeoutError):
        return 0.0
    return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(pattern, line))


@asynccontextmanager
async def pair(folder: Path, *options: str, nodes: list[Object], speed: float) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(LocalCluster(nodes=nodes, history=True, speed=speed))
        client = await stack.enter_async_context(Client(cluster.connection))
        kubeconfig = cluster.write_kubeconfig(folder / "kubeconfig")
        operators = [await stack.enter_async_context(OperatorProcess(kubeconfig, *options)) for _ in range(2)]
        await asyncio.gather(*(operator.ready() for operator in operators))
        yield Pair(cluster, client, operators)


def work(i: int, rng: random.Random) -> Object:
    """Any card, else a cpu; some of it has to evict others."""
    wants = [on_device("gpu", gpuMemoryMB=4000, cpu=1), variant("cpu", cpu=2)]
    sim = {"runs": f"{rng.uniform(2, 20):.1f}", "stops": f"{rng.uniform(0, 2):.1f}"}
    return task(f"t{i:03d}", priority=rng.choice([0, 0, 0, 5]), variants=wants, sim=sim)


NODES = [
    gpu_node("n1", cards={"a": {"gpuMemoryMB": 8000}, "b": {"gpuMemoryMB": 8000}}, cpu=6),
    gpu_node("n2", cpu=5),
]


async def stopped_and_continued(seed: int, folder: Path) -> None:
    """The leader stops in the middle of its work, the other takes over, and both act until the first one notices."""
    rng = random.Random(seed)
    async with pair(folder, *ELECTED, nodes=NODES, speed=10) as two:
        await two.apply(*(work(i, rng) for i in range(12)))
        await eventually(two.leader)
        await asyncio.sleep(rng.uniform(0.0, 1.0))
        first = await two.leader()
        assert first is not None
        before = await two.holder()
        os.kill(first.pid, signal.SIGSTOP)
        try:
            await two.apply(*(work(i, rng) for i in range(12, 24)))

            async def taken_over() -> bool:
                return await two.holder() != before

            await eventually(taken_over)
            await asyncio.sleep(rng.uniform(0.0, 0.5))
        finally:
            os.kill(first.pid, signal.SIGCONT)
        await two.is_over(24)
        assert await metric(first, "gputask_leader") == 0.0


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_leader_that_was_stopped_and_goes_on_does_no_harm(seed: int, tmp_path: Path) -> None:
    await stopped_and_continued(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
async def test_a_leader_that_was_stopped_and_goes_on_does_no_harm_with_any_seed(seed: int, tmp_path: Path) -> None:
    await stopped_and_continued(1000 + seed, tmp_path)


async def test_b105_the_standby_writes_nothing_and_takes_over_when_the_active_one_is_killed(tmp_path: Path) -> None:
    nodes = [gpu_node(cards={"a": {"gpuMemoryMB": 8000}})]
    async with pair(tmp_path, *ELECTED, nodes=nodes, speed=10) as two:
        sim = {"runs": "3"}
        await two.apply(*(task(f"t{i}", variants=[on_device(gpuMemoryMB=4000)], sim=sim) for i in range(30)))
        await eventually(lambda: two.ended())
        first = await two.leader()
        assert first is not None
        (standby,) = (operator for operator in two.operators if operator is not first)
        assert await metric(standby, "gputask_admissions_total") == 0.0
        os.kill(first.pid, signal.SIGKILL)
        await two.is_over(30)


async def both_act(count: int, folder: Path) -> int:
    """Two operators without election; how many conflicts they met."""
    cards = {f"c{i}": {"gpuMemoryMB": 8000} for i in range(4)}
    nodes = [gpu_node(f"n{i}", cards=cards, cpu=32) for i in range(2)]
    async with pair(folder, *FORCED, nodes=nodes, speed=50) as two:
        rng = random.Random(count)
        for start in range(0, count, 50):
            await two.apply(*(work(i, rng) for i in range(start, min(start + 50, count))))
            await asyncio.sleep(0.2)
        await two.is_over(count)
        return int(sum([await metric(operator, "gputask_conflicts_total") for operator in two.operators]))


async def test_two_that_act_at_the_same_time_do_no_harm(tmp_path: Path) -> None:
    assert await both_act(60, tmp_path) > 0


@pytest.mark.long
async def test_two_that_act_at_the_same_time_do_no_harm_in_a_thousand_admissions(tmp_path: Path) -> None:
    conflicts = await both_act(1000, tmp_path)
    print(f"1000 admissions by two active operators: {conflicts} conflicts")
    assert conflicts > 0
