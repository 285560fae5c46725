"""Work follows changes, not the number of tasks that wait."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from gputask.controller import loop
from gputask.kube.resources import GPUTASKS
from support.controller import on_device, task, variant
from support.local import eventually
from support.operator import World, gpu_node, operated

QUIET_SECONDS = 0.5
"""Ten times what a text waits for its turn."""


async def test_one_release_writes_the_status_of_those_it_concerns_and_not_of_all_that_wait() -> None:
    async with operated(gpu_node(cards={"card": {"gpuMemoryMB": 8000}}), speed=200) as world:
        wants = [on_device(gpuMemoryMB=8000)]
        await world.apply(*(task(f"t{number:03}", variants=wants) for number in range(200)))

        async def all_know_why_they_wait() -> bool:
            tasks = (await world.client.list(GPUTASKS, "default")).items
            told = [c["type"] for t in tasks for c in (t.get("status") or {}).get("conditions") or ()]
            return Counter(told)["Reserved"] == 200

        await eventually(all_know_why_they_wait)
        await _quiet(world)  # texts that changed while the tasks came in are written at a bounded rate
        before = len(world.cluster.store.history)
        (running,) = await eventually(lambda: world.in_phase("Running"))
        await world.delete(GPUTASKS, running)
        (following,) = await eventually(lambda: world.in_phase("Running"))
        assert following != running
        written = Counter(
            o["metadata"]["name"] for _, _, kind, o in world.cluster.store.history[before:] if kind == "GpuTask"
        )
        assert len(written) < 10, written


async def test_b06_passes_that_run_out_of_time_go_on_where_they_stopped_until_all_is_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "PASS_SECONDS", 0.0)  # one class a pass
    async with operated(gpu_node(cpu=64), speed=20) as world:
        blocked = [task(f"b{i}", priority=9, variants=[variant(cpu=65 + i)]) for i in range(20)]
        await world.apply(*blocked, *(task(f"t{i}", variants=[variant(cpu=f"{i + 1}00m")]) for i in range(20)))
        await eventually(lambda: _running(world, 20))
        (b0,) = await world.apply(task("first", priority=10, variants=[variant(cpu=1)]))
        await world.reaches(b0["metadata"]["name"], "Running")
        assert {(await world.condition(f"b{i}", "Feasible"))["status"] for i in range(20)} == {"False"}


async def _running(world: World, count: int) -> bool:
    return len(await world.in_phase("Running")) == count


async def _quiet(world: World) -> None:
    async def nothing_is_written() -> bool:
        before = len(world.cluster.store.history)
        await asyncio.sleep(QUIET_SECONDS)
        return len(world.cluster.store.history) == before

    await eventually(nothing_is_written)
