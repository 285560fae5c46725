"""Cases of the field about watches that end: what happened meanwhile is seen, and nobody is asked without pause."""

from __future__ import annotations

import asyncio

import pytest

from gputask.kube.client import Client
from gputask.kube.resources import GPUTASKS, PODS
from gputask.local.api import Reply
from gputask.local.cluster import LocalCluster
from gputask.local.requests import Request
from support.afterwards import all_is_well
from support.controller import task
from support.faults import Answer, Effect, Faults, Matches, error_event, refuse, until, watches
from support.local import eventually
from support.operator import World, gpu_node, operated_by

WATCHED = (GPUTASKS.path(), PODS.path())
"""What Kopf watches, and what an informer does."""

ENDS: dict[str, Effect] = {
    "410 as event": error_event(410, "Expired"),
    "410 as status": refuse(410, "Expired"),
    "500 as event": error_event(500, "InternalError"),
    "500 as status": refuse(500, "InternalError"),
    "404 as status": refuse(404, "NotFound"),  # as while a CRD is replaced
}


def watch_of(path: str) -> Matches:
    return lambda request: request.path == path and watches(request)


def asked(seen: list[Request], path: str) -> int:
    """Lists and watches of all that there is at a path."""
    return len([request for request in seen if (request.method, request.path) == ("GET", path)])


async def attempt(world: World, name: str) -> int:
    return int(((await world.status(name)).get("reservation") or {}).get("attempt") or 0)


@pytest.mark.parametrize("end", ENDS)
async def test_b99_410_or_worse_on_resuming_a_watch_loses_nothing_and_does_not_spin(end: str) -> None:
    async with LocalCluster(nodes=[gpu_node()], history=True, speed=100) as local, Client(local.connection) as client:
        faults, cut, changed = Faults(local), asyncio.Event(), asyncio.Event()

        async def once_all_has_changed(request: Request, answer: Answer) -> Reply | None:
            await changed.wait()
            return await ENDS[end](request, answer)

        streams = [faults.on(watch_of(path), until(cut)) for path in WATCHED]
        async with operated_by(local, client) as world:
            await world.apply(task("old", grace=0), task("deleted", grace=0))
            pod = (await world.reaches("old", "Running"))["reservation"]["pod"]
            await world.reaches("deleted", "Running")
            for rule in streams:
                rule.stop()
            resumed = [faults.on(watch_of(path), once_all_has_changed, times=1) for path in WATCHED]
            cut.set()
            await eventually(lambda: all(rule.met for rule in resumed))
            # No watch tells of any of this.
            await world.apply(*(task(name) for name in ("a", "b", "c")))
            await world.delete(PODS, pod)
            await world.delete(GPUTASKS, "deleted")
            before = len(faults.seen)
            changed.set()
            for name in ("a", "b", "c"):
                await world.reaches(name, "Running")

            async def all_is_seen() -> bool:
                gone = not any(t["metadata"]["name"] == "deleted" for t in world.engine.store.tasks.values())
                return gone and await attempt(world, "old") == 2

            await eventually(all_is_seen)
            await world.ledger_is("n1", ("old", "a", "b", "c"))
            await asyncio.sleep(1)  # of the ten seconds: who spins asks a hundred times in one
            for path in WATCHED:
                assert asked(faults.seen[before:], path) <= 5
            # Kopf says of each 500 that it tries again.
            world.errors.logged[:] = [line for line in world.errors.logged if "will retry" not in line]
            await all_is_well(world)


@pytest.mark.parametrize("end", ["410 as event", "410 as status", "404 as status"])
async def test_b99_a_server_that_ends_every_watch_at_once_is_asked_ever_more_rarely(end: str) -> None:
    async with LocalCluster(nodes=[gpu_node()], history=True) as local, Client(local.connection) as client:
        faults, cut = Faults(local), asyncio.Event()
        streams = [faults.on(watch_of(path), until(cut)) for path in WATCHED]
        async with operated_by(local, client) as world:
            for rule in streams:
                rule.stop()
            sick = [faults.on(watch_of(path), ENDS[end]) for path in WATCHED]
            before = len(faults.seen)
            cut.set()
            await asyncio.sleep(3)  # pauses of 0.2, 0.4, 0.8, 1.6 seconds: four or five lists, as many watches
            for path in WATCHED:
                assert asked(faults.seen[before:], path) <= 12
            assert all(rule.met for rule in sick)
            faults.clear()
            await world.apply(task("t"))
            await world.reaches("t", "Running")
            await all_is_well(world)
