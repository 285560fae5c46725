"""Node agents that have fallen silent (B59): what they say of their node is too old to place anything by.

An agent shows that it lives as a kubelet does: by a Lease that is named like its node and has the label
``gputask.dev/agent``, which it renews. Silent is one whose Lease we have not seen renewed for ``leaseDurationSeconds``,
on our own monotonic clock: its times are those of another machine, and are compared with each other only. Then nothing
new is placed on the node; what runs there runs on. A node without such a Lease has no agent, and is as its admin says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gputask.controller.metrics import Metrics
from gputask.ledger.pods import Manifest

LEASE_SECONDS = 60
"""Of a Lease that does not say."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """``said`` is what a renewal changes, ``at`` when we saw it change."""

    said: tuple[Any, ...]
    seconds: float
    at: float


class Agents:
    """``changed(node)`` is told when an agent falls silent, or speaks again."""

    def __init__(self, *, clock: Callable[[], float], changed: Callable[[str], None], metrics: Metrics) -> None:
        self._clock = clock
        self._changed = changed
        self._age = metrics.agent_age
        self._heard: dict[str, _Heard] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def put(self, lease: Manifest) -> None:
        """An agent's Lease is there, or was written."""
        node, spec = str(lease["metadata"]["name"]), lease.get("spec") or {}
        said = (lease["metadata"]["uid"], spec.get("holderIdentity"), spec.get("renewTime"))
        before = self._heard.get(node)
        if before is not None and before.said == said:
            return
        seconds = float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)
        self._heard[node] = _Heard(said, seconds, self._clock())
        self._age.labels(node).set_function(lambda: self._since(node))
        if node not in self._timers:
            self._timers[node] = asyncio.get_running_loop().call_later(seconds, self._check, node)
            self._changed(node)

    def drop(self, lease: Manifest) -> None:
        """The node has no agent any more."""
        node = str(lease["metadata"]["name"])
        if self._heard.pop(node, None) is not None:
            self._age.remove(node)
            if node in self._timers:
                self._timers.pop(node).cancel()
            self._changed(node)

    def why_out(self, node: str) -> str | None:
        """Why nothing new may be placed on this node; None if its agent is heard of, or it has none."""
        heard = self._heard.get(node)
        if heard is None or node in self._timers:
            return None
        return f"its node agent has not been heard of for more than {heard.seconds:g} s"

    def _check(self, node: str) -> None:
        heard = self._heard[node]
        left = heard.at + heard.seconds - self._clock()
        if left > 0:
            self._timers[node] = asyncio.get_running_loop().call_later(left, self._check, node)
        else:
            del self._timers[node]
            self._changed(node)

    def _since(self, node: str) -> float:
        heard = self._heard.get(node)
        return self._clock() - heard.at if heard is not None else 0.0
