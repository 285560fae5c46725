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
from gputask.local.fit import requests_of
from gputask.local.link import Link
from gputask.local.runs import (
    End,
    Run,
    end_before_start,
    ended_status,
    next_end,
    refused_status,
    restarts,
    running_status,
    start_delay,
    waiting_status,
)

Object = dict[str, Any]

logger = logging.getLogger(__name__)

STRATEGIC = "application/strategic-merge-patch+json"
FINISHED = ("Succeeded", "Failed")
RETRY_SECONDS = 1.0


class PodWorker:
    """Runs one pod to its end. ``on_start`` is told the pod as its containers start with it.

    link: its kubelet's way to the API; what is said while it is cut arrives later.
    """

    def __init__(
        self, pod: Object, client: Client, clock: Clock, link: Link, *, on_start: Callable[[Object], None]
    ) -> None:
        self.pod = pod
        self.task: asyncio.Task[None] | None = None
        self.ended = False
        """Nothing of the pod runs any more, whether the API knows or not."""
        self.requests = requests_of(pod)
        self._api = client
        self._clock = clock
        self._link = link
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
        self.ended = True
        if self.task is not None:
            self.task.cancel()

    async def refuse(self, reason: str, message: str) -> None:
        """The pod is not admitted: it never runs."""
        self.ended = True
        await self._finish(await self._report(refused_status(reason, message)))

    async def run(self) -> None:
        """Starts the containers, waits for their end, again as often as the restart policy says, and reports it."""
        admitted = self._clock.now()
        early = await self._start(admitted)
        if early is not None:
            self.ended = True
            run = Run(admitted, admitted)
            await self._finish(await self._report(ended_status(self.pod, timestamp(), run, early)))
            return
        run = Run(pod_started=admitted, started=self._clock.now())
        self._on_start(self.pod)
        alive = await self._report(running_status(self.pod, timestamp(), run))
        while alive:
            end = await self._end(run)
            if not restarts(self.pod, end, self._stopping):
                self.ended = True
                alive = await self._report(ended_status(self.pod, timestamp(), run, end))
                break
            run = Run(run.pod_started, self._clock.now(), run.restarts + 1)
            alive = await self._report(running_status(self.pod, timestamp(), run, end))
        await self._finish(alive)

    async def _start(self, admitted: float) -> End | None:
        """Until the containers can start; the end of a pod that ends before."""
        delay = start_delay(self.pod)
        if delay == 0.0:
            return None
        reason = "ImagePullBackOff" if delay is None else "ContainerCreating"
        await self._report(waiting_status(self.pod, timestamp(), reason))
        starts = None if delay is None else admitted + delay
        while True:
            self._changed.clear()
            end = end_before_start(self.pod, admitted, self._stopping)
            if end is not None and end.at <= self._clock.now():
                return end
            if starts is not None and starts <= self._clock.now():
                return None
            times = [time for time in (starts, end.at if end else None) if time is not None]
            await self._clock.wait(self._changed, min(times, default=None))

    async def _finish(self, alive: bool) -> None:
        """A pod that is being deleted goes; ``alive``: the API still has it."""
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
        await self._link.whole()
        return await repeated(
            lambda: self._api.patch(
                PODS, meta["name"], body, meta["namespace"], subresource="status", content_type=STRATEGIC
            )
        )

    async def _remove(self) -> None:
        """The last word on a deleted pod: now nothing of it runs."""
        meta = self.pod["metadata"]
        await self._link.whole()
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
