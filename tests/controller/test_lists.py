"""Kopf's lists, which are read page by page: whole, or begun again."""

from __future__ import annotations

import asyncio

import pytest

from gputask.kube.client import Client
from gputask.kube.together import for_each
from gputask.local.cluster import LocalCluster
from support.afterwards import all_is_well
from support.controller import task
from support.faults import Faults, refuse
from support.operator import gpu_node, operated_by


async def test_lists_of_many_pages_are_taken_in_whole_also_if_a_rest_of_one_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("controller.handlers", "controller.lists", "kube.client"):
        monkeypatch.setattr(f"gputask.{module}.PAGE", 2)
    nodes = [gpu_node(f"n{i}") for i in range(5)]
    async with LocalCluster(nodes=nodes, history=True, speed=20) as local, Client(local.connection) as client:
        names = [f"t{i}" for i in range(5)]
        for name in names:
            local.create(task(name, variants=[{"name": "v", "resources": {"cpu": 64}}]))
        faults = Faults(local)
        rest = faults.on(
            lambda request: request.path.endswith("/gputasks") and "continue" in request.query,
            refuse(410, "Expired"),
            times=1,
        )
        async with operated_by(local, client) as world:
            for name in names:
                await world.reaches(name, "Running")
            assert rest.met
            # Kopf says that a list was refused, and that it tries again.
            world.errors.logged[:] = [line for line in world.errors.logged if "will retry" not in line]
            await all_is_well(world)


async def test_for_each_lets_others_run_and_ends_all_at_the_first_error() -> None:
    seen, stopped = list[int](), list[int]()

    async def handle(number: int) -> None:
        if number == 5:
            raise ValueError("five")
        seen.append(number)
        if number == 0:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(number)

    with pytest.raises(ValueError, match="five"):
        await for_each(range(100), handle, at_once=2)
    assert seen == [0, 1, 2, 3, 4]
    await asyncio.sleep(0)
    assert stopped == [0]
