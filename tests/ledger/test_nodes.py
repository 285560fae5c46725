"""One writer for each GpuNode: group commit, compare-and-swap, unknown outcomes, late events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gputask.kube.client import Object
from gputask.kube.errors import Forbidden, OutcomeUnknown
from gputask.kube.resources import GPUNODES
from gputask.kube.transport import Request, Response
from gputask.ledger.changes import Confirm, Declare, Release, Renew, Reserve
from gputask.ledger.entries import Entry
from gputask.ledger.nodes import Applied, Rejected
from support.protocol import World, answer, card_resources, first, lose_reply, on_card, world

pytestmark = pytest.mark.asyncio


@pytest.fixture
async def w() -> AsyncIterator[World]:
    async with world() as made:
        yield made


def entry(name: str, memory: int = 1000) -> Entry:
    literals = on_card(memory)
    return Entry(
        task=f"default/{name}",
        task_uid=f"t-{name}",
        pod=f"pod-{name}",
        pod_uid=name,
        pod_version="5",
        attempt=1,
        node="n1",
        variant=literals.variant,
        variant_index=0,
        allocation=literals.allocation,
        expires_at=60.0,
    )


async def test_all_changes_that_wait_for_a_node_go_in_one_put(w: World) -> None:
    before = w.operator.network.count("PUT", "/gpunodes/")
    results = await asyncio.gather(*(w.operator.ledgers.apply("n1", Reserve(entry(str(i)))) for i in range(20)))
    assert all(isinstance(result, Applied) for result in results)
    assert len(await w.entries()) == 20
    assert w.operator.network.count("PUT", "/gpunodes/") - before == 1


async def test_of_two_that_do_not_fit_together_one_is_refused_and_the_other_not(w: World) -> None:
    one, two = await asyncio.gather(
        w.operator.ledgers.apply("n1", Reserve(entry("a", 16_384))),
        w.operator.ledgers.apply("n1", Reserve(entry("b", 12_288))),
    )
    assert isinstance(one, Applied)
    assert two == Rejected("gpuMemoryMB/GPU-a on n1: asked 12288, free 8192")


async def test_a_conflict_judges_every_change_anew_against_what_is_stored_now(w: World) -> None:
    other = await w.another()

    async def be_faster() -> None:
        assert isinstance(await other.ledgers.apply("n1", Reserve(entry("b", 20_000))), Applied)

    w.operator.network.on("PUT", "/gpunodes/", first(be_faster))
    assert isinstance(await w.operator.ledgers.apply("n1", Reserve(entry("a", 5_000))), Rejected)
    assert set(await w.entries()) == {"b"}


async def test_nothing_is_refused_by_a_remembered_version(w: World) -> None:
    other = await w.another()
    await other.ledgers.apply("n1", Reserve(entry("b", 20_000)))
    await w.operator.observe()
    await other.ledgers.apply("n1", Release("b", "5"))
    # What w.operator remembers is full; what is stored has room.
    assert isinstance(await w.operator.ledgers.apply("n1", Reserve(entry("a", 20_000))), Applied)


async def test_nothing_counts_as_there_already_by_a_remembered_version(w: World) -> None:
    other = await w.another()
    await w.operator.ledgers.apply("n1", Reserve(entry("a")))
    await other.ledgers.apply("n1", Release("a", "5"))
    assert isinstance(await w.operator.ledgers.apply("n1", Reserve(entry("a"))), Applied)
    assert set(await w.entries()) == {"a"}


async def test_a_lost_reply_is_found_out_by_reading_and_not_by_writing_again(w: World) -> None:
    before = w.operator.network.count("PUT", "/gpunodes/")
    w.operator.network.on("PUT", "/gpunodes/", lose_reply)
    assert isinstance(await w.operator.ledgers.apply("n1", Reserve(entry("a"))), Applied)
    assert w.operator.network.count("PUT", "/gpunodes/") - before == 1


async def test_a_server_that_never_answers_leaves_the_outcome_unknown(w: World) -> None:
    w.operator.network.on("PUT", "/gpunodes/", answer(500), times=100)
    with pytest.raises(OutcomeUnknown):
        await w.operator.ledgers.apply("n1", Reserve(entry("a")))


async def test_a_refusal_after_an_unknown_outcome_is_still_unknown(w: World) -> None:
    statuses = iter([500] + [403] * 100)

    async def worse_and_worse(request: Request, send: Callable[[], Any]) -> Response:
        return await answer(next(statuses))(request, send)

    w.operator.network.on("PUT", "/gpunodes/", worse_and_worse, times=100)
    with pytest.raises(OutcomeUnknown):
        await w.operator.ledgers.apply("n1", Reserve(entry("a")))


async def test_a_refused_write_is_told_to_all_who_waited(w: World) -> None:
    w.operator.network.on("PUT", "/gpunodes/", answer(403, "Forbidden"), times=100)
    results = await asyncio.gather(
        *(w.operator.ledgers.apply("n1", Reserve(entry(name))) for name in "ab"), return_exceptions=True
    )
    assert all(isinstance(result, Forbidden) for result in results)


async def test_one_bad_change_takes_no_other_with_it(w: World) -> None:
    # The batch of three, then the first of them alone.
    w.operator.network.on("PUT", "/gpunodes/", answer(422, "Invalid"), times=2)
    results = await asyncio.gather(
        *(w.operator.ledgers.apply("n1", Reserve(entry(name))) for name in "abc"), return_exceptions=True
    )
    assert [type(result).__name__ for result in results] == ["Invalid", "Applied", "Applied"]
    assert set(await w.entries()) == {"b", "c"}


async def test_a_node_without_gpunode_is_a_refusal_and_no_error(w: World) -> None:
    result = await w.operator.ledgers.apply("nowhere", Reserve(entry("a")))
    assert result == Rejected("there is no GpuNode nowhere")


async def test_a_caller_that_is_cancelled_takes_its_change_out_of_the_next_batch(w: World) -> None:
    gate = asyncio.Event()
    w.operator.network.on("PUT", "/gpunodes/", first(gate.wait))
    running = asyncio.create_task(w.operator.ledgers.apply("n1", Reserve(entry("a"))))
    await asyncio.sleep(0)
    queued = asyncio.create_task(w.operator.ledgers.apply("n1", Reserve(entry("b"))))
    await asyncio.sleep(0)
    queued.cancel()
    last = asyncio.create_task(w.operator.ledgers.apply("n1", Reserve(entry("c"))))
    gate.set()
    await asyncio.gather(running, last)
    assert set(await w.entries()) == {"a", "c"}


async def test_a_late_event_of_a_version_that_we_replaced_changes_nothing_known(w: World) -> None:
    old: Object = await w.operator.client.get(GPUNODES, "n1")
    await w.operator.ledgers.apply("n1", Reserve(entry("a")))
    told = len(w.operator.changes)
    w.operator.ledgers.observe(old)
    known = w.operator.ledgers.known("n1")
    assert known is not None
    assert set(known.entries) == {"a"}
    assert len(w.operator.changes) == told


async def test_the_caller_goes_on_only_after_the_store_was_told(w: World) -> None:
    w.operator.changes.clear()
    await w.operator.ledgers.apply("n1", Reserve(entry("a")))
    assert w.operator.changes == ["n1"]


async def test_entries_are_known_by_task_until_they_are_released_or_the_gpunode_goes(w: World) -> None:
    ledgers = w.operator.ledgers
    await ledgers.apply("n1", Reserve(entry("a")))
    await ledgers.apply("n1", Confirm("a", 1.0))
    assert [known.state.value for known in ledgers.entries_of("t-a")] == ["Bound"]
    ledgers.drop(await w.operator.client.get(GPUNODES, "n1"))
    assert (tuple(ledgers.entries_of("t-a")), ledgers.known("n1")) == ((), None)


async def test_a_renewal_under_a_version_that_moved_is_refused(w: World) -> None:
    ledgers = w.operator.ledgers
    result = await ledgers.apply("n1", Reserve(entry("a")))
    assert isinstance(result, Applied)
    await ledgers.apply("n1", Reserve(entry("b")))
    late = await ledgers.apply("n1", Renew("a", "6", under=result.ledger.version, expires_at=None))
    assert late == Rejected("the ledger changed after the pod was read")


async def test_a_declaration_that_says_nothing_new_is_not_written(w: World) -> None:
    known = w.operator.ledgers.known("n1")
    assert known is not None
    before = w.operator.network.count("PUT", "/gpunodes/")
    await w.operator.ledgers.apply("n1", Declare(known.node_uid, card_resources()))
    assert w.operator.network.count("PUT", "/gpunodes/") == before


async def test_the_columns_tell_used_and_free(w: World) -> None:
    await w.operator.ledgers.apply("n1", Reserve(entry("a", 16_384)))
    gpunode = await w.operator.client.get(GPUNODES, "n1")
    assert gpunode["status"]["summary"] == {
        "devices": "1/1",
        "used": "gpuMemoryMB=16384",
        "free": "cpu=8, gpuMemoryMB=8192, memory=32768",
    }
