"""Kopf watches GpuTasks and nodes for us, and its startup and cleanup start and stop the rest of the operator.

Only ``on.event`` handlers: Kopf then needs no finalizer, writes no annotation and keeps no state in the objects. Kopf
runs in a thread with an event loop of its own, for two reasons: it costs half a millisecond for each event, and when
it ends it cancels every task of its loop that it did not start before.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import kopf

from gputask.api import names
from gputask.controller.forgiving import Backoffs, Forgiving
from gputask.kube.config import Connection
from gputask.kube.resources import NODES
from gputask.ledger.pods import Manifest

LEAVE_SECONDS = 10.0
"""So long Kopf may take to stop. If it is stuck in a fault of its own, we end without it."""

Changed = Callable[[str | None, Manifest], None]
"""Gets the type of an event (None for an object found when the watch began) and the object."""


class KopfWatch:
    """Runs Kopf; calls ``on_task`` and ``on_node`` in the loop in which :meth:`run` was awaited.

    ``started`` is set by Kopf's startup; :meth:`run` returns after its cleanup.
    """

    def __init__(self, connection: Connection, *, on_task: Changed, on_node: Changed) -> None:
        self._connection = connection
        self._on_task = on_task
        self._on_node = on_node
        self._stop = threading.Event()
        self.started = asyncio.Event()

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

        @kopf.on.startup(registry=registry)
        async def started(**_: Any) -> None:
            loop.call_soon_threadsafe(self.started.set)

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return _session(self._connection)

        @kopf.on.event(names.GROUP, names.VERSION, names.GPUTASK_PLURAL, registry=registry)
        async def task_changed(event: kopf.RawEvent, **_: Any) -> None:
            loop.call_soon_threadsafe(self._on_task, event["type"], event["object"])

        @kopf.on.event("", "v1", "nodes", registry=registry)
        async def node_changed(event: kopf.RawEvent, **_: Any) -> None:
            loop.call_soon_threadsafe(self._on_node, event["type"], event["object"])

        return registry


def _session(connection: Connection) -> kopf.AiohttpSession:
    """Kopf's own session under our credentials; after a 401 Kopf asks again, and a renewed token is read then."""
    authorization = connection.authorization()
    headers = {**connection.headers, **({"Authorization": authorization} if authorization else {})}
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=connection.ssl or True),
        headers=headers,
        middlewares=(Forgiving(names.GPUTASK_PLURAL, NODES.plural, clock=time.monotonic),),
    )
    return kopf.AiohttpSession(server=connection.server, aiohttp_session=session)


def _end(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.cancelled():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
