"""One async client: reads, writes and watches of one API server over one connection pool.

Only :mod:`gputask.kube.writes` calls the writing methods. None of them repeats a write: whether a repeat is right
depends on the protocol, not on HTTP. (aiohttp itself may send a PUT or DELETE again when a kept connection turns out
to be closed; all of ours carry preconditions, so that a repeat has no second effect.)
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from gputask.kube.config import Connection
from gputask.kube.errors import OutcomeUnknown, Unreachable, api_error
from gputask.kube.resources import MERGE_PATCH, PODS, Resource
from gputask.kube.slim import slim
from gputask.kube.transport import HttpTransport, Request, Transport, refusal

Object = dict[str, Any]
"""An object of the API as JSON: plain dicts, lists, strings, numbers."""

WRITE_SECONDS = 30.0
PAGE = 500
"""Objects in one part of a list: some milliseconds to decode."""
WATCH_SECONDS = 270.0
"""How long one watch request lasts before it is opened again; each gets up to 10 % more, so that they spread."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A consistent list and the resourceVersion to watch from."""

    items: list[Object]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """``type`` is ADDED, MODIFIED, DELETED or BOOKMARK (then only metadata.resourceVersion counts)."""

    type: str
    object: Object


class Client:
    """Typed by :class:`Resource`, not by kind: objects stay dicts.

    Every method raises the three families of :mod:`gputask.kube.errors` and nothing else.
    """

    def __init__(self, connection: Connection, *, transport: Transport | None = None) -> None:
        self.connection = connection
        self._transport: Transport = transport or HttpTransport(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    # --- reads ---

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """The object as stored now: a quorum read, never a cache.

        :raises NotFound: there is none.
        """
        return await self._read(Request("GET", resource.path(namespace=namespace, name=name), {}))

    async def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        """All objects as stored now. Never with resourceVersion=0, which may answer from an old cache (line 18)."""
        items, version = [], ""
        async for page in self.pages(resource, namespace, label_selector=label_selector, field_selector=field_selector):
            items += page.items
            version = page.resource_version
        return Listing(items, version)

    async def pages(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        """The same list in parts, all of one version: the decoding of a large one would block the event loop.

        :raises Gone: it took so long that its rest is not kept any more; start again.
        """
        path, params = resource.path(namespace=namespace), _selectors(label_selector, field_selector)
        more = ""
        while True:
            page = {"limit": str(PAGE)} | ({"continue": more} if more else {})
            body = await self._read(Request("GET", path, params | page))
            items: list[Object] = body.get("items") or []
            for item in items:  # a list leaves these out of its items
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
                slim(item)
            yield Listing(items, body["metadata"]["resourceVersion"])
            more = body["metadata"].get("continue") or ""
            if not more:
                return

    async def get_path(self, path: str) -> Object:
        """A path that belongs to no resource: ``/version``, discovery, ``/readyz`` as JSON."""
        return await self._read(Request("GET", path, {}))

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[WatchEvent]:
        """Changes after ``resource_version`` until the server ends the watch, which it does every few minutes.

        :raises Gone: the version is too old, said as a status or as an event (B99).
        """
        seconds = WATCH_SECONDS * random.uniform(1.0, 1.1)
        params = _selectors(label_selector, field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(seconds)),
        }
        request = Request("GET", resource.path(namespace=namespace), params, timeout=seconds + 15)
        try:
            async for line in self._transport.stream(request):
                if line.strip():
                    event = msgspec.json.decode(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise api_error(int(status.get("code") or 500), status, fallback="the watch failed")
                    yield WatchEvent(event["type"], slim(event["object"]))
        except (aiohttp.ClientError, TimeoutError, ConnectionError, msgspec.DecodeError) as error:
            raise Unreachable(_says(request, error)) from error

    # --- writes: called by kube/writes.py only ---

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None) -> Object:
        """:raises AlreadyExists: the name is taken."""
        return await self._write("POST", resource.path(namespace=namespace), body)

    async def replace(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """PUT, under ``body.metadata.resourceVersion``.

        :raises Conflict: another version is stored.
        """
        return await self._write("PUT", resource.path(namespace=namespace, name=name, subresource=subresource), body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
    ) -> Object:
        """PATCH. A ``metadata.resourceVersion`` or ``metadata.uid`` in a merge patch is a precondition.

        :raises Conflict: a precondition failed.
        """
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self._write("PATCH", path, body, content_type=content_type)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> Object:
        """DELETE, with preconditions.

        :raises NotFound: it is gone already.
        :raises Conflict: another UID or version is stored.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if any(preconditions.values()):
            options["preconditions"] = {key: value for key, value in preconditions.items() if value is not None}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return await self._write("DELETE", resource.path(namespace=namespace, name=name), options)

    async def bind(self, namespace: str, pod: str, node: str, *, uid: str, resource_version: str) -> None:
        """Binding of a pod to a node, under the pod's UID and resourceVersion (protocol line 6).

        :raises Conflict: a precondition failed, the pod is bound already or is being deleted.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace, "uid": uid, "resourceVersion": resource_version},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._write("POST", PODS.path(namespace=namespace, name=pod, subresource="binding"), body)

    async def evict(self, namespace: str, pod: str, *, uid: str, resource_version: str) -> None:
        """Eviction of the pod of this UID at this version, with its own grace.

        :raises NotFound: it is gone.
        :raises Conflict: another pod has its name, or it was written meanwhile.
        :raises TooManyRequests: a disruption budget allows no more now; ``details`` has the cause.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid, "resourceVersion": resource_version}},
        }
        await self._write("POST", PODS.path(namespace=namespace, name=pod, subresource="eviction"), body)

    # --- one request ---

    async def _read(self, request: Request) -> Object:
        try:
            response = await self._transport.send(request)
            if response.status >= 400:
                raise refusal(request, response)
            return slim(msgspec.json.decode(response.body))
        except (aiohttp.ClientError, TimeoutError, ConnectionError, msgspec.DecodeError) as error:
            raise Unreachable(_says(request, error)) from error

    async def _write(self, method: str, path: str, body: Any, *, content_type: str = "application/json") -> Object:
        request = Request(method, path, {}, msgspec.json.encode(body), content_type, WRITE_SECONDS)
        try:
            response = await self._transport.send(request)
            if response.status >= 500:
                # A 5xx does not say whether etcd has it: "request timed out" is one of them (v26).
                raise OutcomeUnknown(f"{method} {path}: {refusal(request, response).message}")
            if response.status >= 400:
                raise refusal(request, response)
            return slim(msgspec.json.decode(response.body))
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(_says(request, error)) from error
        except (aiohttp.ClientError, TimeoutError, ConnectionError, msgspec.DecodeError) as error:
            raise OutcomeUnknown(_says(request, error)) from error


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    params = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in params.items() if value}


def _says(request: Request, error: Exception) -> str:
    return f"{request.method} {request.path}: {error or type(error).__name__}"
