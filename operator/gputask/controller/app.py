"""The operator as a program: check the cluster, serve health and metrics, run until told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from gputask.controller import health, preflight
from gputask.controller.engine import Engine
from gputask.kube.client import Client
from gputask.kube.config import Connection

log = logging.getLogger(__name__)

METRICS_PORT = 8080


@asynccontextmanager
async def operating(
    connection: Connection, *, host: str = "0.0.0.0", port: int = METRICS_PORT
) -> AsyncIterator[Engine]:
    """An operator that runs as long as the context is open.

    :raises Unreachable: no API server answers.
    :raises ClusterUnusableError: it answers, but cannot be used; one line.
    :raises OSError: the port is taken.
    """
    async with Client(connection) as client:
        await preflight.check(client)
        engine = Engine(client)
        running = asyncio.create_task(engine.run(), name="engine")
        app = health.application(
            healthy=lambda: "the operator has stopped" if running.done() else None,
            ready=lambda: None if engine.synced.is_set() and not running.done() else "not synced",
            registry=engine.metrics.registry,
        )
        try:
            async with health.serving(app, host=host, port=port):
                yield engine
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def run(connection: Connection, *, host: str = "0.0.0.0", port: int = METRICS_PORT) -> None:
    """Operate until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with operating(connection, host=host, port=port) as engine:
        log.info("metrics and health at %s:%s", host, port)
        await engine.synced.wait()
        log.info("synced")
        await stop.wait()
