"""Leases on a running operator: held, renewed, given back, expired, quarantined; over restarts and kills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from gputask.controller.leases import POLL_SECONDS
from gputask.kube.client import Client
from gputask.kube.resources import GPUNODES, GPUTASKS, NAMESPACES
from gputask.local.api import Reply
from gputask.local.cluster import LocalCluster
from gputask.local.requests import Request
from gputask.local.statuses import StatusError
from gputask.local.store import encode
from support.afterwards import all_is_well
from support.controller import FakeClock, on_device, task
from support.local import eventually
from support.operator import Object, World, gpu_node, operated, operated_by


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


async def test_a_renewal_that_no_watch_has_brought_yet_counts() -> None:
    armed, worlds = asyncio.Event(), list[World]()

    async def fault(request: Request, answer: Callable[[], Reply]) -> Reply | None:
        if armed.is_set() and request.method == "GET" and request.path.endswith("/gputasks/l"):
            armed.clear()  # the operator asks whether it may expire: the holder was quicker by a moment
            await worlds[0].patch(GPUTASKS, "l", {"spec": {"lease": {"renewTime": "2026-01-01T00:04:59Z"}}})
        return answer()

    async with operated(card(), speed=20, fault=fault) as world:
        worlds.append(world)
        world.engine.lease_terms.clock = clock = FakeClock()
        await world.apply(lease(ttl=300))
        await world.reaches("l", "Bound")
        armed.set()
        clock.advance(301)
        await some_looks()
        assert not armed.is_set()
        assert (await world.status("l"))["phase"] == "Bound"
        clock.advance(301)
        await expired(world)


async def test_b20_a_restart_gives_every_holder_a_whole_ttl() -> None:
    async with (
        LocalCluster(nodes=[card()], history=True, speed=20) as local,
        Client(local.connection) as client,
    ):
        async with operated_by(local, client) as world:
            world.engine.lease_terms.clock = clock = FakeClock()
            await world.apply(lease(ttl=300))
            await world.reaches("l", "Bound")
            clock.advance(299)
        async with operated_by(local, client) as world:
            # What the first one's clock said means nothing to this one, in whose eyes it was held for 0 s.
            world.engine.lease_terms.clock = clock = FakeClock(5_000_000.0)
            await renew(world, "l", "2026-01-01T00:00:00Z")  # far in the past: no clock is asked
            clock.advance(299)
            await some_looks()
            assert (await world.status("l"))["phase"] == "Bound"
            clock.advance(2)
            await expired(world)
            await all_is_well(world)


async def test_b20_a_new_leader_begins_anew_though_it_has_watched_all_along() -> None:
    async with by_hand(card()) as (world, clock):
        await world.apply(lease(ttl=300))
        await world.reaches("l", "Bound")
        clock.advance(299)
        terms = asyncio.create_task(world.engine.lease_terms.run())  # as when it begins to lead
        await some_looks()
        clock.advance(298)
        await some_looks()
        assert (await world.status("l"))["phase"] == "Bound"
        clock.advance(3)
        await expired(world)
        terms.cancel()


async def test_a_deadline_without_an_answer_of_the_api_begins_anew() -> None:
    refusing = asyncio.Event()

    async def fault(request: Request, answer: Callable[[], Reply]) -> Reply | None:
        if refusing.is_set() and request.method == "GET" and request.path.endswith("/gputasks/l"):
            return Reply(503, encode(StatusError(503, "ServiceUnavailable", "not now").body()))
        return answer()

    async with operated(card(), speed=20, fault=fault) as world:
        world.engine.lease_terms.clock = clock = FakeClock()
        await world.apply(lease(ttl=300))
        await world.reaches("l", "Bound")
        refusing.set()
        clock.advance(301)
        await asyncio.sleep(3)  # the client's own tries
        refusing.clear()
        await some_looks()
        assert (await world.status("l"))["phase"] == "Bound"
        clock.advance(301)
        await expired(world)


async def test_a_live_lease_is_given_back_by_its_deletion() -> None:
    async with operated(card(), speed=20) as world:
        await world.apply(lease(priority=1))
        await world.reaches("l", "Bound")
        await world.apply(asks("next"))
        await world.delete(GPUTASKS, "l")
        await world.reaches("next", "Running")
        await all_is_well(world)


async def test_a_lease_deleted_while_it_waits_leaves_nothing() -> None:
    async with operated(card(), speed=20) as world:
        await world.apply(asks("runs", 5))
        await world.reaches("runs", "Running")
        await world.apply(lease())
        await world.says("l", "Reserved", "False")
        await world.delete(GPUTASKS, "l")
        await all_is_well(world)


async def test_a_suspended_lease_is_given_back_and_waits_until_it_is_wanted_again() -> None:
    async with operated(card(), speed=20) as world:
        await world.apply(lease())
        await world.reaches("l", "Bound")
        await world.patch(GPUTASKS, "l", {"spec": {"suspend": True}})
        await world.reaches("l", "Pending")
        await world.ledger_is("n1", ())
        await world.apply(asks("t", sim={"runs": "10"}))
        await world.reaches("t", "Running")
        await all_is_well(world)
        await world.patch(GPUTASKS, "l", {"spec": {"suspend": False}})
        await world.reaches("t", "Succeeded")
        status = await world.reaches("l", "Bound")
        assert status["reservation"]["attempt"] == 2
        await all_is_well(world)


async def test_a_kill_between_the_two_writes_of_an_expiry_is_made_whole_by_the_next_operator() -> None:
    reached = asyncio.Event()

    async def fault(request: Request, answer: Callable[[], Reply]) -> Reply | None:
        if not reached.is_set() and request.method == "PATCH" and b'"Quarantined"' in request.body:
            reached.set()  # the ledger is written; the end of the claim never arrives
        return None if reached.is_set() and request.method != "GET" and dying else answer()

    dying = True
    async with (
        LocalCluster(nodes=[card()], history=True, speed=20, fault=fault) as local,
        Client(local.connection) as client,
    ):
        async with operated_by(local, client) as world:
            await world.apply(lease(ttl=1))
            await reached.wait()
        dying = False
        assert reached.is_set()
        async with operated_by(local, client) as world:
            await expired(world)
            assert (await world.ledger("n1"))["l"]["state"] == "Quarantined"
            await all_is_well(world)


async def test_the_time_to_live_of_a_finished_task_ends_no_quarantine() -> None:
    async with operated(card(), speed=20) as world:
        await world.apply(lease(ttl=1, ttlSecondsAfterFinished=0))
        await expired(world)
        await asyncio.sleep(0.5)  # nothing is to happen
        assert (await world.ledger("n1"))["l"]["state"] == "Quarantined"
        await world.delete(GPUTASKS, "l")
        await world.ledger_is("n1", ())


async def test_a_lease_preempts_and_is_itself_no_victim() -> None:
    async with operated(card(), speed=20) as world:
        await world.apply(asks("low", 0, grace=1))
        await world.reaches("low", "Running")
        await world.apply(lease(priority=5))
        await world.reaches("l", "Bound")
        assert set(await world.ledger("n1")) == {"l"}
        assert not (await world.get(GPUNODES, "n1"))["status"].get("holds")
        assert (await world.condition("low", "Evicted"))["reason"] == "Preempted"
        await world.apply(asks("high", 10))
        await world.says("high", "Reserved", "False")
        await asyncio.sleep(0.5)  # nothing is to happen
        assert (await world.status("l"))["phase"] == "Bound"
        await all_is_well(world)


async def test_a_paused_and_drained_namespace_leaves_leases_alone() -> None:
    async with operated(card(), speed=20) as world:
        await world.apply(lease(mem=4000))
        await world.reaches("l", "Bound")
        drained = {"metadata": {"annotations": {"gputask.dev/queue": "HoldAndDrain"}}}
        await world.patch(NAMESPACES, "default", drained)
        await world.apply(lease("late", mem=4000))
        await eventually(lambda: _waits_as_paused(world, "late"))
        assert (await world.status("l"))["phase"] == "Bound"
        assert set(await world.ledger("n1")) == {"l"}


async def _waits_as_paused(world: World, name: str) -> bool:
    return (await world.condition(name, "Reserved")).get("reason") == "Paused"


async def test_a_lost_gpunode_comes_back_with_its_leases_before_anything_is_admitted() -> None:
    async with operated(card(12_000), speed=20) as world:
        await world.apply(lease("held", mem=4000), lease("over", mem=4000, ttl=1))
        await world.reaches("held", "Bound")
        await expired(world, "over")
        await world.patch(GPUNODES, "n1", {"metadata": {"finalizers": None}})
        await world.delete(GPUNODES, "n1")
        found = await world.ledger_is("n1", ("held", "over"))
        assert {name: entry["state"] for name, entry in found.items()} == {"held": "Bound", "over": "Quarantined"}
        await world.apply(asks("big", mem=8000), asks("small", 1, mem=4000))
        await world.reaches("small", "Running")
        assert (await world.status("big"))["phase"] == "Pending"
        await all_is_well(world)
