"""Two admissions at the same instant, judged from what the server stored."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from gputask.kube.resources import GPUTASKS
from gputask.kube.transport import Request, Response
from gputask.ledger.outcome import Kind
from support.protocol import NAMESPACE, Effect, World, on_card, world

pytestmark = pytest.mark.asyncio

ROUNDS = 200


def booked_megabytes(w: World) -> set[int]:
    """Every sum that was ever stored for the card."""
    sums = set()
    for _, _, kind, gpunode in w.cluster.store.history:
        if kind == "GpuNode":
            entries = (gpunode.get("status") or {}).get("reservations") or {}
            sums.add(sum(int(entry["amounts"]["gpuMemoryMB/GPU-a"]) for entry in entries.values()))
    return sums


def jitter(rng: random.Random) -> Effect:
    """A network that is never twice equally fast."""

    async def effect(_request: Request, send: Callable[[], Any]) -> Response:
        for _ in range(rng.randrange(30)):
            await asyncio.sleep(0)
        response: Response = await send()
        return response

    return effect


@pytest.mark.parametrize("operators", [1, 2])
async def test_v24_b11_of_two_at_one_instant_exactly_one_is_reserved(operators: int) -> None:
    rng = random.Random(24)
    async with world() as w:
        two = [w.operator, w.operator if operators == 1 else await w.another()]
        for operator in two:
            operator.network.on("", "/", jitter(rng), times=1_000_000)
        for number in range(ROUNDS):
            tasks = [await w.submit(f"a{number}"), await w.submit(f"b{number}")]
            rng.shuffle(two)
            pairs = zip(two, tasks, (16_384, 12_288), strict=True)
            outcomes = await asyncio.gather(*(one.begin(task, on_card(size)) for one, task, size in pairs))
            assert sorted(outcome.kind for outcome in outcomes) == [Kind.BOUND, Kind.NO_ROOM]
            lost = next(outcome for outcome in outcomes if outcome.kind is Kind.NO_ROOM)
            assert "gpuMemoryMB/GPU-a on n1" in lost.message
            [pod] = [pod for pod in await w.pods() if pod["status"]["phase"] == "Pending"]
            await w.finish(pod)
            await w.operator.observe()
            await w.operator.recovery.sweep(pod["metadata"]["ownerReferences"][0]["uid"])
            for task in tasks:
                await w.operator.client.delete(GPUTASKS, task["metadata"]["name"], NAMESPACE)
        assert booked_megabytes(w) == {0, 16_384, 12_288}


async def test_v30_sixteen_at_once_on_one_card_of_24000_leave_two_on_it() -> None:
    async with world(memory=24_000) as w:
        tasks = [await w.submit(f"t{i}") for i in range(16)]
        outcomes = await asyncio.gather(*(w.operator.begin(task, on_card(12_000)) for task in tasks))
        assert sorted(o.kind for o in outcomes) == [Kind.BOUND] * 2 + [Kind.NO_ROOM] * 14
        assert max(booked_megabytes(w)) == 24_000


async def test_one_task_decided_by_two_operators_for_two_nodes_runs_once() -> None:
    async with world(nodes=2) as w:
        other = await w.another()
        for number in range(50):
            task = await w.submit(f"t{number}")
            outcomes = await asyncio.gather(
                w.operator.begin(task, on_card(100, "n1")), other.begin(task, on_card(100, "n2"))
            )
            await w.operator.observe()
            await w.operator.recovery.sweep(task["metadata"]["uid"])
            kinds = sorted(outcome.kind for outcome in outcomes)
            owned = [
                pod
                for pod in await w.pods()
                if pod["metadata"]["ownerReferences"][0]["uid"] == task["metadata"]["uid"]
                and pod["spec"].get("nodeName")
            ]
            assert len(owned) <= 1
            assert (Kind.BOUND in kinds) == (len(owned) == 1)
