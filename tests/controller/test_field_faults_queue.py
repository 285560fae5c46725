"""Cases of the field about who waits, how long, and who is looked at when room becomes free; numbers as published."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from contextlib import suppress

import aiohttp
import pytest

from gputask.controller import backoff, loop
from gputask.kube.client import Client
from gputask.kube.errors import NotFound
from gputask.kube.resources import GPUNODES, GPUTASKS, NODES, PODS
from gputask.local.cluster import LocalCluster
from support.afterwards import all_is_well
from support.controller import on_device, task, variant
from support.faults import Faults, after, binds
from support.local import eventually
from support.operator import Object, World, gpu_node, operated, operated_by

DEVICE = {"a": {"gpuMemoryMB": 8000}}
WHOLE = [on_device(gpuMemoryMB=8000)]

# --- B25 ------------------------------------------------------------------------------------------------


async def test_b25_who_has_waited_for_ten_minutes_starts_as_soon_as_there_is_room() -> None:
    # Ten minutes of the nodes' time are three seconds.
    async with operated(gpu_node(cards=DEVICE), speed=200) as world:
        await world.apply(task("a", variants=WHOLE, sim={"runs": "600"}))
        await world.reaches("a", "Running")
        await world.apply(task("b", variants=WHOLE))
        await world.waits_for("b", "gpuMemoryMB")
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


# --- B86 ------------------------------------------------------------------------------------------------

SPEED = 5.0
"""Model seconds in one of ours: slow enough that what the operator itself needs is little of a runtime."""


async def test_b86_who_wants_all_of_a_card_does_not_starve_under_a_stream_of_small_ones() -> None:
    card = {"0": {"gpuMemoryMB": 8000, "gpuSlot": "[a,b,c,d]"}}
    async with operated(gpu_node(cards=card), speed=SPEED) as world:
        small = [f"s{number:02}" for number in range(20)]
        watch = asyncio.create_task(watched(world, "x", {"x", *small}))
        # One every 2 s from -10 s on. Ten minutes of it would only repeat what the first 40 s show.
        began = time.monotonic()
        for number, name in enumerate(small):
            await asyncio.sleep(began + number * 2 / SPEED - time.monotonic())
            if number == 5:
                await world.apply(task("x", variants=[on_device(gpuMemoryMB=8000)], sim={"runs": "10"}))
            await world.apply(task(name, variants=[on_device(gpuMemoryMB=2000, gpuSlot=1)], sim={"runs": "10"}))
        held, starts = await watch
        rank = {name: (m["creationTimestamp"], m["uid"]) for name in starts if (m := await metadata(world, name))}
        # Creation times are whole seconds: some that came with x may rank before it, and start in their turn.
        before = [name for name in small if rank[name] < rank["x"]]
        assert starts["x"] <= max(held, *(starts[name] for name in before)) + 15 / SPEED
        assert [name for name in small if starts[name] < starts["x"] and name not in before] == []
        assert len(before) < 15, "the small ones go on afterwards"
        await all_is_well(world)


async def metadata(world: World, name: str) -> Object:
    found: Object = (await world.get(GPUTASKS, name))["metadata"]
    return found


async def watched(world: World, holder: str, names: set[str]) -> tuple[float, dict[str, float]]:
    """When the hold of ``holder`` began, and when each of them started, until all have succeeded; by our clock."""
    held, starts = 0.0, dict[str, float]()

    async def through() -> bool:
        nonlocal held
        now, phases = time.monotonic(), await world.phases()
        for name in started(phases) - starts.keys():
            starts[name] = now
        if not held and (await holds(world, holder)):
            held = now
        return {name for name, phase in phases.items() if phase == "Succeeded"} == names

    await eventually(through, seconds=60)
    return held, starts


def started(phases: dict[str, str]) -> set[str]:
    return {name for name, phase in phases.items() if phase in ("Bound", "Running", "Succeeded")}


async def holds(world: World, name: str) -> bool:
    try:
        return (await world.condition(name, "Reserved")).get("reason") == "Holding"
    except NotFound:
        return False


# --- B114 -----------------------------------------------------------------------------------------------


async def test_b114_of_fifty_at_once_all_that_live_run_and_the_killed_ones_leave_no_mark() -> None:
    shares = ",".join(f"s{number}" for number in range(50))
    node = gpu_node(cards={"0": {"gpuSlot": f"[{shares}]", "gpuMemoryMB": 50000}}, cpu=64)
    async with operated(node, speed=100) as world:
        before = (await world.get(NODES, "n1"))["metadata"]
        gate = asyncio.Event()
        rule = Faults(world.cluster).on(binds, after(gate), times=2)
        names = [f"t{number:02}" for number in range(50)]
        began = time.monotonic()
        await world.apply(*(task(name, variants=[on_device(gpuSlot=1, gpuMemoryMB=1000)], grace=0) for name in names))
        await eventually(lambda: len(rule.met) == 2)
        killed = {await task_of(world, request.path.split("/")[-2]) for request in rule.met}
        await world.delete(GPUTASKS, *killed)
        gate.set()
        alive = set(names) - killed
        assert len(alive) == 48

        async def all_run() -> bool:
            return await world.in_phase("Running") == alive

        await eventually(all_run, seconds=30)
        assert time.monotonic() - began <= 30
        entries = await world.ledger_is("n1", alive)
        assert sum(int(entry["amounts"]["gpuMemoryMB/0"]) for entry in entries.values()) == 48 * 1000
        assert len({label for entry in entries.values() for label in entry["labels"]["gpuSlot/0"]}) == 48
        await all_is_well(world)
        after_it = (await world.get(NODES, "n1"))["metadata"]
        for kind in ("annotations", "labels", "finalizers"):
            assert after_it.get(kind) == before.get(kind)
        assert not (await world.get(GPUNODES, "n1"))["metadata"].get("annotations")


async def task_of(world: World, pod: str) -> str:
    return str((await world.get(PODS, pod))["metadata"]["labels"]["gputask.dev/task"])


# --- B06 ------------------------------------------------------------------------------------------------


def unlike_nodes(chance: random.Random) -> list[Object]:
    """20 nodes, none like another."""
    found = []
    for number in range(20):
        cards = {
            f"{number}-{card}": {"gpuSlot": chance.randint(1, 4), "gpuMemoryMB": chance.randrange(8000, 48000, 500)}
            for card in range(chance.randint(0, 8))
        }
        pools = {f"pool{kind}": chance.randint(1, 64) for kind in chance.sample(range(12), 4)}
        cpu = 16 + 4 * number
        found.append(gpu_node(f"n{number:02}", cards=cards, pools=pools, cpu=cpu, memory=f"{cpu * 4}Gi"))
    return found


def unlike_tasks(chance: random.Random) -> list[Object]:
    """300 tasks, each with a shape of its own and 1 to 4 variants, the last of them for any node."""
    found = []
    for number in range(300):
        variants = []
        count = chance.randint(1, 4)
        for position in range(count):
            # The memory makes each shape unlike all others.
            asks: Object = {"cpu": chance.randint(1, 4), "memory": f"{256 + number * 4 + position}Mi"}
            part = None
            if position < count - 1:
                asks[f"pool{chance.randrange(12)}"] = chance.randint(1, 4)
                memory = chance.randrange(500, 12000)
                part = {"count": chance.randint(1, 2), "resources": {"gpuSlot": 1, "gpuMemoryMB": memory}}
            variants.append(variant(f"v{position}", devices=part, **asks))
        found.append(task(f"t{number:03}", variants=variants))
    return found


@pytest.mark.parametrize("limit", [loop.PASS_SECONDS, 0.02], ids=["5 s", "cut again and again"])
async def test_b06_three_hundred_unlike_shapes_are_placed_in_passes_of_bounded_time(
    limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "PASS_SECONDS", limit)
    chance = random.Random(6)
    port = free_port()
    async with (
        LocalCluster(nodes=unlike_nodes(chance), history=True) as local,
        Client(local.connection) as client,
        operated_by(local, client, port=port) as world,
    ):
        answers = asyncio.create_task(health_answers(port))
        await world.apply(*unlike_tasks(chance))

        async def all_run() -> bool:
            return len(await world.in_phase("Running")) == 300

        await eventually(all_run, seconds=60)
        answers.cancel()
        assert max(await answers) < 1.0
        registry = world.engine.metrics.registry
        passes = registry.get_sample_value("gputask_pass_seconds_count")
        assert registry.get_sample_value("gputask_pass_seconds_bucket", {"le": "5.0"}) == passes
        await all_is_well(world)


async def health_answers(port: int) -> list[float]:
    """How long /healthz took each time, asked until cancelled."""
    took: list[float] = []
    async with aiohttp.ClientSession() as session:
        with suppress(asyncio.CancelledError):
            while True:
                asked = time.monotonic()
                async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                    assert answer.status == 200
                took.append(time.monotonic() - asked)
                await asyncio.sleep(0.05)
    return took


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
