"""Leases on a running operator: held, renewed, given back, expired, quarantined; over restarts and kills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gputask.controller.leases import POLL_SECONDS
from gputask.kube.resources import GPUTASKS
from support.afterwards import all_is_well
from support.controller import FakeClock, on_device, task
from support.local import eventually
from support.operator import Object, World, gpu_node, operated


def card(mem: int = 8000, name: str = "n1") -> Object:
    return gpu_node(name, cards={"a": {"gpuMemoryMB": mem}})


def lease(name: str = "l", *, ttl: int = 300, mem: int = 8000, **spec: Any) -> Object:
    return task(name, lease={"ttlSeconds": ttl}, variants=[on_device(gpuMemoryMB=mem)], **spec)


def asks(name: str, priority: int = 0, mem: int = 8000, **more: Any) -> Object:
    return task(name, priority=priority, variants=[on_device(gpuMemoryMB=mem)], **more)


async def renew(world: World, name: str, when: str) -> None:
    """The holder writes another renewTime, and the operator has seen it."""
    written = await world.patch(GPUTASKS, name, {"spec": {"lease": {"renewTime": when}}})

    async def seen() -> bool:
        return bool((await world.status(name)).get("observedGeneration") == written["metadata"]["generation"])

    await eventually(seen)


async def some_looks() -> None:
    """Long enough for every deadline that is over to be noticed."""
    await asyncio.sleep(POLL_SECONDS * 3)


async def expired(world: World, name: str = "l") -> Object:
    status = await world.reaches(name, "Failed")
    assert (await world.condition(name, "Finished"))["reason"] == "LeaseExpired"
    return status


@asynccontextmanager
async def by_hand(*nodes: Object) -> AsyncIterator[tuple[World, FakeClock]]:
    """An operator whose leases know only the time that the test tells."""
    async with operated(*nodes, speed=20) as world:
        world.engine.lease_terms.clock = clock = FakeClock()
        yield world, clock


async def test_a_lease_is_held_without_a_pod_and_says_where_and_what() -> None:
    async with operated(card(), speed=20) as world:
        await world.apply(lease(mem=5000))
        status = await world.reaches("l", "Bound")
        reservation = status["reservation"]
        assert (reservation["node"], reservation["variant"], reservation["devices"]) == ("n1", "gpu", ["a"])
        assert (await world.condition("l", "Bound"))["reason"] == "Leased"
        assert await world.condition("l", "Ready") == {}
        entry = (await world.ledger("n1"))["l"]
        assert (entry["state"], entry["pod"]) == ("Bound", "")
        assert "pods" not in entry["amounts"]
        await world.apply(asks("t", mem=4000))
        await world.says("t", "Reserved", "False")
        await world.apply(asks("u", mem=3000))
        await world.reaches("u", "Running")
        await all_is_well(world)


async def test_v28_held_at_299_expired_at_301_and_a_renewal_at_305_is_refused() -> None:
    async with by_hand(card()) as (world, clock):
        await world.apply(lease(ttl=300))
        await world.reaches("l", "Bound")
        await world.apply(asks("next"))
        clock.advance(299)
        await some_looks()
        assert (await world.status("l"))["phase"] == "Bound"
        clock.advance(2)
        status = await expired(world)
        told = (await world.condition("l", "Finished"))["message"]
        assert "not renewed for 300 s" in told
        assert "quarantined until the GpuTask is deleted" in told
        assert status["reservation"]["state"] == "Quarantined"
        assert (await world.ledger("n1"))["l"]["state"] == "Quarantined"
        clock.advance(4)
        await world.patch(GPUTASKS, "l", {"spec": {"lease": {"renewTime": "2026-01-01T00:05:05Z"}}})
        refused = await world.says("l", "Renewed", "False")
        assert refused["reason"] == "LeaseExpired"
        assert (await world.status("l"))["phase"] == "Failed"
        assert set(await world.ledger("n1")) == {"l"}, "the room stays taken"
        await all_is_well(world)
        await world.delete(GPUTASKS, "l")
        await world.reaches("next", "Running")
        await all_is_well(world)


async def test_v28_one_missed_renewal_at_a_cadence_of_100_s_changes_nothing() -> None:
    async with by_hand(card()) as (world, clock):
        await world.apply(lease(ttl=300))
        await world.reaches("l", "Bound")
        for second in (100, 300, 400):  # the one at 200 is missed
            clock.seconds = 1_000 + second
            await renew(world, "l", f"2026-01-01T00:0{second // 60}:{second % 60:02}Z")
        clock.seconds = 1_000 + 699
        await some_looks()
        assert (await world.status("l"))["phase"] == "Bound"
        clock.seconds = 1_000 + 701
        await expired(world)


async def test_a_lease_that_nobody_renews_expires_by_the_real_clock() -> None:
    async with operated(card(), speed=20) as world:
        await world.apply(lease(ttl=1))
        await expired(world)
        await all_is_well(world)
