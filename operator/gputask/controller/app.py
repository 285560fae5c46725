"""The operator as a program: check the cluster, serve health and metrics, run until told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gputask.controller import health, preflight
from gputask.controller.engine import Engine
from gputask.controller.metrics import Counting, Metrics
from gputask.kube.client import Client, HttpTransport
from gputask.kube.config import Connection

log = logging.getLogger(__name__)

METRICS_PORT = 8080


class OperatorFailedError(Exception):
    """The operator stopped for a fault of its own. One line; the log has more."""


@asynccontextmanager
async def operating(
    connection: Connection, *, host: str = "0.0.0.0", port: int = METRICS_PORT
) -> AsyncIterator[Engine]:
    """An operator that runs as long as the context is open; should it fail, the body is cancelled.

    :raises Unreachable: no API server answers.
    :raises ClusterUnusableError: it answers, but cannot be used; one line.
    :raises OSError: the port is taken.
    :raises ExceptionGroup: what the operator failed of.
    """
    metrics = Metrics()
    async with Client(connection, transport=Counting(HttpTransport(connection), metrics)) as client:
        await preflight.check(client)
        engine = Engine(client, metrics=metrics)
        app = health.application(
            healthy=lambda: None,  # that the event loop answers is all there is to say
            ready=lambda: None if engine.synced.is_set() else "not synced",
            registry=metrics.registry,
        )
        async with health.serving(app, host=host, port=port), asyncio.TaskGroup() as group:
            running = group.create_task(engine.run(), name="engine")
            try:
                yield engine
            finally:
                running.cancel()


async def run(connection: Connection, *, host: str = "0.0.0.0", port: int = METRICS_PORT) -> None:
    """Operate until SIGTERM or SIGINT.

    :raises OperatorFailedError: it stopped by itself.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with operating(connection, host=host, port=port) as engine:
            log.info("metrics and health at %s:%s", host, port)
            await engine.synced.wait()
            log.info("synced")
            await stop.wait()
    except ExceptionGroup as group:
        log.error("the operator failed", exc_info=group)
        raise OperatorFailedError(f"stopped by a fault of its own: {group.exceptions[0]!r}") from group
