"""Stops pods that are bound and do not start in time (``startTimeoutSeconds``): their room is given back.

First the status says so, then the pod is deleted. A kill between the two is no harm: the pod is still late for whoever
comes next. The other way round the end would be recorded as somebody else's doing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from gputask.api.conditions import ReadyReason, TaskCondition
from gputask.api.times import rfc3339
from gputask.controller.conditions import Condition, merged
from gputask.controller.events import Events
from gputask.controller.metrics import Metrics
from gputask.controller.queue import TaskQueue
from gputask.controller.store import Store
from gputask.controller.workqueue import WorkQueue
from gputask.kube.errors import NotFound
from gputask.kube.writes import Writes
from gputask.ledger.claims import claim_of
from gputask.ledger.entries import Entry, State
from gputask.ledger.nodes import NodeLedgers
from gputask.ledger.pods import Manifest, is_terminating, version_of


class StartTimeouts:
    """One timer for each pod that is bound and does not run yet. ``now`` is seconds since the epoch."""

    def __init__(
        self,
        *,
        store: Store,
        queue: TaskQueue,
        ledgers: NodeLedgers,
        writes: Writes,
        events: Events,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._tasks = queue
        self._ledgers = ledgers
        self._writes = writes
        self._events = events
        self._now = now
        self._work = WorkQueue("startup", self._stop, metrics=metrics, workers=2)
        self._timers: dict[str, float] = {}
        """By pod UID: the end that its timer was set for."""

    async def run(self) -> None:
        """Stop until cancelled."""
        await self._work.run()

    def look(self, uid: str) -> None:
        """A pod of this task may have been bound, or may have started; never waits."""
        late = self._starting(uid)
        if late is None:
            return
        entry, due = late
        if self._timers.get(entry.pod_uid) != due:
            self._timers[entry.pod_uid] = due
            self._work.add_later(uid, max(0.0, due - self._now()))

    def _starting(self, uid: str) -> tuple[Entry, float] | None:
        """The entry of the task's pod that is bound and has not started, and when that is too late."""
        task, known = self._store.tasks.get(uid), self._tasks.known.get(uid)
        claim = claim_of(task) if task is not None else None
        if claim is None or known is None or known.reading.terms is None:
            return None
        entry = next((e for e in self._ledgers.entries_of(uid) if e.pod_uid == claim.pod_uid), None)
        pod = self._store.pods.get(claim.pod_uid)
        starts = pod is not None and (pod.get("status") or {}).get("phase") == "Pending" and not is_terminating(pod)
        if not starts or entry is None or entry.state is not State.BOUND or entry.start_time is None:
            self._timers.pop(claim.pod_uid, None)
            return None
        return entry, entry.start_time + known.reading.terms.start_timeout_seconds

    async def _stop(self, uid: str) -> None:
        """:raises KubeError: to be tried again."""
        late = self._starting(uid)
        if late is None:
            return
        entry, due = late
        if due > self._now():  # another attempt by now, or a timer that rang a little early
            self._work.add_later(uid, due - self._now())
            return
        assert entry.start_time is not None
        text = f"not running {due - entry.start_time:g} s after its bind to {entry.node} (startTimeoutSeconds)"
        task = self._store.tasks[uid]
        await self._say(task, text)
        self._events.emit(task, ReadyReason.START_TIMEOUT.value, text, warning=True)
        pod = self._store.pods.get(entry.pod_uid)
        if pod is None:
            return
        with suppress(NotFound):  # a Conflict, as it was written meanwhile, is tried again: it may have started
            await self._writes.delete_pod(
                entry.namespace, entry.pod, uid=entry.pod_uid, resource_version=version_of(pod)
            )

    async def _say(self, task: Manifest, text: str) -> None:
        metadata, current = task["metadata"], (task.get("status") or {}).get("conditions") or ()
        late = Condition(TaskCondition.READY, False, ReadyReason.START_TIMEOUT, text)
        conditions = merged(current, [late], now=rfc3339(int(self._now())))
        reply = await self._writes.task_status(
            metadata["namespace"],
            metadata["name"],
            {"conditions": conditions},
            resource_version=metadata["resourceVersion"],
        )
        self._store.put_task(reply)
