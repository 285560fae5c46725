"""Kopf watches GpuTasks and nodes for us.

Only ``on.event`` handlers: Kopf then needs no finalizer, writes no annotation and keeps no state in the objects. Kopf
runs in a thread with an event loop of its own, for two reasons: it costs half a millisecond for each event, and when
it ends it cancels every task of its loop that it did not start before.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import kopf

from gputask.api import names
from gputask.controller.forgiving import Backoffs, Forgiving
from gputask.controller.lists import Lists, Taken
from gputask.kube.client import PAGE
from gputask.kube.config import Connection
from gputask.kube.informer import SLICE
from gputask.kube.resources import GPUTASKS, NODES
from gputask.kube.slim import slim
from gputask.ledger.pods import Manifest

LEAVE_SECONDS = 10.0
"""So long Kopf may take to stop. If it is stuck in a fault of its own, we end without it."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Takes in the objects of one resource."""

    put: Callable[[Manifest], None]
    drop: Callable[[Manifest], None]
    on_list: Callable[[], None]
    """Called after each list: the first one, and those after gaps in the watch."""
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when all have been put that were there when the watch began."""

    async def take(self, page: list[Manifest], is_last: bool) -> None:
        for number, manifest in enumerate(page, 1):
            self.put(manifest)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        if is_last:
            self.listed.set()
            self.on_list()

    def change(self, kind: str | None, manifest: Manifest) -> None:
        (self.drop if kind == "DELETED" else self.put)(manifest)


class KopfWatch:
    """Runs Kopf; fills the sinks, in the loop in which :meth:`run` was awaited."""

    def __init__(self, connection: Connection, *, tasks: Sink, nodes: Sink) -> None:
        self._connection = connection
        self._tasks = tasks
        self._nodes = nodes
        self._stop = threading.Event()

    async def run(self) -> None:
        """Watch until cancelled.

        :raises Exception: whatever ended Kopf other than our own stop.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def serve() -> None:
            error: BaseException | None = None
            try:
                asyncio.run(self._operator(loop))
            except BaseException as caught:
                error = caught
            loop.call_soon_threadsafe(_end, ended, error)

        thread = threading.Thread(target=serve, name="kopf", daemon=True)
        thread.start()
        try:
            await asyncio.shield(ended)
        finally:
            self._stop.set()
            await asyncio.to_thread(thread.join, LEAVE_SECONDS)

    async def _operator(self, loop: asyncio.AbstractEventLoop) -> None:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False  # Events are ours, and aggregated
        settings.networking.error_backoffs = Backoffs()  # else Kopf ends after 54 s of 5xx
        settings.watching.chunk_size = PAGE
        settings.process.ultimate_exiting_timeout = None  # it would kill the whole process, which is not its own
        await kopf.operator(
            registry=self._registry(loop),
            settings=settings,
            standalone=True,
            clusterwide=True,
            stop_flag=self._stop,
        )

    def _registry(self, loop: asyncio.AbstractEventLoop) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        def pages_to(sink: Sink) -> Taken:
            async def take(page: list[Manifest], is_last: bool) -> None:
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(sink.take(page, is_last), loop))

            return take

        def event_to(sink: Sink, event: kopf.RawEvent) -> None:
            loop.call_soon_threadsafe(sink.change, event["type"], slim(cast(dict[str, Any], event["object"])))

        lists = Lists({GPUTASKS: pages_to(self._tasks), NODES: pages_to(self._nodes)})

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return _session(self._connection, lists)

        @kopf.on.event(names.GROUP, names.VERSION, names.GPUTASK_PLURAL, registry=registry)
        async def task_changed(event: kopf.RawEvent, **_: Any) -> None:
            event_to(self._tasks, event)

        @kopf.on.event("", "v1", "nodes", registry=registry)
        async def node_changed(event: kopf.RawEvent, **_: Any) -> None:
            event_to(self._nodes, event)

        return registry


def _session(connection: Connection, lists: Lists) -> kopf.AiohttpSession:
    """Kopf's own session under our credentials; after a 401 Kopf asks again, and a renewed token is read then."""
    authorization = connection.authorization()
    headers = {**connection.headers, **({"Authorization": authorization} if authorization else {})}
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=connection.ssl or True),
        headers=headers,
        middlewares=(Forgiving(names.GPUTASK_PLURAL, NODES.plural, clock=time.monotonic),),
        response_class=lists.response_class(),
    )
    lists.session = session
    return kopf.AiohttpSession(server=connection.server, aiohttp_session=session)


def _end(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.cancelled():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
