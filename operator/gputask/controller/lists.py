"""The first lists of what Kopf watches are read here, and Kopf itself only learns from which version on to watch.

For each object of a list Kopf starts a task with a queue and keeps a memory for good: half a millisecond and many
kilobytes each, and all of it before we hear of the last one. What it shows us of them is the list itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from gputask.kube.client import PAGE
from gputask.kube.resources import Resource
from gputask.kube.slim import slim
from gputask.ledger.pods import Manifest

Taken = Callable[[list[Manifest], bool], Awaitable[None]]
"""Gets one page of a list, and whether it is the last one; the next page is read when it is through."""


class Lists:
    """Makes the answers in a session of Kopf's: lists of these resources go page by page to whom they are for."""

    def __init__(self, takers: Mapping[Resource, Taken]) -> None:
        self._takers = {resource.path(): (resource, taken) for resource, taken in takers.items()}
        self.session: aiohttp.ClientSession | None = None

    def response_class(self) -> type[aiohttp.ClientResponse]:
        """For the session of Kopf; ``session`` is to be set to it."""
        lists = self

        class Response(aiohttp.ClientResponse):
            async def json(self, **options: Any) -> Any:  # only Kopf's lists are read so; its watches are streams
                for path, (resource, taken) in lists._takers.items():
                    if self.status == 200 and self.url.path.endswith(path):
                        return await lists._read(self, resource, taken)
                return await super().json(**options)

        return Response

    async def _read(self, first: aiohttp.ClientResponse, resource: Resource, taken: Taken) -> Any:
        """The whole list, and in its place an empty one of the same version.

        :raises aiohttp.ClientPayloadError: to Kopf the connection broke; it begins again.
        """
        body = _decoded(await first.read())
        while True:
            for item in body["items"] or ():
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
                slim(item)
            more = body["metadata"].get("continue")
            await taken(body["items"] or [], not more)
            if not more:
                return {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "items": []}
            body = await self._page(first.url, more)

    async def _page(self, url: URL, more: str) -> Any:
        assert self.session is not None
        query = {"limit": str(PAGE), "continue": more}
        async with self.session.get(url.update_query(query)) as answer:
            if answer.status != 200:  # 410: the list took so long that its rest is not kept any more
                raise aiohttp.ClientPayloadError(f"HTTP {answer.status} to the rest of a list")
            return _decoded(await answer.read())


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise aiohttp.ClientPayloadError(str(error)) from error
