"""A kubelet's way to the API server, which tests can cut."""

from __future__ import annotations

import asyncio

from gputask.local.clock import Clock


class Link:
    """Whole until it is cut, and whole again after it was mended."""

    def __init__(self) -> None:
        self._whole = asyncio.Event()
        self._cut = asyncio.Event()
        self._whole.set()

    @property
    def is_cut(self) -> bool:
        return self._cut.is_set()

    def cut(self) -> None:
        self._whole.clear()
        self._cut.set()

    def mend(self) -> None:
        self._cut.clear()
        self._whole.set()

    async def whole(self) -> None:
        """Until something can be said over it."""
        await self._whole.wait()

    async def still_cut(self, clock: Clock, seconds: float) -> None:
        """Until it is mended, at most so many seconds of a clock."""
        until = clock.now() + seconds
        while self.is_cut and clock.now() < until:
            await clock.wait(self._whole, until)
