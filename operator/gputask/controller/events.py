"""Events for people, without storms.

Equal events of one object become one Event with a count; an object gets at most :data:`BURST` different Events and
then one more each :data:`REFILL_SECONDS`. Events are best effort: one that cannot be written is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gputask.kube.errors import KubeError, NotFound
from gputask.kube.writes import Writes
from gputask.ledger.pods import Manifest, uid_of

log = logging.getLogger(__name__)

BURST = 10
REFILL_SECONDS = 60.0
_QUEUE = 1_000
_REMEMBERED = 4_096

_Key = tuple[str, str, str]


@dataclass(slots=True)
class _Series:
    """An Event that exists, or will in a moment (``name`` is empty until then)."""

    count: int
    name: str = ""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Events:
    """Takes events without waiting, and writes them from one background task (:meth:`run`)."""

    def __init__(
        self, writes: Writes, *, clock: Callable[[], float], timestamp: Callable[[], str], host: str = ""
    ) -> None:
        self._writes = writes
        self._clock = clock
        self._timestamp = timestamp
        self._host = host
        self._queue: asyncio.Queue[tuple[_Key, Manifest, str]] = asyncio.Queue(_QUEUE)
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def emit(self, obj: Manifest, reason: str, message: str, *, warning: bool = False) -> None:
        """Say something about an object; never waits, and drops what is too much."""
        key = (uid_of(obj), reason, message)
        if key not in self._series and not self._allowed(key[0]):
            return
        self._remember(key).count += 1
        if not self._queue.full():
            self._queue.put_nowait((key, obj, "Warning" if warning else "Normal"))

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            key, obj, kind = await self._queue.get()
            try:
                await self._write(key, obj, kind)
            except KubeError as error:
                log.debug("event %s of %s not written: %s", key[1], key[0], error)

    async def _write(self, key: _Key, obj: Manifest, kind: str) -> None:
        series = self._remember(key)
        namespace = obj["metadata"].get("namespace") or "default"
        if series.name:
            try:
                await self._writes.patch_event(
                    namespace, series.name, {"count": series.count, "lastTimestamp": self._timestamp()}
                )
                return
            except NotFound:
                pass  # it lived for an hour, as Events do
        created = await self._writes.create_event(self._event(key, obj, kind, namespace, series.count))
        series.name = created["metadata"]["name"]

    def _event(self, key: _Key, obj: Manifest, kind: str, namespace: str, count: int) -> dict[str, Any]:
        now = self._timestamp()
        metadata = obj["metadata"]
        reference = {
            "apiVersion": obj.get("apiVersion"),
            "kind": obj.get("kind"),
            "name": metadata["name"],
            "namespace": metadata.get("namespace"),
            "uid": metadata["uid"],
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name'][:200]}.", "namespace": namespace},
            "involvedObject": {name: value for name, value in reference.items() if value},
            "reason": key[1],
            "message": key[2][:1024],
            "type": kind,
            "count": count,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "gputask", **({"host": self._host} if self._host else {})},
            "reportingComponent": "gputask.dev/operator",
            "reportingInstance": self._host,
        }

    def _remember(self, key: _Key) -> _Series:
        series = self._series.setdefault(key, _Series(count=0))
        self._series.move_to_end(key)
        while len(self._series) > _REMEMBERED:
            self._series.popitem(last=False)
        return series

    def _allowed(self, uid: str) -> bool:
        now = self._clock()
        bucket = self._buckets.setdefault(uid, _Bucket(BURST, now))
        self._buckets.move_to_end(uid)
        while len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        bucket.tokens = min(float(BURST), bucket.tokens + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True
