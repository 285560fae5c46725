"""Faults between the operator (Kopf included) and the API server, as rules on the embedded server's socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace

from gputask.local.api import Reply
from gputask.local.cluster import LocalCluster
from gputask.local.requests import Request
from gputask.local.statuses import StatusError
from gputask.local.store import encode

Matches = Callable[[Request], bool]
Answer = Callable[[], Reply]
Effect = Callable[[Request, Answer], Awaitable[Reply | None]]
"""Gets a request and what carries it out; None cuts the connection without an answer."""


@dataclass
class Rule:
    """What happens to the next ``times`` requests that match; ``met`` are those it happened to."""

    matches: Matches
    effect: Effect
    times: int
    met: list[Request] = field(default_factory=list)

    def stop(self) -> None:
        """It happens to no request any more."""
        self.times = 0


class Faults:
    """The rules of one cluster; the first that matches has a request to itself. ``seen`` are all requests."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._rules: list[Rule] = []
        self.seen: list[Request] = []
        cluster.server.fault = self._meet

    def on(self, matches: Matches, effect: Effect, *, times: int = 1_000_000) -> Rule:
        rule = Rule(matches, effect, times)
        self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """From now on the network is as it should be."""
        self._rules.clear()

    async def _meet(self, request: Request, answer: Answer) -> Reply | None:
        self.seen.append(request)
        for rule in self._rules:
            if len(rule.met) < rule.times and rule.matches(request):
                rule.met.append(request)
                return await rule.effect(request, answer)
        return answer()


# --- which requests -------------------------------------------------------------------------------------


def binds(request: Request) -> bool:
    return request.path.endswith("/binding")


def task_statuses(request: Request) -> bool:
    return request.method == "PATCH" and "/gputasks/" in request.path and request.path.endswith("/status")


def ledgers(request: Request) -> bool:
    """Writes of a node's ledger."""
    return request.method == "PUT" and "/gpunodes/" in request.path


def watches(request: Request) -> bool:
    return request.query.get("watch") in ("true", "1")


# --- what becomes of them -------------------------------------------------------------------------------


async def carry_out(_request: Request, answer: Answer) -> Reply:
    """As it should be: for a rule that only counts."""
    return answer()


async def lose_reply(_request: Request, answer: Answer) -> None:
    """It takes effect, and nobody hears of it."""
    answer()


async def lose_request(_request: Request, _answer: Answer) -> None:
    """The connection breaks before it takes effect."""


def refuse(code: int, reason: str = "", message: str = "said the test") -> Effect:
    """Answered so, without effect."""
    body = encode(StatusError(code, reason, message).body())

    async def effect(_request: Request, _answer: Answer) -> Reply:
        return Reply(code, body)

    return effect


def error_event(code: int, reason: str = "", message: str = "said the test") -> Effect:
    """A watch that begins well, and whose first event is an error."""
    error = encode({"type": "ERROR", "object": StatusError(code, reason, message).body()}) + b"\n"

    async def effect(_request: Request, _answer: Answer) -> Reply:
        async def stream() -> AsyncIterator[bytes]:
            yield error

        return Reply(200, stream=stream())

    return effect


def after(gate: asyncio.Event) -> Effect:
    """It takes effect only when the gate opens, however long its sender has gone by then."""

    async def effect(_request: Request, answer: Answer) -> Reply:
        await gate.wait()
        return answer()

    return effect


def until(gate: asyncio.Event) -> Effect:
    """Streams as it should until the gate opens; then the stream ends, as a watch does at its time limit."""

    async def effect(_request: Request, answer: Answer) -> Reply:
        reply = answer()
        stream = reply.stream
        assert stream is not None, "only a watch streams"

        async def cut():  # type: ignore[no-untyped-def]
            closed = asyncio.ensure_future(gate.wait())
            pieces = aiter(stream)
            while True:
                piece = asyncio.ensure_future(anext(pieces))
                await asyncio.wait({piece, closed}, return_when=asyncio.FIRST_COMPLETED)
                if closed.done():
                    piece.cancel()
                    await asyncio.gather(piece, return_exceptions=True)
                    return
                yield piece.result()

        return replace(reply, stream=cut())

    return effect
