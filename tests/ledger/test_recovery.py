"""Kill anywhere, then a fresh operator: everything is freed or finished, and nothing ever ran twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from gputask.kube.errors import KubeError
from gputask.kube.resources import GPUTASKS, NODES, PODS
from gputask.ledger.changes import Reserve
from gputask.ledger.claims import claim_of, why_not_wanted
from gputask.ledger.outcome import Kind
from support.protocol import (
    NAMESPACE,
    Killer,
    Object,
    Operator,
    World,
    card_node,
    card_resources,
    first,
    lose_reply,
    on_card,
    pod_manifest,
    world,
)

pytestmark = pytest.mark.asyncio


@pytest.fixture
async def w() -> AsyncIterator[World]:
    async with world() as made:
        yield made


async def begin_and_kill(w: World, at: int, how: str, *, touches: int = 0) -> Killer | None:
    """An admission of task ``a`` for the whole card, killed at its ``at``-th request; None if it ended before."""
    task = await w.submit()
    doomed = await w.another()
    killer = Killer(doomed, at, how)

    async def touch() -> None:
        await w.touch((await w.pods())[0])

    doomed.network.on("POST", "/binding", first(touch), times=touches)
    running = doomed.begin(task, on_card(24_576))
    dead = asyncio.create_task(killer.dead.wait())
    await asyncio.wait({running, dead}, return_when=asyncio.FIRST_COMPLETED)
    ended = running.done()
    dead.cancel()
    await doomed.kill()
    return None if ended else killer


async def is_whole(w: World) -> None:
    """Task ``a`` either has one live bound pod with its entry, or no live claim, no pod and no entry."""
    claim = claim_of(await w.task())
    pods, entries = await w.pods(), await w.entries()
    if claim is not None and claim.live:
        assert [pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName")] == [claim.pod_uid]
        assert {uid: entry["state"] for uid, entry in entries.items()} == {claim.pod_uid: "Bound"}
    else:
        assert (pods, entries) == ([], {})


# --- kill -9 anywhere ---


@pytest.mark.parametrize("how", ["before", "after", "late"])
@pytest.mark.parametrize("touches", [0, 2])
async def test_after_a_kill_at_any_request_a_fresh_operator_makes_everything_whole(how: str, touches: int) -> None:
    for at in range(1, 40):
        async with world() as w:
            killer = await begin_and_kill(w, at, how, touches=touches)
            if killer is None:
                assert at > 5  # create, claim, reserve, bind, confirm at the least
                return
            fresh = await w.another()
            await fresh.settle()
            if killer.late is not None:
                await killer.late()
                await fresh.settle()
            await is_whole(w)
            # And the card is not lost: a task gets it, this one or the next.
            if not (await w.entries()):
                assert (await fresh.begin(await w.task(), on_card(24_576))).kind is Kind.BOUND
            await is_whole(w)
    raise AssertionError("the admission never came to its end")


@pytest.mark.parametrize("seed", range(30))
async def test_many_operators_kills_and_late_requests_never_double_book(seed: int) -> None:
    rng = random.Random(seed)
    async with world(nodes=2) as w:
        w.excused.add("ran again")  # what deletes a pod that has succeeded before anybody saw it is not ours to prevent
        for name in "ab":
            await w.submit(name)
        late: list[Callable[[], Any]] = []
        for _ in range(6):
            operator = await w.another()
            killer = Killer(operator, rng.randrange(2, 16), rng.choice(["before", "after", "late"]))
            await _work_until_dead(operator, killer, rng)
            if killer.late is not None:
                late.append(killer.late)
            if late and rng.random() < 0.5:
                await late.pop(rng.randrange(len(late)))()
            for pod in await w.pods():
                if rng.random() < 0.2:
                    await rng.choice([w.touch, w.delete_pod, w.finish])(pod)
        fresh = await w.another()
        await fresh.settle()
        for request in late:
            await request()
        await fresh.settle()
        await _nothing_is_left_half_done(w)


async def _work_until_dead(operator: Operator, killer: Killer, rng: random.Random) -> None:
    """Recovery and decisions of one operator, on any node, until its killer strikes."""

    async def work() -> None:
        with suppress(KubeError):
            await operator.observe()
            if rng.random() < 0.7:
                await operator.recovery.sweep_all()
        begun = [
            operator.begin(task, on_card(24_576, rng.choice(["n1", "n2"])))
            for task in operator.cache.tasks.values()
            if not operator.admission.busy(task["metadata"]["uid"]) and _waits(task)
        ]
        await asyncio.gather(*begun)

    working = asyncio.create_task(work())
    dead = asyncio.create_task(killer.dead.wait())
    await asyncio.wait({working, dead}, return_when=asyncio.FIRST_COMPLETED)
    for task in (working, dead):
        task.cancel()
    await asyncio.gather(working, dead, return_exceptions=True)
    await operator.kill()


def _waits(task: Object) -> bool:
    claim = claim_of(task)
    return (claim is None or not claim.live) and why_not_wanted(task) is None


async def _nothing_is_left_half_done(w: World) -> None:
    live = {p["metadata"]["uid"]: p for p in await w.pods() if (p.get("status") or {}).get("phase") == "Pending"}
    entries = {**await w.entries("n1"), **await w.entries("n2")}
    assert entries.keys() == live.keys()
    assert all(entry["state"] == "Bound" for entry in entries.values())
    assert all(pod["spec"].get("nodeName") for pod in live.values())
    for name in "ab":
        claim = claim_of(await w.task(name))
        if claim is not None:
            assert claim.live == (claim.pod_uid in live)


# --- single rows, end to end ---


async def test_b106_a_bind_whose_confirm_was_lost_is_recognised_from_its_pod(w: World) -> None:
    task = await w.submit()
    doomed = await w.another()
    doomed.network.on("PUT", "/gpunodes/", lambda _, send: send())  # the reserve
    doomed.network.on("POST", "/binding", lose_reply)
    killer = Killer(doomed, 6, "before")
    doomed.begin(task, on_card(1000))
    await killer.dead.wait()
    await doomed.kill()
    assert [e["state"] for e in (await w.entries()).values()] == ["InFlight"]
    fresh = await w.another()
    await fresh.settle()
    assert [e["state"] for e in (await w.entries()).values()] == ["Bound"]
    assert len(await w.pods()) == 1


async def test_b19_an_entry_whose_task_was_deleted_while_nobody_looked_is_swept_once(w: World) -> None:
    task = await w.submit()
    await w.operator.begin(task, on_card(4_000))
    await w.operator.client.delete(GPUTASKS, "a", NAMESPACE)
    for pod in await w.pods():
        await w.delete_pod(pod)
    fresh = await w.another()
    await fresh.settle()
    await fresh.settle()
    assert await w.entries() == {}


async def test_a_bound_pod_of_a_deleted_task_keeps_its_room_until_it_is_gone(w: World) -> None:
    task = await w.submit()
    await w.operator.begin(task, on_card(24_576))
    [pod] = await w.pods()
    await w.operator.client.patch(PODS, pod["metadata"]["name"], {"metadata": {"finalizers": ["x.dev/y"]}}, NAMESPACE)
    await w.operator.client.delete(GPUTASKS, "a", NAMESPACE)
    await w.operator.settle()
    assert set(await w.entries()) == {pod["metadata"]["uid"]}
    await w.operator.client.patch(PODS, pod["metadata"]["name"], {"metadata": {"finalizers": None}}, NAMESPACE)
    for left in await w.pods():
        await w.delete_pod(left)
    await w.operator.settle()
    assert await w.entries() == {}


async def test_a_suspended_task_gives_its_room_back_only_when_its_pod_is_gone(w: World) -> None:
    task = await w.submit()
    await w.operator.begin(task, on_card(24_576))
    [pod] = await w.pods()
    name = pod["metadata"]["name"]
    await w.operator.client.patch(PODS, name, {"metadata": {"finalizers": ["x.dev/y"]}}, NAMESPACE)
    await w.operator.client.patch(GPUTASKS, "a", {"spec": {"suspend": True}}, NAMESPACE)
    await w.operator.settle()
    assert (await w.pods())[0]["metadata"].get("deletionTimestamp")
    assert len(await w.entries()) == 1
    await w.operator.client.patch(PODS, name, {"metadata": {"finalizers": None}}, NAMESPACE)
    for left in await w.pods():
        await w.delete_pod(left)
    await w.operator.settle()
    stored = await w.task()
    assert (await w.entries(), stored["status"]["phase"], stored["status"]["reservation"]["state"]) == (
        {},
        "Pending",
        "Ended",
    )


async def test_v25_an_end_is_recorded_once_and_is_final(w: World) -> None:
    task = await w.submit()
    await w.operator.begin(task, on_card(16_384))
    [pod] = await w.pods()
    await w.finish(pod)
    others = [await w.another() for _ in range(3)]
    await asyncio.gather(*(other.recovery.sweep(task["metadata"]["uid"]) for other in others))
    await w.finish(pod, "Failed")
    await w.operator.settle()
    assert (await w.task())["status"]["phase"] == "Succeeded"
    assert await w.entries() == {}


async def test_nothing_is_proven_by_absence_from_a_cache(w: World) -> None:
    task = await w.submit()
    await w.operator.begin(task, on_card(16_384))
    await w.operator.observe()
    w.operator.cache.pods.clear()  # the informer has not seen it yet
    await w.operator.recovery.sweep(task["metadata"]["uid"])
    assert len(await w.entries()) == 1
    claim = claim_of(await w.task())
    assert claim is not None
    assert claim.live


async def test_a_claimed_pod_that_only_the_cache_lacks_goes_on_and_is_not_ended(w: World) -> None:
    await begin_and_kill(w, 3, "before")  # claimed, not reserved
    fresh = await w.another()
    fresh.cache.pods.clear()
    await fresh.recovery.sweep((await w.task())["metadata"]["uid"])
    claim = claim_of(await w.task())
    assert claim is not None
    assert (claim.attempt, claim.live) == (1, True)
    assert set(await w.entries()) == {claim.pod_uid}


async def test_a_task_that_only_the_cache_lacks_keeps_its_pod(w: World) -> None:
    await begin_and_kill(w, 3, "before")
    fresh = await w.another()
    uid = (await w.task())["metadata"]["uid"]
    fresh.cache.tasks.clear()
    await fresh.recovery.sweep(uid)
    assert len(await w.pods()) == 1


async def test_a_sweep_never_touches_what_an_admission_is_at_work_on(w: World) -> None:
    task = await w.submit()
    gate = asyncio.Event()
    w.operator.network.on("PATCH", "/gputasks/", first(gate.wait))
    running = w.operator.begin(task, on_card(1000))
    while w.operator.network.count("PATCH", "/gputasks/") == 0:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await w.operator.cache.refresh()
    await w.operator.recovery.sweep(task["metadata"]["uid"])
    gate.set()
    assert (await running).kind is Kind.BOUND


# --- line 17 ---


async def test_a_lost_gpunode_is_rebuilt_from_its_live_pods_before_anything_is_admitted(w: World) -> None:
    await w.operator.begin(await w.submit("a"), on_card(16_384))
    other = await w.submit("b")
    await w.lose_gpunode()
    fresh = await w.another()
    [node] = (await w.operator.client.list(NODES)).items
    await fresh.declare(node, card_resources())
    assert [entry["amounts"] for entry in (await w.entries()).values()] == [{"gpuMemoryMB/GPU-a": "16384"}]
    assert (await fresh.begin(other, on_card(12_288))).kind is Kind.NO_ROOM


async def test_a_bind_sent_before_the_gpunode_was_lost_cannot_land_after_its_rebuild(w: World) -> None:
    task, other = await w.submit("a"), await w.submit("b")
    doomed = await w.another()
    killer = Killer(doomed, 4, "late")  # create, claim, reserve, and the bind stays on its way
    doomed.begin(task, on_card(16_384))
    await killer.dead.wait()
    await doomed.kill()
    await w.lose_gpunode()
    fresh = await w.another()
    [node] = (await w.operator.client.list(NODES)).items
    await fresh.declare(node, card_resources())
    assert (await fresh.begin(other, on_card(16_384))).kind is Kind.BOUND
    assert killer.late is not None
    assert (await killer.late()).status == 409
    await fresh.settle()
    assert [e["task"] for e in (await w.entries()).values()] == ["default/b"]


async def test_b67_a_pod_that_only_says_it_is_ours_is_not_booked(w: World) -> None:
    await w.operator.begin(await w.submit("a"), on_card(1_000))
    w.excused.update({"bound without entry", "task twice"})
    forged = pod_manifest(await w.task(), 7, on_card(20_000))
    forged["spec"]["nodeName"] = "n1"
    await w.operator.client.create(PODS, forged, NAMESPACE)
    await w.lose_gpunode()
    fresh = await w.another()
    [node] = (await w.operator.client.list(NODES)).items
    await fresh.declare(node, card_resources())
    await fresh.settle()
    assert [e["amounts"] for e in (await w.entries()).values()] == [{"gpuMemoryMB/GPU-a": "1000"}]


async def test_b27_a_node_made_anew_has_its_ledger_rebuilt_and_the_dead_entries_go(w: World) -> None:
    await w.operator.begin(await w.submit("a"), on_card(6_000))
    [pod] = await w.pods()
    await w.operator.client.delete(NODES, "n1")
    await w.operator.client.create(NODES, card_node())
    for left in await w.pods():
        await w.delete_pod(left)
    [node] = (await w.operator.client.list(NODES)).items
    await w.operator.declare(node, card_resources())
    await w.operator.settle()
    assert pod["metadata"]["uid"] not in await w.entries()
    assert (await w.operator.begin(await w.submit("b"), on_card(24_576))).kind is Kind.BOUND


async def test_a_reservation_made_by_an_old_leader_for_a_dead_pod_is_swept(w: World) -> None:
    task = await w.submit()
    await w.operator.begin(task, on_card(1_000))
    [pod] = await w.pods()
    [known] = w.operator.ledgers.entries_of(task["metadata"]["uid"])
    await w.finish(pod)
    await w.operator.settle()
    await w.operator.ledgers.apply("n1", Reserve(known))
    await w.operator.settle()
    assert await w.entries() == {}
