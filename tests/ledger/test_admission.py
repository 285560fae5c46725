"""Every row of the table in gputask/ledger/admission.py, against the embedded server over HTTP."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from gputask.kube.resources import GPUTASKS, PODS
from gputask.ledger.claims import ClaimState, claim_of
from gputask.ledger.outcome import Kind
from gputask.ledger.pods import Literals
from gputask.resources.amounts import SCALE
from gputask.resources.pools import Allocation
from support.protocol import (
    NAMESPACE,
    World,
    answer,
    first,
    lose_reply,
    lose_request,
    on_card,
    pod_manifest,
    world,
)

pytestmark = pytest.mark.asyncio


@pytest.fixture
async def w() -> AsyncIterator[World]:
    async with world() as made:
        yield made


async def test_a_decision_becomes_a_claimed_reserved_and_bound_pod(w: World) -> None:
    task = await w.submit()
    outcome = await w.operator.begin(task, on_card(16_384))
    [pod] = await w.pods()
    claim = claim_of(await w.task())
    assert outcome.kind is Kind.BOUND
    assert pod["spec"]["nodeName"] == "n1"
    assert claim is not None
    assert (claim.pod_uid, claim.attempt, claim.literals) == (pod["metadata"]["uid"], 1, on_card(16_384))
    entry = (await w.entries())[pod["metadata"]["uid"]]
    assert (entry["state"], entry["amounts"]) == ("Bound", {"gpuMemoryMB/GPU-a": "16384"})


async def test_the_assumption_covers_until_the_ledger_has_the_entry(w: World) -> None:
    seen: list[tuple[bool, bool]] = []

    async def look() -> None:
        assumed = w.operator.admission.assumed.of(task["metadata"]["uid"]) is not None
        seen.append((assumed, bool(await w.entries())))

    task = await w.submit()
    for method, part in (("POST", "/pods"), ("PATCH", "/gputasks/"), ("PUT", "/gpunodes/"), ("POST", "/binding")):
        w.operator.network.on(method, part, first(look))
    running = w.operator.begin(task, on_card(1000))
    assert w.operator.admission.assumed.of(task["metadata"]["uid"]) is not None
    await running
    # At the create, the claim and the reserve it is assumed; at the bind the ledger has it.
    assert seen[:3] == [(True, False)] * 3
    assert (False, True) in seen


async def test_an_admission_cancelled_before_its_first_step_forgets_too(w: World) -> None:
    task = await w.submit()
    running = w.operator.begin(task, on_card(1000))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0)
    assert w.operator.admission.assumed.of(task["metadata"]["uid"]) is None
    assert not w.operator.admission.busy(task["metadata"]["uid"])


# --- line 2 ---


@pytest.mark.parametrize(("status", "reason"), [(403, "Forbidden"), (422, "Invalid"), (400, "BadRequest")])
async def test_a_refused_pod_is_told_before_anything_is_held(w: World, status: int, reason: str) -> None:
    task = await w.submit()
    w.operator.network.on("POST", "/pods", answer(status, reason, "exceeded quota: pods=10"))
    outcome = await w.operator.begin(task, on_card(1000))
    assert (outcome.kind, outcome.message) == (Kind.POD_REFUSED, "exceeded quota: pods=10")
    assert (await w.pods(), await w.entries(), claim_of(await w.task())) == ([], {}, None)


async def test_our_pod_that_is_there_already_is_taken_when_its_literals_are_those_of_the_decision(w: World) -> None:
    task = await w.submit()
    made = await w.operator.writes.create_pod(pod_manifest(task, 1, on_card(1000)))
    assert (await w.operator.begin(task, on_card(1000))).kind is Kind.BOUND
    assert [pod["metadata"]["uid"] for pod in await w.pods()] == [made["metadata"]["uid"]]


async def test_our_pod_of_an_older_decision_is_replaced(w: World) -> None:
    task = await w.submit()
    made = await w.operator.writes.create_pod(pod_manifest(task, 1, on_card(2000)))
    assert (await w.operator.begin(task, on_card(1000))).kind is Kind.BOUND
    [pod] = await w.pods()
    assert pod["metadata"]["uid"] != made["metadata"]["uid"]


async def test_a_strangers_pod_under_our_name_makes_us_take_the_next_number(w: World) -> None:
    task = await w.submit()
    stranger = pod_manifest(task, 1, on_card(1000))
    del stranger["metadata"]["ownerReferences"]
    await w.operator.writes.create_pod(stranger)
    assert (await w.operator.begin(task, on_card(1000))).kind is Kind.BOUND
    claim = claim_of(await w.task())
    assert claim is not None
    assert claim.attempt == 2


async def test_our_pod_that_is_bound_already_was_claimed_by_somebody_else(w: World) -> None:
    task = await w.submit()
    assert (await w.operator.begin(task, on_card(1000))).kind is Kind.BOUND
    late = await w.another()
    assert (await late.begin(task, on_card(1000))).kind is Kind.CLAIM_LOST
    assert len(await w.pods()) == 1


# --- line 3 ---


async def test_a_task_deleted_before_the_claim_leaves_no_pod(w: World) -> None:
    task = await w.submit()

    async def delete() -> None:
        await w.operator.client.delete(GPUTASKS, "a", NAMESPACE)

    w.operator.network.on("PATCH", "/gputasks/", first(delete))
    assert (await w.operator.begin(task, on_card(1000))).kind is Kind.TASK_GONE
    assert (await w.pods(), await w.entries()) == ([], {})


async def test_a_task_suspended_before_the_claim_leaves_no_pod(w: World) -> None:
    task = await w.submit()

    async def suspend() -> None:
        await w.operator.client.patch(GPUTASKS, "a", {"spec": {"suspend": True}}, NAMESPACE)

    w.operator.network.on("PATCH", "/gputasks/", first(suspend))
    outcome = await w.operator.begin(task, on_card(1000))
    assert (outcome.kind, outcome.message) == (Kind.TASK_GONE, "the task is suspended")
    assert (await w.pods(), await w.entries()) == ([], {})


async def test_a_task_of_the_same_name_but_another_uid_is_not_claimed(w: World) -> None:
    task = await w.submit()

    async def recreate() -> None:
        await w.operator.client.delete(GPUTASKS, "a", NAMESPACE)
        await w.submit("a")

    w.operator.network.on("PATCH", "/gputasks/", first(recreate))
    assert (await w.operator.begin(task, on_card(1000))).kind is Kind.TASK_GONE
    assert claim_of(await w.task()) is None


async def test_a_claim_lost_to_another_pod_deletes_ours(w: World) -> None:
    task = await w.submit()
    other = await w.another()
    stranger = pod_manifest(task, 1, on_card(1000))
    del stranger["metadata"]["ownerReferences"]
    await w.operator.writes.create_pod(stranger)

    async def win() -> None:
        # The other one also meets the stranger, takes number 2, and is faster.
        await other.begin(task, on_card(1000), attempt=3)

    w.operator.network.on("PATCH", "/gputasks/", first(win))
    assert (await w.operator.begin(task, on_card(1000))).kind is Kind.CLAIM_LOST
    bound = [pod for pod in await w.pods() if pod["spec"].get("nodeName")]
    assert len(bound) == 1
    assert len(await w.pods()) == 2  # the bound one and the stranger


async def test_v26_a_claim_answered_with_500_ten_times_keeps_nothing_and_then_reserves_once(w: World) -> None:
    task = await w.submit()
    w.operator.network.on("PATCH", "/gputasks/", answer(500, "InternalError"), times=10)
    assert (await w.operator.begin(task, on_card(1000))).kind is Kind.UNKNOWN
    assert (claim_of(await w.task()), await w.entries()) == (None, {})
    assert (await w.operator.begin(task, on_card(1000))).kind is Kind.BOUND
    assert len(await w.entries()) == 1
    assert len(await w.pods()) == 1


# --- line 5 ---


async def test_what_no_longer_fits_gives_back_pod_and_claim(w: World) -> None:
    first_task, second = await w.submit("a"), await w.submit("b")
    assert (await w.operator.begin(first_task, on_card(16_384))).kind is Kind.BOUND
    outcome = await w.operator.begin(second, on_card(12_288))
    assert outcome.kind is Kind.NO_ROOM
    assert outcome.message == "gpuMemoryMB/GPU-a on n1: asked 12288, free 8192"
    claim = claim_of(await w.task("b"))
    assert claim is not None
    assert claim.state is ClaimState.ENDED
    assert (len(await w.pods()), len(await w.entries())) == (1, 1)


async def test_foreign_use_counts_inside_the_compare_and_swap(w: World) -> None:
    task = await w.submit()
    w.operator.foreign["n1"] = {"gpuMemoryMB/GPU-a": 20_000 * 10_000}
    assert (await w.operator.begin(task, on_card(8_000))).kind is Kind.NO_ROOM


async def test_after_no_room_the_next_attempt_has_the_next_number(w: World) -> None:
    task = await w.submit()
    assert (await w.operator.begin(task, on_card(30_000))).kind is Kind.NO_ROOM
    assert (await w.operator.begin(await w.task(), on_card(1_000))).kind is Kind.BOUND
    claim = claim_of(await w.task())
    assert claim is not None
    assert (claim.attempt, claim.literals) == (2, on_card(1_000))


async def test_a_claim_of_another_variant_leaves_nothing_of_the_one_before(w: World) -> None:
    task = await w.submit()
    assert (await w.operator.begin(task, on_card(30_000))).kind is Kind.NO_ROOM
    on_cpu = Literals("n1", "cpu", 1, Allocation({"cpu": 2 * SCALE}))
    assert (await w.operator.begin(await w.task(), on_cpu)).kind is Kind.BOUND
    claim = claim_of(await w.task())
    assert claim is not None
    assert claim.literals == on_cpu


# --- lines 6 to 8 ---


@pytest.mark.parametrize("fault", [lose_reply, lose_request, answer(503), answer(429, "TooManyRequests")])
@pytest.mark.parametrize(
    ("method", "part"),
    [("POST", "/pods"), ("PATCH", "/gputasks/"), ("PUT", "/gpunodes/"), ("POST", "/binding")],
)
async def test_v32_an_unknown_outcome_of_any_write_is_settled_by_a_live_read(
    w: World, method: str, part: str, fault: object
) -> None:
    task = await w.submit()
    w.operator.network.on(method, part, fault)  # type: ignore[arg-type]
    outcome = await w.operator.begin(task, on_card(16_384))
    if outcome.kind is Kind.UNKNOWN:  # a pod create that was told to come later
        outcome = await w.operator.begin(task, on_card(16_384))
    assert outcome.kind is Kind.BOUND
    assert (len(await w.pods()), len(await w.entries())) == (1, 1)


async def test_b23_a_lost_reply_of_the_bind_is_one_bind_and_one_reservation(w: World) -> None:
    task = await w.submit()
    w.operator.network.on("POST", "/binding", lose_reply)
    assert (await w.operator.begin(task, on_card(16_384))).kind is Kind.BOUND
    assert w.operator.network.count("POST", "/binding") == 1
    assert [entry["state"] for entry in (await w.entries()).values()] == ["Bound"]


async def test_b23_a_pod_that_somebody_bound_elsewhere_is_not_ours_to_count_here() -> None:
    async with world(nodes=2) as w:
        task = await w.submit()
        w.excused.add("bound without entry")  # the thief

        async def steal() -> None:
            [pod] = await w.pods()
            metadata = pod["metadata"]
            await w.operator.writes.bind(
                NAMESPACE, metadata["name"], "n2", uid=metadata["uid"], resource_version=metadata["resourceVersion"]
            )

        w.operator.network.on("POST", "/binding", first(steal))
        outcome = await w.operator.begin(task, on_card(16_384))
        assert outcome.kind is Kind.POD_ELSEWHERE
        assert await w.entries("n1") == {}
        await w.operator.settle()
        assert [entry["state"] for entry in (await w.entries("n2")).values()] == ["Bound"]


async def test_v31_a_pod_deleted_between_decision_and_bind_gives_its_card_back(w: World) -> None:
    task, other = await w.submit("a"), await w.submit("b")

    async def delete() -> None:
        await w.delete_pod((await w.pods())[0])

    w.operator.network.on("POST", "/binding", first(delete))
    assert (await w.operator.begin(task, on_card(24_576))).kind is Kind.POD_GONE
    assert await w.entries() == {}
    assert (await w.operator.begin(other, on_card(24_576))).kind is Kind.BOUND


async def test_a_pod_written_by_others_is_renewed_and_bound_at_its_new_version(w: World) -> None:
    task = await w.submit()

    async def touch() -> None:
        await w.touch((await w.pods())[0])

    w.operator.network.on("POST", "/binding", first(touch), times=3)
    assert (await w.operator.begin(task, on_card(1000))).kind is Kind.BOUND
    assert w.operator.network.count("POST", "/binding") == 4


async def test_a_pod_that_others_never_stop_writing_is_given_up(w: World) -> None:
    task = await w.submit()

    async def touch() -> None:
        await w.touch((await w.pods())[0])

    w.operator.network.on("POST", "/binding", first(touch), times=100)
    outcome = await w.operator.begin(task, on_card(1000))
    assert outcome.kind is Kind.BIND_REFUSED
    assert (await w.pods(), await w.entries()) == ([], {})


async def test_v34_a_bind_refused_by_a_policy_frees_everything_between_the_tries(w: World) -> None:
    task = await w.submit()
    w.operator.network.on("POST", "/binding", answer(403, "Forbidden", "denied by policy"))
    outcome = await w.operator.begin(task, on_card(1000))
    assert (outcome.kind, outcome.message) == (Kind.BIND_REFUSED, "denied by policy")
    assert (await w.pods(), await w.entries()) == ([], {})
    claim = claim_of(await w.task())
    assert claim is not None
    assert not claim.live


async def test_a_bind_that_was_refused_and_took_effect_all_the_same_is_bound(w: World) -> None:
    task = await w.submit()

    async def liar(request: object, send: object) -> object:
        await send()  # type: ignore[operator]
        return await answer(403, "Forbidden")(request, send)  # type: ignore[arg-type]

    w.operator.network.on("POST", "/binding", liar)
    assert (await w.operator.begin(task, on_card(1000))).kind is Kind.BOUND


async def test_the_bind_carries_the_stored_version_and_never_one_read_just_now(w: World) -> None:
    task = await w.submit()
    bodies: list[bytes] = []

    async def record(request: object, send: object) -> object:
        bodies.append(request.body)  # type: ignore[attr-defined]
        return await send()  # type: ignore[operator]

    w.operator.network.on("POST", "/binding", record, times=9)
    await w.operator.begin(task, on_card(1000))
    [(_, _, _, made)] = [c for c in w.cluster.store.history if c[2] == "Pod" and c[1] == "ADDED"]
    assert f'"resourceVersion":"{made["metadata"]["resourceVersion"]}"'.encode() in bodies[0]


async def test_a_finished_pod_is_ended_and_its_room_is_free(w: World) -> None:
    task = await w.submit()
    await w.operator.begin(task, on_card(24_576))
    await w.finish((await w.pods())[0])
    await w.operator.settle()
    stored = await w.task()
    assert (stored["status"]["phase"], stored["status"]["reservation"]["state"]) == ("Succeeded", "Ended")
    assert await w.entries() == {}
    assert (await w.operator.client.list(PODS, NAMESPACE)).items[0]["status"]["phase"] == "Succeeded"


async def test_what_the_api_server_added_to_the_pod_is_booked_too(w: World) -> None:
    task = await w.submit()
    sent = w.operator.writes.create_pod

    async def as_a_limit_range_would(manifest: Mapping[str, Any]) -> dict[str, Any]:
        spec = copy.deepcopy(dict(manifest["spec"]))
        spec["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
        return await sent({**manifest, "spec": spec})

    w.operator.writes.create_pod = as_a_limit_range_would
    outcome = await w.operator.begin(task, on_card(1000))
    assert outcome.kind is Kind.BOUND
    [entry] = (await w.entries()).values()
    assert entry["amounts"] == {"gpuMemoryMB/GPU-a": "1000", "cpu": "2"}


async def test_a_pod_that_has_run_is_left_to_whoever_records_its_end(w: World) -> None:
    """One with an old cache must not delete it: a pod that succeeded and is gone before that would run again."""
    old = await w.submit()
    await w.operator.begin(old, on_card(1000))
    [pod] = await w.pods()
    await w.finish(pod)
    outcome = await w.operator.begin(old, on_card(1000))
    assert outcome.kind is Kind.CLAIM_LOST
    assert [found["metadata"]["uid"] for found in await w.pods()] == [pod["metadata"]["uid"]]
