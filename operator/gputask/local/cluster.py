"""The embedded cluster as one thing: API server, controllers, simulated nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from gputask.kube import client as kube
from gputask.kube import transport as wire
from gputask.kube.config import Connection
from gputask.kube.errors import api_error
from gputask.local.api import Api
from gputask.local.clock import Clock
from gputask.local.controllers import Controllers
from gputask.local.kubelet import Kubelets
from gputask.local.requests import Request
from gputask.local.server import Fault, Server
from gputask.local.statuses import StatusError
from gputask.local.store import Store, decode, encode
from gputask.local.watching import Pace

Object = dict[str, Any]

NAMESPACES = ("default", "kube-system", "kube-public")
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class LocalCluster:
    """An async context manager: inside it the server answers and simulated nodes run their pods.

    nodes: manifests to create at the start. crds: to install; the product's own if None. history: keep every version
    in ``store.history``. port: 0 lets the system choose. speed: simulated seconds in a real one, for the nodes; clock:
    theirs altogether, in place of a speed. window: changes of a resource that a watch can go back. bookmark_seconds:
    pause between bookmarks. fault: stands between socket and API in tests.
    """

    def __init__(
        self,
        *,
        nodes: Iterable[Mapping[str, Any]] = (),
        crds: Iterable[Mapping[str, Any]] | None = None,
        history: bool = False,
        port: int = 0,
        speed: float = 1.0,
        clock: Clock | None = None,
        window: int = 10_000,
        bookmark_seconds: float = 10.0,
        fault: Fault | None = None,
    ) -> None:
        self.store = Store(history=history, window=window)
        self.api = Api(self.store, pace=Pace(bookmark_seconds=bookmark_seconds))
        self.server = Server(self.api, port=port, fault=fault)
        self._nodes = list(nodes)
        self._crds = crds
        self._client = kube.Client(Connection("in-process"), transport=InProcess(self.api))
        self._kubelets = Kubelets(self._client, clock=clock or Clock(speed))
        self.api.log = self._kubelets.log
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Raises: OSError if the port is taken; StatusError if a node or CRD is refused."""
        Controllers(self.api.objects)
        for name in NAMESPACES:
            self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name, value in _SYSTEM_CLASSES.items():
            head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            self.create({**head, "value": value})
        for crd in self._crds if self._crds is not None else _own_crds():
            self.create(crd)
        for node in self._nodes:
            self.create(node)
        await self.server.start()
        self._running = asyncio.create_task(self._kubelets.run())
        await self._kubelets.synced()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        await self.server.stop()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def connection(self) -> Connection:
        """For :class:`gputask.kube.client.Client`."""
        return Connection(self.url)

    def create(self, manifest: Mapping[str, Any]) -> Object:
        """Creates any object as a request would, in this process. Raises: StatusError."""
        found = self.api.kinds.of_kind(str(manifest.get("apiVersion")), str(manifest.get("kind")))
        if found is None:
            what = f"{manifest.get('apiVersion')} {manifest.get('kind')}"
            raise StatusError(404, "NotFound", f'no matches for kind "{manifest.get("kind")}" ({what})')
        place = f"apis/{found.api_version}" if found.group else f"api/{found.version}"
        if found.namespaced:
            place += f"/namespaces/{(manifest.get('metadata') or {}).get('namespace') or 'default'}"
        query = {"fieldValidation": "Strict"}
        reply = self.api.handle(Request("POST", f"/{place}/{found.plural}", query, encode(manifest)))
        body: Object = decode(reply.body)
        if reply.status >= 400:
            raise StatusError(body["code"], body.get("reason", ""), body["message"], body.get("details"))
        return body

    def kubeconfig(self) -> str:
        """The text of a kubeconfig for this cluster."""
        name = "gputask-local"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
            "current-context": name,
        }
        return yaml.safe_dump(config, sort_keys=False)

    def write_kubeconfig(self, path: Path) -> Path:
        """Raises: OSError."""
        path.write_text(self.kubeconfig())
        return path


class InProcess:
    """Carries requests of our own client to an Api in this process: the same path through it, without a socket."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def send(self, request: wire.Request) -> wire.Response:
        reply = self._api.handle(_request(request))
        # As over a socket, the answer comes in a later step of the event loop.
        await asyncio.sleep(0)
        return wire.Response(reply.status, reply.body)

    async def stream(self, request: wire.Request) -> AsyncIterator[bytes]:
        reply = self._api.handle(_request(request))
        if reply.stream is None:
            raise api_error(reply.status, decode(reply.body), fallback="the watch was refused")
        async for piece in reply.stream:
            for line in piece.splitlines():
                yield line

    async def close(self) -> None:
        return


def _request(request: wire.Request) -> Request:
    return Request(request.method, request.path, request.params, request.body or b"", request.content_type)


def _own_crds() -> list[Object]:
    from gputask.api.crds import generate

    return generate()
