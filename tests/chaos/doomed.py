"""The operator as a program that dies by SIGKILL at a named point: run as ``python doomed.py KUBECONFIG POINT WHEN N``.

``POINT`` is a request by what it means, ``WHEN`` is ``before`` it is sent or ``after`` its answer came in (nothing of
which the program has seen), ``N`` counts them. Nothing else of the operator is changed, unless the environment names a
``MUTATION`` of the protocol.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from gputask.controller import app
from gputask.kube.config import connect
from gputask.kube.errors import Conflict
from gputask.kube.resources import GPUNODES, PODS
from gputask.kube.transport import HttpTransport, Request, Response, Transport
from gputask.kube.writes import Writes
from gputask.ledger import recovery
from gputask.ledger.claims import Claims, Won
from gputask.ledger.classify import Action, Found
from gputask.ledger.pods import Place, is_terminating
from gputask.ledger.release import Look, PodRef, Releaser

POINTS = (
    "create", "claim", "reserve", "bind", "confirm", "keep-room", "evict", "release", "end", "delete", "fence",
)  # fmt: skip
"""Every kind of write of the protocol."""


class Reader:
    """Says what a write means. A ledger's PUT is compared with the version that came in or went out before it."""

    def __init__(self) -> None:
        self._ledgers: dict[str, dict[str, Any]] = {}

    def points(self, request: Request) -> set[str]:
        path, body = request.path, msgspec.json.decode(request.body) if request.body else {}
        match request.method:
            case "POST" if path.endswith("/binding"):
                return {"bind"}
            case "POST" if path.endswith("/eviction"):
                return {"evict"}
            case "POST" if path.endswith("/pods"):
                return {"create"}
            case "DELETE" if "/pods/" in path:
                return {"delete"}
            case "PATCH" if "/pods/" in path:
                return {"fence"}
            case "PATCH" if "/gputasks/" in path:
                state = ((body.get("status") or {}).get("reservation") or {}).get("state")
                return {"claim" if state == "Claimed" else "end"} if state else set()
            case "PUT" if "/gpunodes/" in path:
                return self._changes(body)
        return set()

    def _changes(self, gpunode: dict[str, Any]) -> set[str]:
        before, after = self._ledgers.get(gpunode["metadata"]["name"], {}), gpunode.get("status") or {}
        old, new = before.get("reservations") or {}, after.get("reservations") or {}
        found = set()
        if new.keys() - old.keys():
            found.add("reserve")
        if old.keys() - new.keys():
            found.add("release")
        if any(old[uid]["state"] != new[uid]["state"] for uid in old.keys() & new.keys()):
            found.add("confirm")
        if (after.get("holds") or {}).keys() - (before.get("holds") or {}).keys():
            found.add("keep-room")
        return found

    def saw(self, request: Request, response: Response) -> None:
        """What the server says of the ledgers."""
        if "/gpunodes" not in request.path or response.status >= 400:
            return
        body = msgspec.json.decode(response.body)
        for gpunode in body.get("items", [body]):
            self._ledgers[gpunode["metadata"]["name"]] = gpunode.get("status") or {}


class Doomed:
    """A transport with which the process dies."""

    def __init__(self, transport: Transport, point: str, when: str, number: int) -> None:
        self._transport = transport
        self._point, self._when, self._left = point, when, number
        self._reader = Reader()

    async def send(self, request: Request) -> Response:
        dies = self._point in self._reader.points(request) and self._counts()
        if dies and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        response = await self._transport.send(request)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        self._reader.saw(request, response)
        return response

    def _counts(self) -> bool:
        self._left -= 1
        return self._left == 0

    def stream(self, request: Request) -> AsyncIterator[bytes]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


# --- the protocol with one part of it removed -----------------------------------------------------------


def without_version_check() -> None:
    """A ledger that was written by somebody else meanwhile is overwritten."""
    put = Writes.put_ledger

    async def overwrite(self: Writes, gpunode: Any) -> Any:
        while True:
            try:
                return await put(self, gpunode)
            except Conflict:
                live = await self._client.get(GPUNODES, gpunode["metadata"]["name"])
                gpunode = {**gpunode, "metadata": live["metadata"]}

    Writes.put_ledger = overwrite  # type: ignore[method-assign]


def without_fence() -> None:
    """Nothing makes a bind old that is on its way."""

    async def nothing(self: Writes, namespace: str, name: str, *, uid: str) -> Any:
        return await self._client.get(PODS, name, namespace)

    Writes.bump_pod = nothing  # type: ignore[method-assign]


def without_claim() -> None:
    """A pod is reserved and bound without the task knowing it."""

    async def claim(self: Claims, task: Any, claim: Any, *, status: Any = None) -> Won:
        return Won(dict(task))

    Claims.claim = claim  # type: ignore[method-assign]


def without_wait_for_the_end() -> None:
    """The room of a pod that begins to stop is given away."""
    look, classify = Releaser.look, recovery.classify

    async def hasty(self: Releaser, ref: PodRef) -> Look:
        seen = await look(self, ref)
        stops = seen.pod is not None and is_terminating(seen.pod)
        return Look(Place.GONE, None) if stops else seen

    def ends(found: Found) -> Action:
        return Action.END if found.terminating and found.entry else classify(found)

    Releaser.look = hasty  # type: ignore[method-assign]
    recovery.classify = ends


MUTATIONS = {
    "version": without_version_check,
    "fence": without_fence,
    "claim": without_claim,
    "end": without_wait_for_the_end,
}


def main() -> None:
    kubeconfig, point, when, number = sys.argv[1:]
    if not re.fullmatch(r"\d+", number) or (point not in POINTS and point != "nowhere"):
        raise SystemExit(f"doomed.py: {point} {number} is no point")
    if mutation := os.environ.get("MUTATION"):
        MUTATIONS[mutation]()
    app.HttpTransport = lambda connection: Doomed(HttpTransport(connection), point, when, int(number))  # type: ignore
    asyncio.run(app.run(connect(kubeconfig=Path(kubeconfig)), host="127.0.0.1", port=0))


if __name__ == "__main__":
    main()
