"""One pod on a simulated node, from the start of its containers to the last word about it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from gputask.kube.client import Client
from gputask.kube.errors import Conflict, KubeError, NotFound
from gputask.kube.resources import PODS
from gputask.local.clock import Clock
from gputask.local.runs import End, Run, ended_status, next_end, restarts, running_status

Object = dict[str, Any]

logger = logging.getLogger(__name__)

STRATEGIC = "application/strategic-merge-patch+json"
FINISHED = ("Succeeded", "Failed")
RETRY_SECONDS = 1.0


class PodWorker:
    """Runs one pod to its end. ``on_start`` is told the pod as its containers start with it."""

    def __init__(self, pod: Object, client: Client, clock: Clock, *, on_start: Callable[[Object], None]) -> None:
        self.pod = pod
        self.task: asyncio.Task[None] | None = None
        self._api = client
        self._clock = clock
        self._on_start = on_start
        self._changed = asyncio.Event()
        self._stopping: float | None = None
        self.see(pod)

    def see(self, pod: Object) -> None:
        """A newer state of the pod."""
        self.pod = pod
        if self._stopping is None and pod["metadata"].get("deletionTimestamp"):
            self._stopping = self._clock.now()
        self._changed.set()

    def cancel(self) -> None:
        """The pod or its node is gone."""
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Starts the containers, waits for their end, again as often as the restart policy says, and reports it."""
        now = self._clock.now()
        run = Run(pod_started=now, started=now)
        self._on_start(self.pod)
        alive = await self._report(running_status(self.pod, timestamp(), run))
        while alive:
            end = await self._end(run)
            if not restarts(self.pod, end, self._stopping):
                alive = await self._report(ended_status(self.pod, timestamp(), run, end))
                break
            run = Run(run.pod_started, self._clock.now(), run.restarts + 1)
            alive = await self._report(running_status(self.pod, timestamp(), run, end))
        if alive and self._stopping is not None:
            await self._remove()

    async def _end(self, run: Run) -> End:
        while True:
            self._changed.clear()
            end = next_end(self.pod, run, self._stopping)
            if end is not None and end.at <= self._clock.now():
                return end
            await self._clock.wait(self._changed, end.at if end else None)

    async def _report(self, status: Object) -> bool:
        meta = self.pod["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        return await repeated(
            lambda: self._api.patch(
                PODS, meta["name"], body, meta["namespace"], subresource="status", content_type=STRATEGIC
            )
        )

    async def _remove(self) -> None:
        """The last word on a deleted pod: now nothing of it runs."""
        meta = self.pod["metadata"]
        await repeated(
            lambda: self._api.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"], grace_seconds=0)
        )


async def repeated(request: Callable[[], Coroutine[Any, Any, Object]]) -> bool:
    """Repeats a write until it is answered. False if its object is gone or is another one by now.

    The writes of kubelets say the same again when repeated, so a lost answer does no harm.
    """
    while True:
        try:
            await request()
        except (NotFound, Conflict):
            return False
        except KubeError as error:
            logger.warning("simulated kubelet: %s", error)
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return True


def timestamp() -> str:
    """The present as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
