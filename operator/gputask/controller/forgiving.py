"""A session for Kopf in which no answer to a list or watch of ours ends it.

Kopf goes on after a watch event that says 410, after a few 5xx, and after a broken connection. Any other refusal of a
watch or list ends all its watches for good: 410 as a status (B99), 404 while a CRD is replaced, an event that says 500.
What would end them is turned here into what makes Kopf list anew, after a pause that grows as long as it goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
from aiohttp.client_middlewares import ClientHandlerType

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0

_OWN_WAY = (401, 403, 429)
"""After these Kopf tries again by itself: with new credentials, or later."""

_EXPIRED = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}\n'
)


class Backoffs:
    """Pauses between the tries of one request: growing, and without end. Kopf asks for them anew for each request."""

    def __iter__(self) -> Iterator[float]:
        pause = 1.0
        while True:
            yield pause
            pause = min(pause * 2, LONGEST_PAUSE)


class Forgiving:
    """An aiohttp middleware. ``plurals`` are the resources whose lists and watches it concerns."""

    def __init__(
        self, *plurals: str, clock: Callable[[], float], sleep: Callable[[float], Any] = asyncio.sleep
    ) -> None:
        self._plurals = plurals
        self._clock = clock
        self._sleep = sleep
        self._failures: defaultdict[str, int] = defaultdict(int)
        self._failed: dict[str, float] = {}

    async def __call__(self, request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
        response = await handler(request)
        path = request.url.path
        if request.method != "GET" or path.rpartition("/")[2] not in self._plurals:
            return response
        watches = "watch" in request.url.query
        if 400 <= response.status < 500 and response.status not in _OWN_WAY:
            log.warning("%s of %s: %s", "watch" if watches else "list", path, (await response.text())[:200])
            if not watches:
                response.status = 503  # which is tried again
                return response
            response.status = 200
            response.content = _Instead(response.content, self._anew(path))  # type: ignore[assignment]
        elif watches and response.status == 200:
            response.content = _Instead(response.content, self._checked(path, response.content))  # type: ignore[assignment]
        return response

    async def _anew(self, path: str) -> AsyncIterator[bytes]:
        await self._pause(path)
        yield _EXPIRED

    async def _checked(self, path: str, content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
        """The stream as it is, but that whatever error is in it says 410."""
        start = True
        async for data in content.iter_chunked(2**20):
            # A server writes each event at once, so an error begins a chunk; text of an object never begins a line so.
            lines = data.splitlines(keepends=True) if b'"ERROR"' in data else [data]
            for line in lines:
                if (start or line is not lines[0]) and line.startswith(b'{"type":"ERROR"'):
                    log.warning("watch of %s: %s", path, line[:200].decode(errors="replace"))
                    await self._pause(path)
                    yield _EXPIRED
                    return
                yield line
            start = data.endswith(b"\n")

    async def _pause(self, path: str) -> None:
        now = self._clock()
        if now - self._failed.get(path, now) > 2 * LONGEST_PAUSE:
            self._failures.pop(path, None)  # it has lived since
        pause = min(FIRST_PAUSE * 2.0 ** self._failures[path], LONGEST_PAUSE)
        self._failures[path] += 1
        await self._sleep(pause)
        self._failed[path] = self._clock()


class _Instead:
    """The content of a response, of which Kopf reads these pieces instead."""

    def __init__(self, content: aiohttp.StreamReader, pieces: AsyncIterator[bytes]) -> None:
        self._content = content
        self._pieces = pieces

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)  # aiohttp closes it, and notes in it why

    def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        return self._pieces
