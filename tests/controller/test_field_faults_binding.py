"""Cases of the field about writes whose answer is late, lost or refused; numbers as published, times in seconds."""

from __future__ import annotations

import asyncio
import time

import pytest

from gputask.controller import engine
from gputask.kube.client import Client
from gputask.kube.resources import GPUTASKS, NODES, PODS
from gputask.local.api import Reply
from gputask.local.cluster import LocalCluster
from gputask.local.requests import Request
from gputask.local.store import encode
from support.afterwards import all_is_well
from support.controller import on_device, task
from support.faults import (
    Answer,
    Effect,
    Faults,
    after,
    binds,
    carry_out,
    ledgers,
    lose_reply,
    lose_request,
    refuse,
    task_statuses,
)
from support.local import eventually
from support.operator import Object, World, gpu_node, operated, operated_by

DEVICE = {"a": {"gpuMemoryMB": 8000}}
WHOLE = [on_device(gpuMemoryMB=8000)]


async def pods_of(world: World, name: str) -> list[Object]:
    return (await world.client.list(PODS, "default", label_selector=f"gputask.dev/task={name}")).items


async def is_bound_once(world: World, name: str) -> None:
    """One attempt, one pod, one entry; and whatever went wrong on the way, nobody counts it."""
    status = await world.reaches(name, "Running")
    assert status["reservation"]["attempt"] == 1
    assert len(await pods_of(world, name)) == 1
    assert set(await world.ledger("n1")) == {name}
    assert not {"crashes", "evictions"} & status.keys()


@pytest.mark.parametrize("arrives", ["at once, and its answer late", "late"])
async def test_b24_a_reservation_whose_bind_is_on_its_way_does_not_expire(
    arrives: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "TICK_SECONDS", 0.05)
    gate = asyncio.Event()

    async def answered_late(_request: Request, answer: Answer) -> Reply:
        reply = answer()
        await gate.wait()
        return reply

    async with operated(gpu_node(cards=DEVICE)) as world:
        faults = Faults(world.cluster)
        rule = faults.on(binds, after(gate) if arrives == "late" else answered_late)
        await world.apply(task("a", variants=WHOLE, reservationTTLSeconds=1))
        await eventually(lambda: rule.met)
        expires = next(iter(world.engine.ledgers.known("n1").entries.values())).expires_at
        await eventually(lambda: time.time() > expires + 0.2)  # some ticks later
        await world.apply(task("b", variants=WHOLE))
        await world.says("b", "Reserved", "False")
        assert set(await world.ledger("n1")) == {"a"}
        gate.set()
        await is_bound_once(world, "a")
        assert len(rule.met) == 1
        assert await pods_of(world, "b") == []
        await all_is_well(world)


@pytest.mark.parametrize("lost", [lose_reply, lose_request])
async def test_b23_v32_a_bind_whose_answer_was_lost_is_one_bind_whether_it_took_effect_or_not(lost: Effect) -> None:
    async with operated(gpu_node(cards=DEVICE)) as world:
        rule = Faults(world.cluster).on(binds, lost, times=1)
        await world.apply(task("a", variants=WHOLE))
        await is_bound_once(world, "a")
        assert len(rule.met) == 1
        await all_is_well(world)


async def test_b23_a_second_bind_that_is_told_409_after_a_first_that_took_effect_is_success() -> None:
    async with operated(gpu_node(cards=DEVICE)) as world:

        async def repeated_by_a_proxy(_request: Request, answer: Answer) -> Reply:
            answer()
            return refused_409(answer())

        rule = Faults(world.cluster).on(binds, repeated_by_a_proxy)
        await world.apply(task("a", variants=WHOLE))
        await is_bound_once(world, "a")
        assert len(rule.met) == 1
        await all_is_well(world)


async def test_b23_a_pod_that_somebody_else_bound_to_n2_is_booked_there_and_dropped_here() -> None:
    nodes = [gpu_node("n1", cards=DEVICE), gpu_node("n2", cards=DEVICE)]
    async with (
        LocalCluster(nodes=nodes, history=True) as local,
        Client(local.connection) as client,
        operated_by(local, client) as world,
    ):

        async def somebody_is_faster(request: Request, answer: Answer) -> Reply:
            pod = request.path.split("/")[-2]
            body = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": "n2"}}
            assert local.api.handle(Request("POST", request.path, {}, encode(body))).status == 201
            return refused_409(answer())

        Faults(local).on(binds, somebody_is_faster, times=1)
        await world.apply(task("a", variants=WHOLE))
        await world.ledger_is("n2", ("a",))
        await world.ledger_is("n1", ())
        await world.reaches("a", "Running")
        # That it was bound without an entry is what the foreign binder did.
        await all_is_well(world, excused=["bound without entry"])


def refused_409(reply: Reply) -> Reply:
    assert reply.status == 409
    return reply


async def test_b106_after_409_500_and_a_kill_between_bind_and_status_the_task_is_known_from_its_pod() -> None:
    async with LocalCluster(nodes=[gpu_node(cards=DEVICE)], history=True) as local, Client(local.connection) as client:
        faults = Faults(local)
        bind = faults.on(binds, carry_out)
        async with operated_by(local, client) as world:
            conflict = faults.on(lambda r: bool(bind.met) and task_statuses(r), refuse(409, "Conflict"), times=1)
            error = faults.on(lambda r: bool(bind.met) and task_statuses(r), refuse(500, "InternalError"))
            await world.apply(task("a", variants=WHOLE))
            await eventually(lambda: conflict.met and error.met)
        assert (await world.status("a"))["phase"] not in ("Bound", "Running")
        error.stop()
        async with operated_by(local, client) as world:
            await is_bound_once(world, "a")
            await world.says("a", "Ready", "True")
            await all_is_well(world)
        assert len(bind.met) == 1


async def test_b102_writes_that_the_operator_sees_of_its_own_doing_start_nothing_twice() -> None:
    async with operated(gpu_node(cards=DEVICE)) as world:
        gate = asyncio.Event()
        rule = Faults(world.cluster).on(binds, after(gate))
        await world.apply(task("a", variants=WHOLE))
        await eventually(lambda: rule.met)
        for number in (1, 2):  # a mark in the metadata, and a change of the spec: two more events while it is at work
            await world.patch(GPUTASKS, "a", {"metadata": {"annotations": {"mark": str(number)}}})
            await world.patch(GPUTASKS, "a", {"spec": {"ttlSecondsAfterFinished": 1000 + number}})
        generation = (await world.get(GPUTASKS, "a"))["metadata"]["generation"]

        async def seen() -> bool:
            (known,) = world.engine.store.tasks.values()
            return bool(known["metadata"]["generation"] == generation)

        await eventually(seen)
        gate.set()
        await is_bound_once(world, "a")
        assert len(rule.met) == 1
        await all_is_well(world)


async def test_b101_a_deleted_task_frees_its_room_while_its_bind_is_still_being_retried() -> None:
    async with operated(gpu_node(cards=DEVICE)) as world:
        rule = Faults(world.cluster).on(binds, refuse(503, "ServiceUnavailable"))
        await world.apply(task("t", variants=WHOLE), task("next", variants=WHOLE, priority=-1))
        await eventually(lambda: len(rule.met) >= 3)
        assert set(await world.ledger("n1")) == {"t"}
        await gone_and_free_within_five_seconds(world, "t")


async def test_b101_a_deleted_task_does_not_wait_for_the_next_try_of_its_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputask.controller.workqueue.FIRST_PAUSE", 60.0)  # as after many failures
    monkeypatch.setattr("gputask.controller.workqueue.LONGEST_PAUSE", 60.0)
    async with LocalCluster(nodes=[gpu_node(cards=DEVICE)], history=True) as local, Client(local.connection) as client:
        faults = Faults(local)
        open_ended = asyncio.Event()
        async with operated_by(local, client) as world:
            held = faults.on(binds, after(open_ended))
            await world.apply(task("t", variants=WHOLE), task("next", variants=WHOLE, priority=-1))
            await eventually(lambda: held.met)
        faults.clear()
        sick = faults.on(lambda r: r.method == "GET" and "/pods/" in r.path, refuse(500, "InternalError"))
        async with operated_by(local, client) as world:
            await eventually(lambda: len(sick.met) >= 2)  # at the start, and by the sweep that pauses now
            faults.clear()
            await gone_and_free_within_five_seconds(world, "t")
            open_ended.set()


async def gone_and_free_within_five_seconds(world: World, name: str) -> None:
    uid = (await world.get(GPUTASKS, name))["metadata"]["uid"]
    deleted = time.monotonic()
    await world.delete(GPUTASKS, name)
    await eventually(lambda: not world.engine.ledgers.entries_of(uid), seconds=5)
    assert time.monotonic() - deleted < 5
    assert await pods_of(world, name) == []


@pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=pytest.mark.long)])
async def test_b115_two_equal_pods_never_swap_their_devices(rounds: int) -> None:
    cards = {"a": {"gpuSlot": 1}, "b": {"gpuSlot": 1}}
    others = {"c": {"gpuSlot": 1}, "d": {"gpuSlot": 1}}
    async with operated(gpu_node("n1", cards=cards), gpu_node("n2", cards=others), speed=1000) as world:
        faults = Faults(world.cluster)
        for turn in range(rounds):
            moves = turn == 1

            async def cordoned_meanwhile(request: Request, answer: Answer) -> Reply | None:
                await world.patch(NODES, "n1", {"spec": {"unschedulable": True}})
                return await refuse(403, "Forbidden")(request, answer)

            rule = faults.on(binds, cordoned_meanwhile, times=1 if moves else 0)
            names = [f"p{turn}", f"q{turn}"]
            await world.apply(*(task(name, variants=[on_device(gpuSlot=1)]) for name in names))
            devices = [await seen_device(world, name) for name in names]
            assert len(set(devices)) == 2
            if moves:
                assert rule.met
                assert "n2" in {(await world.status(name))["reservation"]["node"] for name in names}
                await world.patch(NODES, "n1", {"spec": {"unschedulable": None}})
            await world.delete(GPUTASKS, *names)
            for node in ("n1", "n2"):
                await world.ledger_is(node, ())
        await all_is_well(world)


async def seen_device(world: World, name: str) -> str:
    """What the container sees; it is what status and ledger say, on the node where the pod is."""
    claim = (await world.reaches(name, "Running"))["reservation"]
    (pod,) = await pods_of(world, name)
    assert (pod["metadata"]["uid"], pod["spec"]["nodeName"]) == (claim["podUID"], claim["node"])
    told = dict(line.split("=", 1) for line in (await world.log(claim["pod"])).splitlines() if "=" in line)
    assert [told["NVIDIA_VISIBLE_DEVICES"]] == claim["devices"]
    assert (await world.ledger(claim["node"]))[name]["devices"] == claim["devices"]
    (device,) = claim["devices"]
    return str(device)


async def test_v25_a_task_that_ends_while_it_is_evicted_and_deleted_gives_its_room_back_once() -> None:
    async with operated(gpu_node(cards={"a": {"gpuMemoryMB": 24576}}), speed=100) as world:
        await world.apply(task("a", variants=[on_device(gpuMemoryMB=16384)]))
        status = await world.reaches("a", "Running")
        pod = status["reservation"]["pod"]
        (entry,) = world.engine.ledgers.known("n1").entries.values()
        ended = {"status": {"phase": "Succeeded"}}
        await asyncio.gather(
            world.patch(PODS, pod, ended, subresource="status"),
            world.client.delete(PODS, pod, "default"),
            world.delete(GPUTASKS, "a"),
        )
        await world.ledger_is("n1", ())
        assert await world.engine.releaser.release(entry), "a second release finds it released"
        await all_is_well(world)
        assert changes_of_the_entry(world, status["reservation"]["podUID"]) == ["came", "went"]


async def test_v25_the_end_of_a_task_that_ends_while_it_is_evicted_is_counted_once() -> None:
    async with operated(gpu_node(cards={"a": {"gpuMemoryMB": 24576}}), speed=100) as world:
        await world.apply(task("a", variants=[on_device(gpuMemoryMB=16384)]))
        claim = (await world.reaches("a", "Running"))["reservation"]
        await asyncio.gather(
            world.patch(PODS, claim["pod"], {"status": {"phase": "Succeeded"}}, subresource="status"),
            world.client.delete(PODS, claim["pod"], "default"),
        )
        await world.ledger_is("n1", ())
        ended = await world.reaches("a", "Succeeded")
        assert not ended.get("evictions")
        assert ended["reservation"]["attempt"] == 1
        assert changes_of_the_entry(world, claim["podUID"]) == ["came", "went"]
        await all_is_well(world)


def changes_of_the_entry(world: World, pod_uid: str) -> list[str]:
    """Each time the ledger got or lost the entry of a pod, in order."""
    changes, there = [], False
    for _, _, kind, version in world.cluster.store.history or ():
        if kind == "GpuNode" and there != (pod_uid in (version.get("status", {}).get("reservations") or {})):
            there = not there
            changes.append("came" if there else "went")
    return changes


async def test_b20_ten_pods_outlive_their_reservations_time_while_the_operator_is_down() -> None:
    async with LocalCluster(nodes=[gpu_node()], history=True) as local, Client(local.connection) as client:
        faults = Faults(local)
        names = [f"t{number}" for number in range(10)]
        async with operated_by(local, client) as world:
            gate = asyncio.Event()
            held = faults.on(binds, after(gate))
            await world.apply(*(task(name, reservationTTLSeconds=1) for name in names))
            await eventually(lambda: len(held.met) == 10)
            faults.on(ledgers, refuse(503, "ServiceUnavailable"))  # so that none of them is confirmed
            gate.set()
            await eventually(lambda: all_are_bound(world))
            assert {entry["state"] for entry in (await world.ledger("n1")).values()} == {"InFlight"}
        faults.clear()
        expired = max(entry.expires_at or 0.0 for entry in world.engine.ledgers.known("n1").entries.values())
        before = {pod["metadata"]["uid"] for pod in (await client.list(PODS)).items}
        await eventually(lambda: time.time() > expired + 0.1)
        async with operated_by(local, client) as world:
            for name in names:
                await world.reaches(name, "Running")
            assert {entry["state"] for entry in (await world.ledger("n1")).values()} == {"Bound"}
            assert {pod["metadata"]["uid"] for pod in (await client.list(PODS)).items} == before
            stopped = [o for _, _, kind, o in local.store.history or () if "deletionTimestamp" in o["metadata"]]
            assert stopped == []
            await all_is_well(world)


async def all_are_bound(world: World) -> bool:
    return all(pod["spec"].get("nodeName") for pod in (await world.client.list(PODS)).items)
