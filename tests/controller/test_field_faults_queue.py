"""Cases of the field about who waits, for how long, and who is looked at when something becomes free; numbers as published."""

from __future__ import annotations

import asyncio
import json
import random
import time

import aiohttp
import pytest

from gputask.api.times import epoch
from gputask.controller import backoff, loop
from gputask.kube.resources import GPUTASKS, NODES, PODS
from gputask.local.cluster import LocalCluster
from support.afterwards import all_is_well
from support.controller import on_device, task, variant
from support.faults import Answer, Faults, after, binds
from support.local import eventually
from support.operator import Object, World, gpu_node, operated

DEVICE = {"a": {"gpuMemoryMB": 8000}}
WHOLE = [on_device(gpuMemoryMB=8000)]

# --- B25 ------------------------------------------------------------------------------------------------


async def test_b25_who_has_waited_for_ten_minutes_starts_as_soon_as_there_is_room() -> None:
    # Ten minutes of the nodes' time are three seconds.
    async with operated(gpu_node(cards=DEVICE), speed=200) as world:
        await world.apply(task("a", variants=WHOLE, sim={"runs": "600"}))
        await world.reaches("a", "Running")
        await world.apply(task("b", variants=WHOLE))
        await world.says("b", "Reserved", "False")
        await world.reaches("a", "Succeeded")
        await bound_within_five_seconds(world, "b")
        await all_is_well(world)


async def bound_within_five_seconds(world: World, name: str) -> None:
    free = time.monotonic()
    await world.reaches(name, "Bound", "Running")
    assert time.monotonic() - free < 5


async def test_b25_room_that_the_ledger_refused_is_tried_again_as_soon_as_some_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backoff, "FIRST_SECONDS", 300.0)  # as after ten minutes of tries
    monkeypatch.setattr("gputask.ledger.entries.MOST_RESERVATIONS", 2)  # which only the ledger knows of
    async with operated(gpu_node(), speed=100) as world:
        await world.apply(task("a", grace=0), task("b"))
        await world.reaches("a", "Running")
        await world.reaches("b", "Running")
        await world.apply(task("c"))

        async def refused() -> bool:
            return "pauses" in (await world.condition("c", "Reserved")).get("message", "")

        await eventually(refused)
        await world.delete(GPUTASKS, "a")
        await world.ledger_is("n1", ("b", "c"))
        await bound_within_five_seconds(world, "c")
        await all_is_well(world)
