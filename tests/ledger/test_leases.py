"""Leases against a real API server: killed anywhere, two leaders, late writes, lost ledgers; and never two holders."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from gputask.kube.errors import ApiError, Conflict, KubeError, NotFound
from gputask.kube.resources import GPUNODES, GPUTASKS, NODES
from gputask.ledger.changes import Quarantine, Reserve
from gputask.ledger.claims import ClaimState, claim_of, why_not_wanted
from gputask.ledger.leases import was_told
from gputask.ledger.outcome import Kind
from support.protocol import (
    NAMESPACE,
    Killer,
    Object,
    Operator,
    World,
    card_resources,
    first,
    lose_reply,
    on_card,
    world,
)

pytestmark = pytest.mark.asyncio

ALL = 24_576


@pytest.fixture
async def w() -> AsyncIterator[World]:
    async with world() as made:
        yield made


async def lease(w: World, name: str = "a") -> Object:
    return await w.submit(name, lease={"ttlSeconds": 300})


async def tell(operator: Operator, name: str = "a") -> None:
    """The status says that it is held, as the controller does: of an entry seen, under the version of the task seen."""
    task = next(t for t in operator.cache.tasks.values() if t["metadata"]["name"] == name)
    claim = claim_of(task)
    seen = operator.ledgers.entries_of(task["metadata"]["uid"])
    if claim is not None and claim.state is ClaimState.CLAIMED and any(e.pod_uid == claim.pod_uid for e in seen):
        version = task["metadata"]["resourceVersion"]
        await operator.writes.task_status(NAMESPACE, name, {"phase": "Bound"}, resource_version=version)


async def held(w: World, name: str = "a", memory: int = ALL) -> Object:
    """A lease that its holder was told of."""
    assert (await w.operator.begin(await lease(w, name), on_card(memory))).kind is Kind.BOUND
    await w.operator.observe()
    await tell(w.operator, name)
    await w.operator.observe()
    return await w.task(name)


async def wish(w: World, name: str = "a", **spec: Any) -> None:
    await w.operator.client.patch(GPUTASKS, name, {"spec": spec}, NAMESPACE)


async def delete(w: World, name: str = "a") -> None:
    await w.operator.client.delete(GPUTASKS, name, NAMESPACE)


async def quarantine(operator: Operator, task: Object) -> None:
    [entry] = operator.ledgers.entries_of(task["metadata"]["uid"])
    await operator.ledgers.apply(entry.node, Quarantine(entry.pod_uid, entry.pod_version))


async def rebuilt(w: World) -> Operator:
    """A fresh operator, which has made the ledger of n1 anew."""
    fresh = await w.another()
    node = next(n for n in (await w.operator.client.list(NODES)).items if n["metadata"]["name"] == "n1")
    await fresh.declare(node, card_resources())
    return fresh


async def is_whole(w: World, *names: str) -> None:
    """Each lease has exactly the entry that its claim names, or none if nothing is claimed."""
    entries = {**await w.entries("n1")}
    if any(gpunode["metadata"]["name"] == "n2" for gpunode in (await w.operator.client.list(GPUNODES)).items):
        entries |= await w.entries("n2")
    claimed = {}
    for name in names:
        with suppress(NotFound):
            claim = claim_of(await w.task(name))
            if claim is not None and claim.live:
                claimed[claim.pod_uid] = claim.literals.node
    assert {uid: entry["node"] for uid, entry in entries.items()} == claimed


# --- claimed and reserved ---


@pytest.mark.parametrize("how", ["before", "after", "late"])
async def test_after_a_kill_at_any_request_a_lease_is_held_once_or_not_at_all(how: str) -> None:
    for at in range(1, 20):
        async with world() as w:
            doomed = await w.another()
            killer = Killer(doomed, at, how)
            running = doomed.begin(await lease(w), on_card(ALL))
            dead = asyncio.create_task(killer.dead.wait())
            await asyncio.wait({running, dead}, return_when=asyncio.FIRST_COMPLETED)
            ended = running.done()
            dead.cancel()
            await doomed.kill()
            if ended:
                assert at > 2  # claim and reserve at the least
                return
            fresh = await w.another()
            await fresh.settle()
            if killer.late is not None:
                await killer.late()
                await fresh.settle()
            await is_whole(w, "a")
            if not await w.entries():
                assert (await fresh.begin(await w.task(), on_card(ALL))).kind is Kind.BOUND
            await is_whole(w, "a")
    raise AssertionError("the admission never came to its end")


async def test_a_lost_reply_of_the_claim_is_no_second_grant(w: World) -> None:
    w.operator.network.on("PATCH", "/gputasks/", lose_reply)
    assert (await w.operator.begin(await lease(w), on_card(ALL))).kind is Kind.BOUND
    claim = claim_of(await w.task())
    assert claim is not None
    assert list(await w.entries()) == [claim.pod_uid]


async def test_of_two_leaders_one_grants_the_lease_wherever_they_decided() -> None:
    async with world(nodes=2) as w:
        task, other = await lease(w), await w.another()
        kinds = [
            (await begun).kind
            for begun in (w.operator.begin(task, on_card(ALL, "n1")), other.begin(task, on_card(ALL, "n2")))
        ]
        assert sorted(kinds) == [Kind.BOUND, Kind.CLAIM_LOST]
        await is_whole(w, "a")


async def test_without_room_the_claim_is_ended_and_the_lease_waits(w: World) -> None:
    await held(w, "a", 20_000)
    assert (await w.operator.begin(await lease(w, "b"), on_card(8_000))).kind is Kind.NO_ROOM
    claim = claim_of(await w.task("b"))
    assert claim is not None
    assert not claim.live
    assert (await w.task("b"))["status"]["phase"] == "Pending"
    await is_whole(w, "a", "b")


async def test_a_reservation_by_a_leader_of_long_ago_is_swept(w: World) -> None:
    task = await held(w)
    [known] = w.operator.ledgers.entries_of(task["metadata"]["uid"])
    await wish(w, suspend=True)
    await w.operator.settle()
    assert await w.entries() == {}
    await w.operator.ledgers.apply("n1", Reserve(known))
    assert set(await w.entries()) == {known.pod_uid}
    await w.operator.settle()
    assert await w.entries() == {}


async def test_no_room_for_one_leader_takes_nothing_from_a_holder_that_another_has_told(w: World) -> None:
    blocker = await held(w, "b")
    doomed = await w.another()
    killer = Killer(doomed, 2, "before")  # the claim has landed
    doomed.begin(await lease(w), on_card(ALL))
    await killer.dead.wait()
    await doomed.kill()
    slow, quick = await w.another(), await w.another()

    async def meanwhile() -> None:
        await delete(w, "b")
        await quick.settle()
        await tell(quick)

    slow.network.on("PATCH", "/gputasks/", first(meanwhile))  # its ledger had no room, and it is about to end the claim
    claim = claim_of(await w.task())
    assert claim is not None
    assert (await slow.admission.resume(await w.task(), claim, None)).kind is Kind.UNKNOWN
    assert was_told(await w.task())
    assert blocker["metadata"]["uid"] not in await w.entries()
    await is_whole(w, "a")


# --- given back ---


async def test_a_deleted_lease_gives_its_room_back_at_once(w: World) -> None:
    await held(w)
    await delete(w)
    await w.operator.settle()
    assert await w.entries() == {}


@pytest.mark.parametrize("how", ["before", "after", "late"])
async def test_a_suspended_lease_is_given_back_and_waits_whoever_dies_over_it(w: World, how: str) -> None:
    await held(w)
    await wish(w, suspend=True)
    for at in range(1, 8):
        doomed = await w.another()
        killer = Killer(doomed, at, how)
        sweep = asyncio.create_task(doomed.recovery.sweep_all())
        dead = asyncio.create_task(killer.dead.wait())
        await asyncio.wait({sweep, dead}, return_when=asyncio.FIRST_COMPLETED)
        for task in (sweep, dead):
            task.cancel()
        await doomed.kill()
        if killer.late is not None:
            await killer.late()
    await w.operator.settle()
    await is_whole(w, "a")
    assert await w.entries() == {}
    assert (await w.task())["status"]["phase"] == "Pending"
    await wish(w, suspend=False)
    assert (await w.operator.begin(await w.task(), on_card(ALL))).kind is Kind.BOUND
    await is_whole(w, "a")


async def test_a_lease_that_is_wanted_again_before_its_end_is_written_stays_held(w: World) -> None:
    await held(w)
    await wish(w, suspend=True)
    hasty = await w.another()
    hasty.network.on("PATCH", "/gputasks/", first(lambda: wish(w, suspend=False)))
    await hasty.recovery.sweep_all()
    await w.operator.settle()
    assert was_told(await w.task())
    await is_whole(w, "a")


async def test_a_wish_between_end_and_release_finds_the_room_taken_by_nobody(w: World) -> None:
    await held(w)
    await wish(w, suspend=True)
    doomed = await w.another()
    await doomed.recovery.sweep_all()  # ends the claim; the entry is the next sweep's
    await doomed.kill()
    assert len(await w.entries()) == 1
    await wish(w, suspend=False)
    assert (await w.operator.begin(await w.task(), on_card(ALL))).kind is Kind.NO_ROOM
    await w.operator.settle()
    assert (await w.operator.begin(await w.task(), on_card(ALL))).kind is Kind.BOUND
    await is_whole(w, "a")


# --- expired ---


async def test_a_kill_between_quarantine_and_end_is_made_whole_by_the_next(w: World) -> None:
    task = await held(w)
    await quarantine(w.operator, task)
    await wish(w, suspend=True)  # too late to give it back
    fresh = await w.another()
    await fresh.settle()
    status = (await w.task())["status"]
    assert (status["phase"], status["reservation"]["state"]) == ("Failed", "Quarantined")
    assert [c["reason"] for c in status["conditions"] if c["type"] == "Finished"] == ["LeaseExpired"]
    assert [entry["state"] for entry in (await w.entries()).values()] == ["Quarantined"]
    await delete(w)
    await fresh.settle()
    assert await w.entries() == {}


async def test_a_lease_given_back_while_another_leader_quarantines_it_is_given_back(w: World) -> None:
    task = await held(w)
    await wish(w, suspend=True)
    late = await w.another()
    # The release was decided of an entry that was not in quarantine then; the claim has ended, so it may go.
    w.operator.network.on("PUT", "/gpunodes/", first(lambda: quarantine(late, task)))
    await w.operator.settle()
    assert await w.entries() == {}
    assert (await w.task())["status"]["phase"] == "Pending"


# --- the ledger is lost ---


@pytest.mark.parametrize("expired", [False, True])
async def test_a_lost_ledger_is_rebuilt_with_what_holders_were_told_and_what_is_quarantined(
    w: World, expired: bool
) -> None:
    task = await held(w)
    if expired:
        await quarantine(w.operator, task)
        await w.operator.settle()
    other = await w.submit("b")
    await w.lose_gpunode()
    fresh = await rebuilt(w)
    assert [entry["state"] for entry in (await w.entries()).values()] == ["Quarantined" if expired else "Bound"]
    assert (await fresh.begin(other, on_card(1_000))).kind is Kind.NO_ROOM
    await is_whole(w, "a")


async def test_a_holder_that_was_not_told_before_the_ledger_was_lost_is_never_told(w: World) -> None:
    assert (await w.operator.begin(await lease(w), on_card(ALL))).kind is Kind.BOUND
    await w.operator.observe()  # and then it sleeps
    await w.lose_gpunode()
    fresh = await rebuilt(w)
    assert (await fresh.begin(await w.submit("b"), on_card(ALL))).kind is Kind.BOUND
    with pytest.raises(Conflict):
        await tell(w.operator)
    await fresh.settle()
    assert [entry["task"] for entry in (await w.entries()).values()] == ["default/b"]


# --- everything at once ---


@pytest.mark.parametrize("seed", range(20))
async def test_many_leaders_wishes_kills_and_late_requests_never_give_one_card_to_two(seed: int) -> None:
    rng = random.Random(seed)
    async with world(nodes=2) as w:
        for name in "abc":
            await lease(w, name)
        late: list[Callable[[], Any]] = []
        for _ in range(8):
            operator = await w.another()
            killer = Killer(operator, rng.randrange(2, 14), rng.choice(["before", "after", "late"]))
            await _work_until_dead(operator, killer, rng)
            late += [killer.late] if killer.late is not None else []
            if late and rng.random() < 0.5:
                await late.pop(rng.randrange(len(late)))()
            if rng.random() < 0.5:
                await _some_wish(w, rng)
        fresh = await w.another()
        await fresh.settle()
        for request in late:
            await request()
        await fresh.settle()
        await is_whole(w, *"abc")


async def _some_wish(w: World, rng: random.Random) -> None:
    name = rng.choice("abc")
    try:
        match rng.randrange(3):
            case 0:
                await delete(w, name)
                await lease(w, name)
            case 1:
                await wish(w, name, suspend=True)
            case _:
                await wish(w, name, suspend=False)
    except NotFound:
        return


async def _work_until_dead(operator: Operator, killer: Killer, rng: random.Random) -> None:
    async def work() -> None:
        with suppress(KubeError):
            await operator.observe()
            await operator.recovery.sweep_all()
            begun = [
                operator.begin(task, on_card(ALL, rng.choice(["n1", "n2"])))
                for uid, task in operator.cache.tasks.items()
                if not operator.admission.busy(uid) and _waits(task)
            ]
            await asyncio.gather(*begun)
            await operator.observe()
            for task in list(operator.cache.tasks.values()):
                with suppress(ApiError):
                    await tell(operator, task["metadata"]["name"])
            for task in list(operator.cache.tasks.values()):
                if rng.random() < 0.2 and len(list(operator.ledgers.entries_of(task["metadata"]["uid"]))) == 1:
                    await quarantine(operator, task)

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
