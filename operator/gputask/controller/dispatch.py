"""From a change in the store to everybody who must look again: the snapshot, statuses, sweeps and GpuNodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from gputask.controller.backoff import Backoff
from gputask.controller.metrics import Metrics
from gputask.controller.snapshot import Snapshots
from gputask.controller.store import Dirty

log = logging.getLogger(__name__)

CHUNK = 100
"""So many changes are worked in before the event loop gets its turn; a new task of many variants takes longest."""


class Dispatch:
    """``changed`` is set when the planner would see something else than before."""

    def __init__(
        self,
        *,
        dirty: Dirty,
        snapshots: Snapshots,
        backoff: Backoff,
        on_task: Iterable[Callable[[str], None]],
        on_node: Iterable[Callable[[str], None]],
        metrics: Metrics,
    ) -> None:
        self._dirty = dirty
        self._snapshots = snapshots
        self._backoff = backoff
        self._on_task = tuple(on_task)
        self._on_node = tuple(on_node)
        self._metrics = metrics
        self.changed = asyncio.Event()

    async def run(self) -> None:
        """Dispatch until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._backoff.next_end()):
                    await self._dirty.wake.wait()
            await self.settle()

    async def settle(self) -> None:
        """Work in all that is known now: afterwards the snapshot is as new as the store."""
        for uid in self._backoff.due():
            self._dirty.mark(task=uid)
        while self._dirty.wake.is_set():
            self._settle_some(*self._dirty.take(CHUNK))
            await asyncio.sleep(0)

    def _settle_some(self, tasks: list[str], nodes: list[str]) -> None:
        for uid in tasks:
            self._look(uid, self._snapshots.queue.refresh, self._on_task, self._snapshots.queue.forget)
        for name in nodes:
            self._look(name, self._snapshots.refresh_node, self._on_node, self._snapshots.forget_node)

    def _look(
        self,
        key: str,
        refresh: Callable[[str], bool],
        others: Iterable[Callable[[str], None]],
        forget: Callable[[str], None],
    ) -> None:
        try:
            if refresh(key):
                self.changed.set()
            for look in others:
                look(key)
        except Exception:  # one bad object never stops the others (R10); nothing is decided on what it was before
            log.exception("%s cannot be worked in", key)
            self._metrics.errors.labels("dispatch").inc()
            forget(key)
