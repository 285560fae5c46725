"""How requests are carried: one interface, and aiohttp behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import msgspec

from gputask.kube.config import Connection
from gputask.kube.errors import ApiError, api_error

READ_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, as a transport sends it. ``body`` is JSON text, ``params`` the query."""

    method: str
    path: str
    params: Mapping[str, str]
    body: bytes | None = None
    content_type: str = "application/json"
    timeout: float = READ_SECONDS


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes


class Transport(Protocol):
    """Carries requests to one server. Tests wrap it to lose, delay and repeat messages."""

    async def send(self, request: Request) -> Response:
        """The answer, whatever its status. Failures are those of aiohttp, or TimeoutError."""

    def stream(self, request: Request) -> AsyncIterator[bytes]:
        """The lines of a streamed answer.

        :raises ApiError: when the server refuses the stream.
        """

    async def close(self) -> None: ...


class HttpTransport:
    """The real transport: one aiohttp session, made at the first request so that it belongs to the running loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> Response:
        async with self._open(request, aiohttp.ClientTimeout(total=request.timeout, sock_connect=10)) as response:
            return Response(response.status, await response.read())

    async def stream(self, request: Request) -> AsyncIterator[bytes]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=request.timeout)
        async with self._open(request, timeout) as response:
            if response.status >= 400:
                raise refusal(request, Response(response.status, await response.read()))
            # Not readline(): a GpuTask of 722 KB is one line, and the reader's line limit is lower.
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self, request: Request, timeout: aiohttp.ClientTimeout) -> Any:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=100, ssl=self._connection.ssl or True),
                headers={"Accept": "application/json", "User-Agent": "gputask", **self._connection.headers},
            )
        headers = {"Content-Type": request.content_type} if request.body is not None else {}
        authorization = self._connection.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        return self._session.request(
            request.method,
            self._connection.server + request.path,
            params=request.params,
            data=request.body,
            headers=headers,
            timeout=timeout,
        )


def refusal(request: Request, response: Response) -> ApiError:
    """The error that an answer of 400 or more stands for."""
    text = response.body.decode(errors="replace")
    try:
        body = msgspec.json.decode(response.body)
    except msgspec.DecodeError:
        body = None
    fallback = f"{request.method} {request.path}: HTTP {response.status} {text[:200].strip()}"
    return api_error(response.status, body if isinstance(body, dict) else None, fallback=fallback)
