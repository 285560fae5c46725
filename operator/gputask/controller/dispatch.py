"""From a change in the store to everybody who must look again: the snapshot, statuses, sweeps and GpuNodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from gputask.controller.backoff import Backoff
from gputask.controller.snapshot import Snapshots
from gputask.controller.store import Dirty

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
    ) -> None:
        self._dirty = dirty
        self._snapshots = snapshots
        self._backoff = backoff
        self._on_task = tuple(on_task)
        self._on_node = tuple(on_node)
        self.changed = asyncio.Event()

    async def run(self) -> None:
        """Dispatch until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._dirty.wake.wait(), self._backoff.next_end())
            await self.settle()

    async def settle(self) -> None:
        """Work in all that is known now: afterwards the snapshot is as new as the store."""
        for uid in self._backoff.due():
            self._dirty.mark(task=uid)
        while self._dirty.wake.is_set():
            self._settle_some(*self._dirty.take(CHUNK))
            await asyncio.sleep(0)

    def _settle_some(self, tasks: list[str], nodes: list[str]) -> None:
        if self._snapshots.refresh(tasks, nodes):
            self.changed.set()
        for uid in tasks:
            for look in self._on_task:
                look(uid)
        for name in nodes:
            for look in self._on_node:
                look(name)
