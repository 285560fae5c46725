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

CHUNK = 50
"""So many changes are worked in before the event loop gets its turn; a new task of many variants takes longest."""


class Dispatch:
    """``changed`` is set when the planner would see something else than before.

    The snapshot comes first, always. Everybody else is told by :meth:`tell`, which runs only while we act.
    """

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
        self._untold = Dirty()
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
            tasks, nodes = self._dirty.take(CHUNK)
            for uid in tasks:
                self._refresh(uid, self._snapshots.queue.refresh, self._snapshots.queue.forget)
                self._untold.mark(task=uid)
            for name in nodes:
                self._refresh(name, self._snapshots.refresh_node, self._snapshots.forget_node)
                self._untold.mark(node=name)
            await asyncio.sleep(0)

    async def tell(self) -> None:
        """Tell the others of what was worked in, until cancelled. What changes meanwhile waits for the next time."""
        while True:
            await self._untold.wake.wait()
            tasks, nodes = self._untold.take(CHUNK)
            for uid in tasks:
                self._tell(uid, self._on_task)
            for name in nodes:
                self._tell(name, self._on_node)
            await asyncio.sleep(0)

    def _refresh(self, key: str, refresh: Callable[[str], bool], forget: Callable[[str], None]) -> None:
        try:
            if refresh(key):
                self.changed.set()
        except Exception:  # one bad object never stops the others (R10); nothing is decided on what it was before
            self._fault(key)
            forget(key)

    def _tell(self, key: str, others: Iterable[Callable[[str], None]]) -> None:
        try:
            for look in others:
                look(key)
        except Exception:  # the same
            self._fault(key)

    def _fault(self, key: str) -> None:
        log.exception("%s cannot be worked in", key)
        self._metrics.errors.labels("dispatch").inc()
