"""The clock of simulated nodes: real time, or faster."""

from __future__ import annotations

import asyncio
import time


class Clock:
    """Seconds of simulated time, ``speed`` of them in one of real time."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed

    def now(self) -> float:
        """Monotonic; only differences mean something."""
        return time.monotonic() * self.speed

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        """Until the event is set, or until a time of this clock."""
        seconds = None if until is None else max(until - self.now(), 0.0) / self.speed
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return
