"""List, then watch; b99: 410 as a status and as an event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from gputask.kube.client import Client
from gputask.kube.errors import api_error
from gputask.kube.informer import Informer
from gputask.kube.resources import PODS
from gputask.kube.transport import HttpTransport, Request, Response
from gputask.local.cluster import LocalCluster
from support.local import eventually, node, pod

pytestmark = pytest.mark.asyncio


class Watches:
    """A transport whose watches can be cut, or answered with 410 in either form."""

    def __init__(self, inner: HttpTransport) -> None:
        self._inner = inner
        self.requests: list[Request] = []
        self.gone: list[str] = []
        self.cut = asyncio.Event()

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        return await self._inner.send(request)

    async def stream(self, request: Request) -> AsyncIterator[bytes]:
        self.requests.append(request)
        form = self.gone.pop(0) if self.gone else ""
        if form == "status":
            raise api_error(410, {"reason": "Expired"}, fallback="too old")
        if form == "event":
            yield b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}'
            return
        lines = aiter(self._inner.stream(request))
        while True:
            line = asyncio.ensure_future(anext(lines))
            cut = asyncio.ensure_future(self.cut.wait())
            done, _ = await asyncio.wait({line, cut}, return_when=asyncio.FIRST_COMPLETED)
            cut.cancel()
            if line not in done:
                line.cancel()
                with suppress(asyncio.CancelledError):
                    await line
                return
            yield line.result()

    async def close(self) -> None:
        await self._inner.close()


class Seen:
    """What the callbacks were told."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []

    def note(self, what: str) -> Callable[..., None]:
        return lambda *objects: self.log.append((what, objects[-1]["metadata"]["name"]))


@asynccontextmanager
async def watching() -> AsyncIterator[tuple[Client, Watches, Informer, Seen]]:
    async with LocalCluster(nodes=[node("n1", simulated=False)]) as cluster:
        transport, seen = Watches(HttpTransport(cluster.connection)), Seen()
        async with Client(cluster.connection, transport=transport) as client:
            informer = Informer(
                client,
                PODS,
                on_add=seen.note("add"),
                on_update=seen.note("update"),
                on_delete=seen.note("delete"),
            )
            running = asyncio.create_task(informer.run())
            yield client, transport, informer, seen
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def watches(transport: Watches) -> list[Request]:
    return [request for request in transport.requests if request.params.get("watch")]


async def test_what_was_there_and_what_comes_is_told_once_each() -> None:
    async with watching() as (client, _, informer, seen):
        await informer.synced.wait()
        await client.create(PODS, pod("a"), "default")
        await eventually(lambda: ("add", "a") in seen.log)
        await client.patch(PODS, "a", {"metadata": {"labels": {"x": "y"}}}, "default")
        await client.delete(PODS, "a", "default", grace_seconds=0)
        await eventually(lambda: ("delete", "a") in seen.log)
        assert [what for what, _ in seen.log] == ["add", "update", "delete"]
        assert dict(informer.objects) == {}


async def test_a_watch_that_breaks_goes_on_where_it_was() -> None:
    async with watching() as (client, transport, informer, seen):
        await informer.synced.wait()
        await client.create(PODS, pod("a"), "default")
        await eventually(lambda: seen.log == [("add", "a")])
        transport.cut.set()
        await client.create(PODS, pod("b"), "default")
        transport.cut = asyncio.Event()
        await eventually(lambda: ("add", "b") in seen.log)
        assert seen.log == [("add", "a"), ("add", "b")]
        lists = [r for r in transport.requests if r.method == "GET" and not r.params.get("watch")]
        assert len(lists) == 1
        assert all(request.params.get("resourceVersion") != "0" for request in transport.requests)


async def test_b99_after_410_in_both_forms_all_changes_are_seen_and_nothing_spins() -> None:
    async with watching() as (client, transport, informer, seen):
        await informer.synced.wait()
        await client.create(PODS, pod("old"), "default")
        await eventually(lambda: seen.log == [("add", "old")])
        transport.gone = ["status", "event"]
        before = len(transport.requests)
        await eventually(lambda: bool(watches(transport)))
        transport.cut.set()  # while it is away:
        for name in ("a", "b", "c"):
            await client.create(PODS, pod(name), "default")
        await client.delete(PODS, "old", "default", grace_seconds=0)
        transport.cut = asyncio.Event()
        await eventually(lambda: {("add", "a"), ("add", "b"), ("add", "c"), ("delete", "old")} <= set(seen.log))
        ours = 4
        assert len(transport.requests) - before - ours <= 5
        assert len(seen.log) == 5


async def test_a_server_that_says_410_for_ever_is_asked_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float, *_: Any) -> None:
        pauses.append(seconds)
        await real(0)

    async with watching() as (_, transport, informer, _seen):
        await informer.synced.wait()
        monkeypatch.setattr("gputask.kube.informer.asyncio.sleep", sleep)
        transport.gone = ["status", "event"] * 6
        transport.cut.set()
        transport.cut = asyncio.Event()
        await eventually(lambda: not transport.gone)
        monkeypatch.undo()
    waits = [seconds for seconds in pauses if seconds >= 0.2]
    assert waits[0] == 0.2
    assert max(waits) == 30.0
    assert waits == sorted(waits)
