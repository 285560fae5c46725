"""The API on a loopback socket (aiohttp)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from gputask.local.api import Api, Reply
from gputask.local.requests import Request

HOST = "127.0.0.1"
STOP_SECONDS = 1.0
"""How long requests may still be answered when the server stops."""
Fault = Callable[[Request, Callable[[], Reply]], Awaitable[Reply | None]]
"""Stands between the socket and the API in tests: may delay, refuse, or return None to cut the connection, before or
after it calls the API."""


class Server:
    """Serves one Api over HTTP.

    port: 0 lets the system choose. fault: see :data:`Fault`.
    """

    def __init__(self, api: Api, *, port: int = 0, fault: Fault | None = None) -> None:
        self.fault = fault
        self._api = api
        self._port = port
        self._runner = web.ServerRunner(web.Server(self._serve, access_log=None), shutdown_timeout=STOP_SECONDS)
        self.url = ""

    async def start(self) -> None:
        """Listens. Raises: OSError if the port is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, self._port, backlog=1024)
        await site.start()
        self.url = f"http://{HOST}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Ends all watches, then closes."""
        self._api.close()
        await self._runner.cleanup()

    async def _serve(self, incoming: web.BaseRequest) -> web.StreamResponse:
        request = Request(
            incoming.method,
            incoming.path,
            dict(incoming.query),
            await incoming.read(),
            incoming.headers.get("Content-Type", "application/json"),
            incoming.headers.get("Accept", "application/json"),
        )
        if self.fault is None:
            reply: Reply | None = self._api.handle(request)
        else:
            reply = await self.fault(request, lambda: self._api.handle(request))
        if reply is None:
            if incoming.transport is not None:
                incoming.transport.abort()
            raise asyncio.CancelledError
        headers = {"Content-Type": reply.content_type}
        if reply.warnings:
            headers["Warning"] = ", ".join(f'299 - "{_quoted(text)}"' for text in reply.warnings)
        if reply.retry_after:
            headers["Retry-After"] = str(reply.retry_after)
        if reply.stream is None:
            return web.Response(status=reply.status, body=reply.body, headers=headers)
        response = web.StreamResponse(status=reply.status, headers=headers)
        try:
            await response.prepare(incoming)
            async for piece in reply.stream:
                if piece:
                    await response.write(piece)
            await response.write_eof()
        except ConnectionError:
            # The client went away; nothing is left to tell it.
            return response
        return response


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
