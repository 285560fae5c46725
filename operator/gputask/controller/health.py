"""The HTTP endpoint of the operator: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

Check = Callable[[], str | None]
"""None if all is well, else one line that says what is not."""


def application(*, healthy: Check, ready: Check, registry: CollectorRegistry) -> web.Application:
    """``/healthz`` and ``/readyz`` answer 200 ``ok``, or 503 and what is wrong; ``/metrics`` in Prometheus' text."""
    app = web.Application()
    app.router.add_get("/healthz", _checker(healthy))
    app.router.add_get("/readyz", _checker(ready))

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app.router.add_get("/metrics", metrics)
    return app


@asynccontextmanager
async def serving(app: web.Application, *, host: str, port: int) -> AsyncIterator[int]:
    """Serve while the context is open; gives the port (of interest when 0 asked the system to choose one).

    :raises OSError: the port is taken or not allowed.
    """
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _checker(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_request: web.Request) -> web.Response:
        problem = check()
        return web.Response(text="ok" if problem is None else problem, status=200 if problem is None else 503)

    return answer
