"""Events are aggregated, bounded, and never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from gputask.controller.events import BURST, REFILL_SECONDS, Events
from gputask.kube.client import Client
from gputask.kube.resources import EVENTS
from gputask.kube.writes import Writes
from gputask.local.cluster import LocalCluster
from support.controller import FakeClock, task
from support.local import eventually

NOW = "2026-01-01T00:00:00Z"


@asynccontextmanager
async def cluster_with_events(clock: FakeClock) -> AsyncIterator[tuple[Events, Client]]:
    async with LocalCluster(crds=[]) as cluster, Client(cluster.connection) as client:
        events = Events(Writes(client), clock=clock, timestamp=lambda: NOW)
        running = asyncio.create_task(events.run())
        yield events, client
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def stored(client: Client) -> list[dict[str, Any]]:
    return (await client.list(EVENTS, "default")).items


async def test_equal_events_become_one_with_a_count() -> None:
    async with cluster_with_events(FakeClock()) as (events, client):
        for _ in range(30):
            events.emit(task("a", uid="u1"), "Bound", "to n1")

        async def counted() -> bool:
            return [event["count"] for event in await stored(client)] == [30]

        await eventually(counted)
        (event,) = await stored(client)
        assert (event["reason"], event["message"], event["type"]) == ("Bound", "to n1", "Normal")
        assert event["involvedObject"]["uid"] == "u1"


async def test_an_object_gets_a_burst_and_then_one_a_minute() -> None:
    clock = FakeClock()
    async with cluster_with_events(clock) as (events, client):
        for number in range(BURST + 20):
            events.emit(task("a", uid="u1"), "Short", f"free {number}")
        events.emit(task("b", uid="u2"), "Short", "another object has a bucket of its own")

        async def written(count: int) -> bool:
            return len(await stored(client)) == count

        await eventually(lambda: written(BURST + 1))
        clock.advance(REFILL_SECONDS)
        events.emit(task("a", uid="u1"), "Short", "free again")
        events.emit(task("a", uid="u1"), "Short", "too much again")
        await eventually(lambda: written(BURST + 2))


async def test_an_event_whose_object_was_removed_by_the_server_is_made_anew() -> None:
    async with cluster_with_events(FakeClock()) as (events, client):
        events.emit(task("a", uid="u1"), "Bound", "to n1")

        async def one() -> list[dict[str, Any]]:
            return await stored(client)

        (event,) = await eventually(one)
        await client.delete(EVENTS, event["metadata"]["name"], "default")
        events.emit(task("a", uid="u1"), "Bound", "to n1")
        (again,) = await eventually(one)
        assert again["metadata"]["name"] != event["metadata"]["name"]
        assert again["count"] == 2
