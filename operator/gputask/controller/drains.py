"""Empties namespaces whose queue is drained: each running pod of ours there is evicted, as budgets allow.

Level-triggered: a pod that an operator evicted and did not live to see go is terminating for the next one.
"""

from __future__ import annotations

from contextlib import suppress

from gputask.api.names import QueueMode
from gputask.controller.metrics import Metrics
from gputask.controller.store import Store
from gputask.controller.workqueue import WorkQueue
from gputask.kube.errors import NotFound
from gputask.kube.writes import Writes
from gputask.ledger.claims import claim_of
from gputask.ledger.pods import is_terminal, is_terminating, version_of


class Drains:
    """A refusal (429, 500) is tried again by the work queue, with growing pauses."""

    def __init__(self, *, store: Store, writes: Writes, metrics: Metrics) -> None:
        self._store = store
        self._writes = writes
        self._metrics = metrics
        self._work = WorkQueue("drain", self._evict, metrics=metrics, workers=2)

    async def run(self) -> None:
        """Drain until cancelled."""
        await self._work.run()

    def look(self, uid: str) -> None:
        """This task, or the queue of its namespace, changed; never waits."""
        task = self._store.tasks.get(uid)
        namespace = task["metadata"].get("namespace") if task is not None else None
        if self._store.queue_modes.get(namespace or "") == QueueMode.HOLD_AND_DRAIN:
            self._work.add(uid)

    async def _evict(self, uid: str) -> None:
        """:raises KubeError: to be tried again."""
        task = self._store.tasks.get(uid)
        claim = claim_of(task) if task is not None else None
        pod = self._store.pods.get(claim.pod_uid) if claim is not None else None
        if task is None or claim is None or pod is None or is_terminating(pod) or is_terminal(pod):
            return
        namespace = task["metadata"]["namespace"]
        bound = pod["spec"].get("nodeName")
        if bound and self._store.queue_modes.get(namespace) == QueueMode.HOLD_AND_DRAIN:
            with suppress(NotFound):  # a Conflict, as it was written meanwhile, is tried again
                await self._writes.evict(namespace, claim.pod, uid=claim.pod_uid, resource_version=version_of(pod))
                self._metrics.evictions.labels("accepted").inc()
