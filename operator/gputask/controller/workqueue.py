"""Keys to look at, each by one worker at a time: the level-triggered half of the controller.

A key that comes again while it is in work is worked on once more afterwards; one that comes ten times before its turn
is worked on once. A failure is tried again after a pause that grows, for that key only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gputask.controller.metrics import Metrics
from gputask.kube.errors import KubeError

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0


class WorkQueue:
    """``handle`` looks at one key and makes right what is not. ``pause`` (seconds) after each key bounds the rate."""

    def __init__(
        self,
        name: str,
        handle: Callable[[str], Awaitable[None]],
        *,
        metrics: Metrics,
        workers: int = 8,
        pause: float = 0.0,
    ) -> None:
        self._name = name
        self._handle = handle
        self._metrics = metrics
        self._workers = workers
        self._pause = pause
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}

    def add(self, key: str) -> None:
        """Never waits."""
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)

    def add_later(self, key: str, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self.add, key)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._queued.discard(key)
            self._working.add(key)
            try:
                await self._handle(key)
                self._failures.pop(key, None)
            except KubeError as error:
                log.warning("%s %s: %s", self._name, key, error)
                self._retry(key)
            except Exception:  # one bad object never stops the others (R10)
                log.exception("%s %s failed", self._name, key)
                self._metrics.errors.labels(self._name).inc()
                self._retry(key)
            finally:
                self._working.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            await asyncio.sleep(self._pause)

    def _retry(self, key: str) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.add_later(key, min(FIRST_PAUSE * 2.0 ** (failures - 1), LONGEST_PAUSE))
