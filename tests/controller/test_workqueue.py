"""Keys worked on one at a time, coalesced, and tried again after failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from gputask.controller.metrics import Metrics
from gputask.controller.workqueue import WorkQueue
from gputask.kube.errors import Unreachable
from support.local import eventually


@asynccontextmanager
async def running(handle: Callable[[str], Awaitable[None]], *, workers: int = 4) -> AsyncIterator[WorkQueue]:
    queue = WorkQueue("test", handle, metrics=Metrics(), workers=workers)
    task = asyncio.create_task(queue.run())
    yield queue
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_key_that_comes_many_times_before_its_turn_is_worked_on_once() -> None:
    seen: list[str] = []

    async def handle(key: str) -> None:
        seen.append(key)

    async with running(handle) as queue:
        for _ in range(10):
            queue.add("a")
        queue.add("b")
        await eventually(lambda: "b" in seen)
    assert sorted(seen) == ["a", "b"]


async def test_a_key_that_comes_again_while_in_work_is_worked_on_once_more_and_never_twice_at_once() -> None:
    gate = asyncio.Event()
    in_work = most = done = 0

    async def handle(_: str) -> None:
        nonlocal in_work, most, done
        in_work += 1
        most = max(most, in_work)
        await gate.wait()
        in_work -= 1
        done += 1

    async with running(handle) as queue:
        queue.add("a")
        await eventually(lambda: in_work)
        queue.add("a")
        queue.add("a")
        gate.set()
        await eventually(lambda: done == 2)
    assert (most, done) == (1, 2)


async def test_one_failing_key_is_tried_again_and_stops_no_other() -> None:
    tries: list[str] = []
    finished = asyncio.Event()

    async def handle(key: str) -> None:
        tries.append(key)
        if tries == ["bad"]:
            raise Unreachable("no answer")
        if key == "odd" and tries.count("odd") == 1:
            raise ValueError("a fault of ours")
        if tries.count("bad") == 2 and tries.count("odd") == 2 and "good" in tries:
            finished.set()

    async with running(handle, workers=1) as queue, asyncio.timeout(10):
        for key in ("bad", "odd", "good"):
            queue.add(key)
        await finished.wait()
