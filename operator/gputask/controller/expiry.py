"""Deletes finished tasks ``ttlSecondsAfterFinished`` after their end, as the TTL controller of Jobs does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from gputask.api.times import epoch
from gputask.controller.metrics import Metrics
from gputask.controller.store import Store
from gputask.controller.workqueue import WorkQueue
from gputask.kube.errors import NotFound
from gputask.kube.writes import Writes
from gputask.ledger.claims import ClaimState, claim_of
from gputask.ledger.pods import Manifest, uid_of


class Expiry:
    """One timer for each finished task that has a time to live. ``now`` is seconds since the epoch."""

    def __init__(self, *, store: Store, writes: Writes, now: Callable[[], float], metrics: Metrics) -> None:
        self._store = store
        self._writes = writes
        self._now = now
        self._queue = WorkQueue("expiry", self._expire, metrics=metrics, workers=2)
        self._timers: dict[str, float] = {}
        """By task UID: the end that its timer was set for."""

    def look(self, uid: str) -> None:
        """This task may have ended, or may have another time to live now; never waits."""
        task = self._store.task(uid)
        due = _due(task) if task is not None else None
        if due is None:
            self._timers.pop(uid, None)
        elif self._timers.get(uid) != due:
            self._timers[uid] = due
            self._queue.add_later(uid, max(0.0, due - self._now()))

    async def run(self) -> None:
        """Delete until cancelled."""
        await self._queue.run()

    async def _expire(self, uid: str) -> None:
        task = self._store.task(uid)
        due = _due(task) if task is not None else None
        if task is None or due is None:
            return
        if due > self._now():  # it lives longer by now; a timer on the other clock may also ring a little early
            self._queue.add_later(uid, due - self._now())
            return
        metadata = task["metadata"]
        with suppress(NotFound):  # a Conflict goes to the work queue, which tries again with what the store has then
            await self._writes.delete_task(
                metadata["namespace"], metadata["name"], uid=uid_of(task), resource_version=metadata["resourceVersion"]
            )


def _due(task: Manifest) -> float | None:
    """When a task is to be deleted; None if it has not ended, or stays."""
    ttl, finished = task["spec"].get("ttlSecondsAfterFinished"), (task.get("status") or {}).get("finishTime")
    if ttl is None or not finished or task["metadata"].get("deletionTimestamp"):
        return None
    claim = claim_of(task)
    if claim is not None and claim.state is ClaimState.QUARANTINED:
        return None  # an expired lease: to delete it says that its devices are free, which a clock cannot know
    try:
        return epoch(finished) + float(ttl)
    except ValueError:
        return None  # written by somebody else
