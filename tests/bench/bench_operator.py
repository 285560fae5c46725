"""The operator on the embedded server: ``python tests/bench/bench_operator.py [start|react]`` prints a table.

start: 5 000 nodes, 10 000 tasks and 10 000 foreign pods are there; how long from the start of the process to its
first reservation, how much memory, how long its event loop was blocked.

react: 1 000 nodes that are full, and 5 000 tasks; how long from the release of an entry to the next bind on its node,
and from a hold in the ledger to the first eviction request.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gputask.local.api import Reply
from gputask.local.cluster import LocalCluster
from gputask.local.requests import Request
from support.controller import on_device, task, variant
from support.operator import gpu_node

Object = dict[str, Any]
PROGRAM = Path(__file__).with_name("watched.py")


class Clock:
    """Notes when which write comes to the server: seconds on this process's clock."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}
        self.binds: list[tuple[float, str]] = []
        self.evictions: list[float] = []
        self.holds: list[float] = []
        self.releases: dict[str, list[float]] = {}
        self.delays: list[float] = []
        self._entries: dict[str, set[str]] = {}
        self._held: set[str] = set()

    async def __call__(self, request: Request, answer: Callable[[], Reply]) -> Reply | None:
        now = time.perf_counter()
        if request.method == "PUT" and "/gpunodes/" in request.path:
            self._ledger(json.loads(request.body), now)
        elif request.path.endswith("/binding"):
            self.first.setdefault("bind", now)
            node = json.loads(request.body)["target"]["name"]
            if waiting := self.releases.get(node):
                self.delays.append(now - waiting.pop(0))
        elif request.path.endswith("/eviction"):
            self.evictions.append(now)
        return answer()

    def _ledger(self, gpunode: Object, now: float) -> None:
        name, status = gpunode["metadata"]["name"], gpunode.get("status") or {}
        before, after = self._entries.get(name, set()), set(status.get("reservations") or {})
        self._entries[name] = after
        if after - before:
            self.first.setdefault("reserve", now)
        self.releases.setdefault(name, []).extend(now for _ in before - after)
        for uid in set(status.get("holds") or {}) - self._held:
            self._held.add(uid)
            self.holds.append(now)


@asynccontextmanager
async def operator(cluster: LocalCluster, report: Path) -> AsyncIterator[float]:
    """When the process was started."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = cluster.write_kubeconfig(Path(folder) / "kubeconfig")
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), str(kubeconfig), str(report))
        try:
            yield began
        finally:
            process.terminate()
            await process.wait()


def read(report: Path) -> Object:
    found: Object = json.loads(report.read_text())
    return found


def foreign(i: int, nodes: int) -> Object:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
    spec = {"nodeName": f"n{i % nodes:05d}", "containers": [container]}
    meta = {"name": f"f{i:05d}", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def idle(node: Object) -> Object:
    """A node without a simulated kubelet that is Ready all the same."""
    node["metadata"]["annotations"]["sim.gputask.dev/node"] = "false"
    node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return node


async def start(nodes: int, tasks: int, pods: int) -> None:
    clock, report = Clock(), Path(tempfile.mktemp())
    async with LocalCluster(fault=clock) as cluster:
        for i in range(nodes):
            cards = {f"c{i}": {"gpuMemoryMB": 24000}} if i % 4 == 0 else None
            cluster.create(idle(gpu_node(f"n{i:05d}", cards=cards, cpu=8)))
            if i % 100 == 0:
                await asyncio.sleep(0)
        for i in range(pods):
            cluster.create(foreign(i, nodes))
            if i % 100 == 0:
                await asyncio.sleep(0)
        for i in range(tasks):
            wants = [on_device(gpuMemoryMB=8000 + 1000 * (i % 8)), variant("cpu", cpu=1 + i % 8)]
            cluster.create(task(f"t{i:05d}", priority=i % 4, variants=wants))
            if i % 100 == 0:
                await asyncio.sleep(0)
        async with operator(cluster, report) as began:
            while "reserve" not in clock.first and time.perf_counter() - began < 120:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            reserved = clock.first.get("reserve", float("nan")) - began
            await asyncio.sleep(10)
    found = read(report)
    print(f"start: {nodes} nodes, {tasks} tasks, {pods} foreign pods")
    print(f"  first reservation after {reserved:.2f} s; {found['mib']:.0f} MiB at most")
    print("  longest blocks of the loop: " + ", ".join(f"{b:.3f} s at {at:.1f} s" for b, at in found["blocks"]))


async def react(nodes: int, tasks: int) -> None:
    clock, report = Clock(), Path(tempfile.mktemp())
    async with LocalCluster(fault=clock, speed=1) as cluster:
        for i in range(nodes):
            cluster.create(gpu_node(f"n{i:05d}", cpu=8))
            if i % 100 == 0:
                await asyncio.sleep(0)
        for i in range(tasks):
            runs = str(60 + (i * 7919) % 240)
            cluster.create(task(f"t{i:05d}", priority=i % 4, variants=[variant(cpu=2 + i % 3)], sim={"runs": runs}))
            if i % 100 == 0:
                await asyncio.sleep(0)
        async with operator(cluster, report):
            await asyncio.sleep(75)
            for i in range(20):
                cluster.create(task(f"high{i}", priority=100, variants=[variant(cpu=8)], sim={"runs": "60"}))
                await asyncio.sleep(0.5)
            await asyncio.sleep(15)
    found = read(report)
    delays = sorted(clock.delays)
    evicting = sorted(
        evicted - max(h for h in clock.holds if h <= evicted) for evicted in clock.evictions if clock.holds
    )
    print(f"react: {nodes} nodes, {tasks} tasks")
    print(f"  release to next bind on the node: {_quantiles(delays)} ({len(delays)} binds)")
    print(f"  hold in the ledger to eviction request: {_quantiles(evicting)} ({len(evicting)} evictions)")
    print(
        f"  {found['mib']:.0f} MiB; longest blocks: "
        + ", ".join(f"{b:.3f} s at {at:.1f} s" for b, at in found["blocks"])
    )


def _quantiles(values: list[float]) -> str:
    if not values:
        return "none"
    at = [values[min(len(values) - 1, int(len(values) * q))] for q in (0.5, 0.99)]
    return f"p50 {at[0] * 1000:.0f} ms, p99 {at[1] * 1000:.0f} ms"


if __name__ == "__main__":
    asked = sys.argv[1:] or ["start", "react"]
    if "start" in asked:
        asyncio.run(start(5000, 10_000, 10_000))
    if "react" in asked:
        asyncio.run(react(1000, 5000))
