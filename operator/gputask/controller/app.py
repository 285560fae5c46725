"""The operator as a program: check the cluster, serve health and metrics, run until told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gputask.controller import garbage, health, preflight
from gputask.controller.election import Election, LeaderOnly, Lease, always, own_identity
from gputask.controller.engine import Elect, Engine
from gputask.controller.metrics import Counting, Metrics
from gputask.kube.client import Client
from gputask.kube.config import Connection
from gputask.kube.transport import HttpTransport, Transport
from gputask.kube.writes import Writes

log = logging.getLogger(__name__)

METRICS_PORT = 8080

SWITCH_SECONDS = 0.001
"""How long a thread may keep the interpreter (CPython: 5 ms): the event loop waits so long for the planner at each of
its steps, and a placement has dozens."""


class OperatorFailedError(Exception):
    """The operator stopped for a fault of its own. One line; the log has more."""


@asynccontextmanager
async def operating(
    connection: Connection,
    *,
    host: str = "0.0.0.0",
    port: int = METRICS_PORT,
    lease: Lease | None = None,
    max_waiting: int | None = None,
) -> AsyncIterator[Engine]:
    """An operator that runs as long as the context is open; should it fail, the body is cancelled.

    :param lease: act only while we hold it; None acts at once, which is right for a single replica.
    :param max_waiting: so many tasks may wait; None is no limit.
    :raises Unreachable: no API server answers.
    :raises ClusterUnusableError: it answers, but cannot be used; one line.
    :raises OSError: the port is taken.
    :raises OperatorFailedError: it stopped by itself.
    """
    metrics = Metrics()
    transport: Transport = Counting(HttpTransport(connection), metrics)
    async with Client(connection, transport=transport) as client:
        await preflight.check(client)
        elect: Elect = always
        stands_by: Callable[[], bool] = bool
        if lease is not None:
            election = Election(client, Writes(client), lease, identity=own_identity())
            client = Client(connection, transport=LeaderOnly(transport, lambda: election.leading))
            elect, stands_by = election.run, lambda: not election.leading
        engine = Engine(client, metrics=metrics, max_waiting=max_waiting)
        app = health.application(
            healthy=lambda: None,  # that the event loop answers is all there is to say
            ready=lambda: None if engine.synced.is_set() or (engine.warm.is_set() and stands_by()) else "not synced",
            registry=metrics.registry,
        )
        async with health.serving(app, host=host, port=port), _running(engine, elect):
            yield engine


async def run(
    connection: Connection,
    *,
    host: str = "0.0.0.0",
    port: int = METRICS_PORT,
    lease: Lease | None = None,
    max_waiting: int | None = None,
) -> None:
    """Operate until SIGTERM or SIGINT; the rest as in :func:`operating`.

    :raises OperatorFailedError: it stopped by itself.
    """
    garbage.calm()
    sys.setswitchinterval(SWITCH_SECONDS)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with operating(connection, host=host, port=port, lease=lease, max_waiting=max_waiting) as engine:
        log.info("metrics and health at %s:%s", host, port)
        await engine.warm.wait()
        garbage.settle()
        log.info("synced")
        await stop.wait()


@asynccontextmanager
async def _running(engine: Engine, elect: Elect) -> AsyncIterator[None]:
    """The engine runs as long as the context is open; if it ends before, the body is cancelled."""
    body = asyncio.current_task()
    assert body is not None
    running = asyncio.create_task(engine.run(elect), name="engine")
    running.add_done_callback(lambda task: None if task.cancelled() else body.cancel())
    try:
        yield
    except asyncio.CancelledError:
        if not running.done():
            raise
        body.uncancel()
        error = running.exception()
        log.error("the operator failed", exc_info=error)
        raise OperatorFailedError(f"stopped by a fault of its own: {error!r}") from error
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
