"""Many things of one kind, some at once, without keeping the event loop from everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def for_each(items: Iterable[T], handle: Callable[[T], Awaitable[None]], *, at_once: int) -> None:
    """``handle`` each item, at most so many beside each other; also one that never waits lets others run in between.

    The first error ends it: what is in work is cancelled, the rest is not begun.
    """
    left = iter(items)

    async def work() -> None:
        for item in left:
            await handle(item)
            await asyncio.sleep(0)

    workers = [asyncio.create_task(work()) for _ in range(at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
