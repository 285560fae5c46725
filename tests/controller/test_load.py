"""Work follows changes, not the number of tasks that wait."""

from __future__ import annotations

import asyncio
from collections import Counter

from gputask.kube.resources import GPUTASKS
from support.controller import on_device, task
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


async def _quiet(world: World) -> None:
    async def nothing_is_written() -> bool:
        before = len(world.cluster.store.history)
        await asyncio.sleep(QUIET_SECONDS)
        return len(world.cluster.store.history) == before

    await eventually(nothing_is_written)
