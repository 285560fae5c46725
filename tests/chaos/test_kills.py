"""kill -9 of the operator at every point of the protocol, in the middle of a stream and of a preemption.

Whoever comes next makes whole what was left half done: judged from the server's history, without code of the operator.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputask.kube.client import Client
from gputask.kube.resources import GPUNODES, GPUTASKS
from gputask.local.api import Reply
from gputask.local.cluster import LocalCluster
from gputask.local.judge import judge
from gputask.local.requests import Request
from support.controller import on_device, task, variant
from support.local import eventually
from support.operator import Object, gpu_node

PROGRAM = Path(__file__).with_name("doomed.py")
POINTS = ("create", "claim", "reserve", "bind", "confirm", "keep-room", "evict", "release", "end", "delete", "fence")
RARE = ("keep-room", "evict", "fence", "delete")
SPEED = 10


class Recreated:
    """The Node of one task is deleted and made anew while the bind of its first pod is on its way: only then is an
    unbound pod bumped, before the ledger of the new Node is rebuilt (protocol line 17)."""

    def __init__(self) -> None:
        self.cluster: LocalCluster | None = None
        self._done = False

    async def __call__(self, request: Request, answer: Callable[[], Reply]) -> Reply | None:
        to_n3 = request.path.endswith("/binding") and b'"n3"' in request.body
        if to_n3 and self.cluster is not None and not self._done:
            self._done = True
            self.cluster.api.handle(Request("DELETE", "/api/v1/nodes/n3", {}))
            self.cluster.create(LICENSED)
            await asyncio.sleep(1.0)
        return answer()


LICENSED = gpu_node("n3", pools={"lic": 1}, cpu=1)


def stream(rng: random.Random, *, first: float) -> tuple[list[Object], list[Object]]:
    """Work that fills the nodes, and work of higher priority that has to make room; all of it ends by itself.

    The very first runs ``first`` seconds.
    """

    def work(name: str, priority: int, *variants: Object, runs: float, stops: float = 0) -> Object:
        sim = {"runs": f"{runs:g}", "stops": f"{stops:g}"}
        return task(name, priority=priority, variants=list(variants), sim=sim)

    card = on_device("gpu", gpuMemoryMB=4000, cpu=1)
    low = [
        work(
            f"low-{i}",
            0,
            card,
            variant("cpu", cpu=2),
            runs=rng.uniform(15, 25) if i else first,
            stops=rng.uniform(0, 3),
        )
        for i in range(7)
    ]
    low.append(work("licensed", 5, variant(cpu=1, lic=1), runs=3))
    high = [work(f"high-{i}", 10, on_device("all", gpuMemoryMB=8000, cpu=2), runs=rng.uniform(3, 6)) for i in range(2)]
    high += [work(f"late-{i}", 0, variant("cpu", cpu=1), runs=3) for i in range(3)]
    return low, high


class Life:
    """A cluster on which one operator after the other lives."""

    def __init__(self, cluster: LocalCluster, client: Client, kubeconfig: Path) -> None:
        self.cluster = cluster
        self.client = client
        self._kubeconfig = kubeconfig
        self._log = kubeconfig.with_suffix(".log").open("ab")

    async def operator(self, point: str = "nowhere", when: str = "before", number: int = 1) -> Any:
        return await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), str(self._kubeconfig), point, when, str(number),
            stdin=asyncio.subprocess.DEVNULL, stderr=self._log, start_new_session=True,
        )  # fmt: skip

    async def apply(self, manifests: list[Object]) -> None:
        for manifest in manifests:
            await self.client.create(GPUTASKS, manifest, "default")

    async def suspend(self, name: str, *, suspend: bool) -> None:
        await self.client.patch(GPUTASKS, name, {"spec": {"suspend": suspend}}, "default")

    async def runs(self, name: str) -> bool:
        return await self._phase(name) == "Running"

    async def waits(self, name: str) -> bool:
        return await self._phase(name) == "Pending"

    async def _phase(self, name: str) -> str | None:
        return ((await self.client.get(GPUTASKS, name, "default")).get("status") or {}).get("phase")

    async def phases(self) -> list[str]:
        tasks = (await self.client.list(GPUTASKS, "default")).items
        return [(found.get("status") or {}).get("phase", "") for found in tasks]

    async def fill(self, count: int) -> bool:
        return (await self.phases()).count("Running") >= count

    async def over(self) -> bool:
        return all(phase in ("Succeeded", "Failed") for phase in await self.phases())

    async def left(self) -> list[str]:
        """Entries and holds of all ledgers."""
        found = (await self.client.list(GPUNODES)).items
        status = [gpunode.get("status") or {} for gpunode in found]
        return [e["task"] for s in status for kind in ("reservations", "holds") for e in (s.get(kind) or {}).values()]


def victims(history: list[Any]) -> dict[str, set[tuple[str, ...]]]:
    """For each preemptor all sets of victims that were ever kept for it."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for _, _, kind, obj in history:
        for hold in ((obj.get("status") or {}).get("holds") or {}).values() if kind == "GpuNode" else ():
            found.setdefault(hold["task"], set()).add(tuple(sorted(v["podUID"] for v in hold["victims"])))
    return found


def evicted(history: list[Any]) -> set[str]:
    """UIDs of pods that were evicted through the API."""
    return {
        pod["metadata"]["uid"]
        for _, _, kind, pod in history
        if kind == "Pod"
        for condition in (pod.get("status") or {}).get("conditions") or ()
        if condition["type"] == "DisruptionTarget" and condition["reason"] == "EvictionByEvictionAPI"
    }


async def killed(point: str, when: str, seed: int, folder: Path) -> bool:
    """One life with one kill; whether it came to the kill. All that must hold is asserted."""
    rng, recreated = random.Random(f"{point} {when} {seed}"), Recreated()
    nodes = [
        gpu_node("n1", cards={"a": {"gpuMemoryMB": 8000}, "b": {"gpuMemoryMB": 8000}}, cpu=6),
        gpu_node("n2", cpu=5),
        LICENSED,
    ]
    async with (
        LocalCluster(nodes=nodes, history=True, speed=SPEED, fault=recreated) as cluster,
        Client(cluster.connection) as client,
    ):
        recreated.cluster = cluster
        life = Life(cluster, client, cluster.write_kubeconfig(folder / f"{point}-{when}-{seed}"))
        low, high = stream(rng, first=60 if point == "delete" else 20)
        await life.apply(low)
        number = 1 if point in RARE else rng.choice([1, 2, 3])
        operator = await life.operator(point, when, number)
        try:
            async with asyncio.timeout(60):
                await _until(lambda: life.fill(5), operator)
                if point == "delete":  # nothing else deletes a pod that runs
                    await _until(lambda: life.runs("low-0"), operator)
                    await life.suspend("low-0", suspend=True)
                    await _until(lambda: life.waits("low-0"), operator)
                await life.apply(high)
                if point == "delete":
                    await life.suspend("low-0", suspend=False)
                await _until(life.over, operator)
                was_killed = operator.returncode is not None
                if was_killed:
                    assert operator.returncode == -9
                    operator = await life.operator()
                await eventually(life.over, seconds=50)
                await eventually(lambda: _nothing_left(life))
        finally:
            if operator.returncode is None:
                operator.kill()
                await operator.wait()
        history = cluster.store.history
        assert history is not None
        assert [str(finding) for finding in judge(history)] == []
        assert set(await life.phases()) == {"Succeeded"}
        for preemptor, sets in victims(history).items():
            assert len(sets) == 1, f"{preemptor} began anew with other victims: {sets}"
        named = {uid for sets in victims(history).values() for chosen in sets for uid in chosen}
        assert evicted(history) <= named, "somebody was evicted without a hold"
        return was_killed


async def _until(there: Callable[[], Any], operator: Any) -> None:
    """Until it is so, or the operator is dead. (Neither tells by itself.)"""
    while operator.returncode is None and not await there():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def _nothing_left(life: Life) -> bool:
    return await life.left() == []


@pytest.mark.parametrize("point", ["claim", "reserve", "keep-room", "evict", "release", "end"])
async def test_after_a_kill_at_this_point_nothing_is_lost_and_nothing_happens_twice(point: str, tmp_path: Path) -> None:
    assert await killed(point, "after", 0, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_at_any_point_with_ten_seeds(point: str, when: str, tmp_path: Path) -> None:
    kills = [await killed(point, when, seed, tmp_path) for seed in range(10)]
    print(f"{when} {point}: {sum(kills)} kills in {len(kills)} lives")
    assert sum(kills) >= 8
