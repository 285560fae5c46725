"""Writes statuses that differ from what they should say: changes of state at once, other texts at a bounded rate.

With thousands of tasks waiting, one start changes the reasons of all of them. Those texts wait in a line of their
own, are composed when their turn comes, and a task that changed three times meanwhile is written once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gputask.controller import status
from gputask.controller.metrics import Metrics
from gputask.controller.status import View
from gputask.controller.store import Store
from gputask.controller.workqueue import WorkQueue
from gputask.kube.errors import Conflict, NotFound
from gputask.kube.writes import Writes

TEXTS_PER_SECOND = 20.0
"""Writes a second that bring only another reason or message for the same state."""

CONFLICT_SECONDS = 0.05


class Statuses:
    """``view`` composes what is known of a task; None if it is gone or if its status is being written by another."""

    def __init__(
        self,
        *,
        store: Store,
        writes: Writes,
        view: Callable[[str], View | None],
        timestamp: Callable[[], str],
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._writes = writes
        self._view = view
        self._timestamp = timestamp
        self._states = WorkQueue("status", self._write, metrics=metrics)
        self._texts = WorkQueue("status", self._write, metrics=metrics, workers=1, pause=1.0 / TEXTS_PER_SECOND)

    def look(self, uid: str) -> None:
        """This task may have to say something else now; never waits."""
        view = self._view(uid)
        change = status.patch(view, now=self._timestamp()) if view is not None else {}
        if view is not None and change:
            urgent = status.is_urgent(view.task.get("status") or {}, change)
            (self._states if urgent else self._texts).add(uid)

    async def run(self) -> None:
        """Write until cancelled."""
        await asyncio.gather(self._states.run(), self._texts.run())

    async def _write(self, uid: str) -> None:
        view = self._view(uid)
        change = status.patch(view, now=self._timestamp()) if view is not None else {}
        if view is None or not change:
            return
        metadata = view.task["metadata"]
        try:
            reply = await self._writes.task_status(
                metadata["namespace"], metadata["name"], change, resource_version=metadata["resourceVersion"]
            )
        except NotFound:
            self._store.drop_task(view.task)  # its DELETED is on the way, or got lost in a gap of the watch
        except Conflict:
            # Composed from an older version, so it may be wrong by now. The newer version is on its way here.
            self._states.add_later(uid, CONFLICT_SECONDS)
        else:
            self._store.put_task(reply)
