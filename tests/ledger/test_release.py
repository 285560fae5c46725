"""Proof before release (protocol lines 10 and 13): what must not happen while a bind may still be on its way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gputask.kube.errors import Conflict, KubeError
from gputask.kube.resources import PODS
from gputask.ledger.changes import Confirm, Quarantine, Refused, Renew, Reserve
from gputask.ledger.claims import Claim, Won
from gputask.ledger.entries import Entry
from gputask.ledger.nodes import Applied
from gputask.ledger.pods import Place, uid_of, version_of
from gputask.ledger.release import PodRef
from support.protocol import CARD, NAMESPACE, Object, World, first, lose_reply, on_card, pod_manifest, world

pytestmark = pytest.mark.asyncio


@pytest.fixture
async def w() -> AsyncIterator[World]:
    async with world() as made:
        yield made


async def in_flight(w: World) -> tuple[Object, Entry]:
    """A claimed, reserved, unbound pod: a bind under the entry's version may be on its way."""
    task, literals = await w.submit(), on_card(24_576)
    pod = await w.operator.writes.create_pod(pod_manifest(task, 1, literals))
    claim = Claim(1, pod["metadata"]["name"], uid_of(pod), literals)
    assert isinstance(await w.operator.claims.claim(task, claim), Won)
    entry = w.operator.binder._entry(task, claim, pod)
    assert isinstance(await w.operator.ledgers.apply("n1", Reserve(entry)), Applied)
    return pod, entry


async def late_bind(w: World, entry: Entry) -> None:
    await w.operator.writes.bind(
        NAMESPACE, entry.pod, entry.node, uid=entry.pod_uid, resource_version=entry.pod_version
    )


async def test_an_unbound_pod_at_the_stored_version_is_fenced_before_its_entry_goes(w: World) -> None:
    _, entry = await in_flight(w)
    assert await w.operator.releaser.release(entry)
    assert await w.entries() == {}
    with pytest.raises(Conflict):
        await late_bind(w, entry)


async def test_a_fence_whose_reply_was_lost_is_seen_by_the_next_look(w: World) -> None:
    _, entry = await in_flight(w)
    w.operator.network.on("PATCH", "/pods/", lose_reply)
    assert await w.operator.releaser.release(entry)
    assert w.operator.network.count("PATCH", "/pods/") == 1


async def test_a_bind_that_lands_before_the_fence_keeps_its_entry(w: World) -> None:
    _, entry = await in_flight(w)

    async def land() -> None:
        await late_bind(w, entry)

    w.operator.network.on("PATCH", "/pods/", first(land))
    assert not await w.operator.releaser.release(entry)
    assert set(await w.entries()) == {entry.pod_uid}


async def test_b24_a_live_bound_pod_is_never_released_whatever_its_entry_expired(w: World) -> None:
    _, entry = await in_flight(w)
    await late_bind(w, entry)
    w.operator.now += 10_000
    assert not await w.operator.releaser.release(entry)
    assert set(await w.entries()) == {entry.pod_uid}


async def test_a_proof_is_made_again_when_the_entry_was_renewed_meanwhile(w: World) -> None:
    pod, entry = await in_flight(w)
    await w.touch(pod)  # fenced, as it seems
    other = await w.another()

    async def renew_and_bind() -> None:
        ledger = other.ledgers.known("n1")
        stored = await w.operator.client.get(PODS, entry.pod, NAMESPACE)
        assert ledger is not None
        change = Renew(entry.pod_uid, version_of(stored), under=ledger.version, expires_at=None)
        assert isinstance(await other.ledgers.apply("n1", change), Applied)
        await other.writes.bind(NAMESPACE, entry.pod, "n1", uid=entry.pod_uid, resource_version=version_of(stored))

    w.operator.network.on("PUT", "/gpunodes/", first(renew_and_bind))
    assert not await w.operator.releaser.release(entry)
    assert set(await w.entries()) == {entry.pod_uid}


async def test_a_pod_bound_between_the_look_and_its_delete_survives(w: World) -> None:
    _, entry = await in_flight(w)

    async def land() -> None:
        await late_bind(w, entry)

    w.operator.network.on("DELETE", "/pods/", first(land))
    seen = await w.operator.releaser.take_back(PodRef.of(entry), entry)
    assert seen.place is Place.HERE
    [pod] = await w.pods()
    assert "deletionTimestamp" not in pod["metadata"]
    assert set(await w.entries()) == {entry.pod_uid}


async def test_a_pod_that_a_finalizer_keeps_is_released_by_the_fence_and_not_called_dead(w: World) -> None:
    pod, entry = await in_flight(w)
    body = {"metadata": {"finalizers": ["other.dev/keeps"]}}
    await w.operator.client.patch(PODS, pod["metadata"]["name"], body, NAMESPACE)
    seen = await w.operator.releaser.take_back(PodRef.of(entry), entry)
    assert (seen.place, seen.place.dead) == (Place.UNBOUND, False)
    assert await w.entries() == {}
    with pytest.raises(KubeError):
        await late_bind(w, entry)


async def test_another_pod_of_the_same_name_proves_the_first_one_gone(w: World) -> None:
    pod, entry = await in_flight(w)
    await w.delete_pod(pod)
    await w.operator.writes.create_pod(pod_manifest(await w.task(), 1, on_card(1)))
    assert (await w.operator.releaser.look(PodRef.of(entry))).place is Place.GONE
    assert await w.operator.releaser.release(entry)


async def test_a_pod_that_vanished_out_of_contact_is_quarantined_and_its_room_stays_taken(w: World) -> None:
    _, entry = await in_flight(w)
    await late_bind(w, entry)
    await w.operator.client.delete(PODS, entry.pod, NAMESPACE, grace_seconds=0)
    w.operator.out_of_contact.add("n1")
    assert await w.operator.releaser.release(entry), "the pod owns nothing any more"
    assert (await w.entries())[entry.pod_uid]["state"] == "Quarantined"
    version = w.operator.ledgers.known("n1")
    assert await w.operator.releaser.release(entry)
    assert w.operator.ledgers.known("n1") == version, "said once"
    w.operator.out_of_contact.clear()
    assert await w.operator.releaser.release(entry)
    assert await w.entries() == {}


async def test_what_is_quarantined_is_never_confirmed_and_fits_nobody(w: World) -> None:
    _, entry = await in_flight(w)
    ledger = w.operator.ledgers.known("n1")
    assert ledger is not None
    quarantined = Quarantine(entry.pod_uid, entry.pod_version).apply(ledger)
    assert Quarantine(entry.pod_uid, entry.pod_version).apply(quarantined) is quarantined
    assert quarantined.used(f"gpuMemoryMB/{CARD}") == ledger.used(f"gpuMemoryMB/{CARD}") > 0
    with pytest.raises(Refused):
        Confirm(entry.pod_uid, 0.0).apply(quarantined)
    with pytest.raises(Refused):
        Quarantine(entry.pod_uid, "another version").apply(ledger)
