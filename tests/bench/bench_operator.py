"""The operator on the embedded server: ``python tests/bench/bench_operator.py [start|react]`` prints a table.

The server runs in this process, the operator in one of its own.

start: 5 000 nodes, 10 000 tasks of which half can run, and 10 000 pods, theirs and foreign ones. First an operator that
finds nothing of its own there, and settles the cluster; then others that begin on what it left, each with one new task.
How long from the start of the process to its first decision (it makes a pod), how much memory, and how long its event
loop was blocked.

react: 1 000 nodes that are full, and 5 000 tasks; how long from the last release on a node to the next bind
there, and from a hold in the ledger to the first request for the eviction of its victim.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import isnan, nan
from pathlib import Path
from typing import Any

from gputask.controller import garbage
from gputask.kube.client import Client
from gputask.kube.resources import PODS
from gputask.local.api import Reply
from gputask.local.cluster import LocalCluster
from gputask.local.requests import Request
from support.controller import on_device, task, variant
from support.operator import gpu_node

Object = dict[str, Any]
PROGRAM = Path(__file__).with_name("watched.py")

RESTARTS = 3
LATER_SECONDS = 10.0
"""So long an operator runs on after its first decision, and is watched."""
LONGEST_SECONDS = 120.0
TEXTS_PER_SECOND = 30
"""A settled cluster has fewer writes than this: only texts, of which the operator itself bounds the rate."""
QUIET_SECONDS = 6.0
"""For so long at least: longer than a pass of the planner on this cluster."""


class Clock:
    """Notes when which write comes to the server: seconds on this process's clock."""

    def __init__(self) -> None:
        self.pods: list[float] = []
        self.ledgers = 0
        self.delays: list[float] = []
        self.preempting: list[float] = []
        self._releases: dict[str, float] = {}
        """By node: the latest since its last bind. An earlier one did not make enough room."""
        self._entries: dict[str, set[str]] = {}
        self._victims: dict[str, float] = {}
        """By pod: when a hold named it first; NaN once its eviction was asked for."""

    async def __call__(self, request: Request, answer: Callable[[], Reply]) -> Reply | None:
        now = time.perf_counter()
        if request.method == "PUT" and "/gpunodes/" in request.path:
            self.ledgers += 1
            self._ledger(json.loads(request.body), now)
        elif request.method == "POST" and request.path.endswith("/pods"):
            self.pods.append(now)
        elif request.path.endswith("/binding"):
            released = self._releases.pop(json.loads(request.body)["target"]["name"], None)
            if released is not None:
                self.delays.append(now - released)
        elif request.path.endswith("/eviction"):
            pod = request.path.split("/")[-2]
            if not isnan(held := self._victims.get(pod, nan)):
                self.preempting.append(now - held)
                self._victims[pod] = nan
        return answer()

    def _ledger(self, gpunode: Object, now: float) -> None:
        name, status = gpunode["metadata"]["name"], gpunode.get("status") or {}
        before, after = self._entries.get(name, set()), set(status.get("reservations") or {})
        self._entries[name] = after
        if before - after:
            self._releases[name] = now
        for hold in (status.get("holds") or {}).values():
            for victim in hold["victims"]:
                self._victims.setdefault(victim["pod"], now)


@dataclass
class Run:
    """One life of an operator process. ``blocks`` of its event loop: how long and when, the longest first."""

    began: float
    mib: float = 0.0
    blocks: list[tuple[float, float]] = field(default_factory=list)
    decided: float = float("nan")
    """Seconds from its start to its first pod."""

    def told(self) -> str:
        blocks = ", ".join(f"{block * 1000:.0f} ms at {at:.1f} s" for block, at in self.blocks)
        return f"decided after {self.decided:.2f} s, {self.mib:.0f} MiB, blocks {blocks}"


@asynccontextmanager
async def operator(cluster: LocalCluster) -> AsyncIterator[Run]:
    """The program runs inside the context; what it reports is there after it."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig, report = cluster.write_kubeconfig(Path(folder) / "kubeconfig"), Path(folder) / "report"
        run = Run(time.perf_counter())
        process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), str(kubeconfig), str(report))
        try:
            yield run
        finally:
            process.terminate()
            await process.wait()
        found = json.loads(report.read_text())
        run.mib, run.blocks = found["mib"], found["blocks"]


async def first_decision(clock: Clock, run: Run) -> None:
    """Until the operator makes a pod, and some seconds more."""
    while not (found := [at for at in clock.pods if at > run.began]):
        if time.perf_counter() - run.began > LONGEST_SECONDS:
            return
        await asyncio.sleep(0.01)
    run.decided = found[0] - run.began
    await asyncio.sleep(LATER_SECONDS)


# --- the clusters ---------------------------------------------------------------------------------------


async def fill(cluster: LocalCluster, manifests: Iterable[Object]) -> None:
    for number, manifest in enumerate(manifests):
        cluster.create(manifest)
        if number % 100 == 0:
            await asyncio.sleep(0)
    garbage.settle()  # a collection of the server's takes 0.4 s, in which it would answer nobody


def foreign(i: int, nodes: int) -> Object:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
    spec = {"nodeName": f"n{i % nodes:05d}", "containers": [container]}
    meta = {"name": f"f{i:05d}", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running"}}


def idle(node: Object) -> Object:
    """A node without a simulated kubelet that is Ready all the same."""
    node["metadata"]["annotations"]["sim.gputask.dev/node"] = "false"
    node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return node


def carded(i: int) -> Object:
    """Each fourth node has a card; one task fits on each, as all ask more than half of its cpus."""
    return idle(gpu_node(f"n{i:05d}", cards={f"c{i}": {"gpuMemoryMB": 24000}} if i % 4 == 0 else None, cpu=8))


def wish(i: int) -> Object:
    wants = [on_device(gpuMemoryMB=8000 + 1000 * (i % 8), cpu=5), variant("cpu", cpu=5 + i % 3)]
    return task(f"t{i:05d}", priority=i % 4, variants=wants)


async def settle(cluster: LocalCluster) -> None:
    """Until the operator only writes texts; then all bound pods run, and until it has taken that in."""
    await _quiet(cluster)
    async with Client(cluster.connection) as client:
        for pod in (await client.list(PODS, "default")).items:
            if pod["spec"].get("nodeName"):
                meta = pod["metadata"]
                await client.patch(
                    PODS, meta["name"], {"status": {"phase": "Running"}}, meta["namespace"], subresource="status"
                )
    await _quiet(cluster)


async def _quiet(cluster: LocalCluster) -> None:
    before, most = float("-inf"), TEXTS_PER_SECOND * QUIET_SECONDS
    while cluster.store.number - before >= most:
        before = cluster.store.number
        await asyncio.sleep(QUIET_SECONDS)


# --- start ----------------------------------------------------------------------------------------------


async def start(nodes: int, tasks: int) -> None:
    clock = Clock()
    async with LocalCluster(fault=clock) as cluster:
        await fill(cluster, (carded(i) for i in range(nodes)))
        await fill(cluster, (foreign(i, nodes) for i in range(tasks // 2)))
        await fill(cluster, (wish(i) for i in range(tasks)))
        async with operator(cluster) as first:
            await first_decision(clock, first)
            await settle(cluster)
        print(f"start: {nodes} nodes, {tasks} tasks, {tasks // 2} foreign pods and {len(clock.pods)} of tasks")
        print(f"  the very first: {first.told()}")
        runs = [await restart(cluster, clock, number) for number in range(RESTARTS)]
    _line("restart: first decision", [run.decided for run in runs], "s", 5.0)
    _line("restart: largest memory", [run.mib for run in runs], "MiB", 300.0)
    _line("restart: longest block of the loop", [run.blocks[0][0] * 1000 for run in runs], "ms", 100.0)


async def restart(cluster: LocalCluster, clock: Clock, number: int) -> Run:
    """An operator on a settled cluster, in which there is one new task, and room for it."""
    cluster.create(task(f"new{number}", priority=100, variants=[variant(cpu=1)]))
    pods, ledgers = len(clock.pods), clock.ledgers
    async with operator(cluster) as run:
        await first_decision(clock, run)
    print(f"  restart {number + 1}: {run.told()}")
    made, written = len(clock.pods) - pods, clock.ledgers - ledgers
    if (made, written) != (1, 2):
        print(f"  it was not settled: {made} pods were made (1 is right), {written} ledgers written (2 are right)")
    return run


# --- react ----------------------------------------------------------------------------------------------


async def react(nodes: int, tasks: int) -> None:
    clock = Clock()
    async with LocalCluster(fault=clock) as cluster:
        await fill(cluster, (gpu_node(f"n{i:05d}", cpu=8) for i in range(nodes)))
        await fill(cluster, (brief(i) for i in range(tasks)))
        async with operator(cluster) as run:
            await asyncio.sleep(75)
            for i in range(20):
                cluster.create(task(f"high{i}", priority=100, variants=[variant(cpu=8)], sim={"runs": "60"}))
                await asyncio.sleep(0.5)
            await asyncio.sleep(15)
    print(f"react: {nodes} nodes, {tasks} tasks, {len(clock.delays)} binds, {len(clock.preempting)} evictions")
    print(f"  {run.mib:.0f} MiB, blocks {[round(block, 3) for block, _ in run.blocks]}")
    _line("react: release to next bind, p50", [_quantile(clock.delays, 0.5)], "ms", None)
    _line("react: release to next bind, p99", [_quantile(clock.delays, 0.99)], "ms", 500.0)
    _line("react: hold to eviction request, p50", [_quantile(clock.preempting, 0.5)], "ms", None)
    _line("react: hold to eviction request, largest", [_quantile(clock.preempting, 1.0)], "ms", 300.0)


def brief(i: int) -> Object:
    runs = str(60 + (i * 7919) % 240)
    return task(f"t{i:05d}", priority=i % 4, variants=[variant(cpu=2 + i % 3)], sim={"runs": runs})


def _quantile(seconds: list[float], q: float) -> float:
    """In ms."""
    found = sorted(seconds)
    return found[min(len(found) - 1, int(len(found) * q))] * 1000 if found else float("nan")


# --- the table ------------------------------------------------------------------------------------------


def _line(what: str, values: list[float], unit: str, target: float | None) -> None:
    """One row: median and best of all runs; the target is met if the median is."""
    median, best = statistics.median(values), min(values)
    verdict = "" if target is None else f"| <= {target:g} {unit} | {'met' if median <= target else 'NOT met'}"
    print(f"| {what:<42} | {median:9.4g} {unit:<3} | {best:9.4g} {unit:<3} {verdict}")


if __name__ == "__main__":
    garbage.calm()
    asked = sys.argv[1:] or ["start", "react"]
    if "start" in asked:
        asyncio.run(start(5000, 10_000))
    if "react" in asked:
        asyncio.run(react(1000, 5000))
