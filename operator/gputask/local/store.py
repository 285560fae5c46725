"""What the server holds: every object at its newest version, and a bounded window of changes for watches.

Objects are never changed in place: a write stores a new dict that may share unchanged parts with the old one. So a
version that a watcher, a page of a list or the history holds stays what it was.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gputask.local.statuses import expired

Object = dict[str, Any]
Change = tuple[int, str, str, Object]
"""(resourceVersion, ADDED | MODIFIED | DELETED, kind, the object as stored)."""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


@dataclass(slots=True)
class Version:
    """One object at one resourceVersion, with its JSON, encoded at most once however many readers there are."""

    obj: Object
    number: int
    _raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        if self._raw is None:
            self._raw = encode(self.obj)
        return self._raw


@dataclass(slots=True)
class Event:
    """One change of one object. ``before`` is None for ADDED; for DELETED ``now`` is the last state, newly numbered."""

    type: str
    now: Version
    before: Version | None
    forms: dict[str, bytes] = field(default_factory=dict)
    """Encoded lines by form, shared by the watchers that want the same one."""


class Window:
    """The latest changes of one resource, oldest first. Positions count all changes that ever were."""

    def __init__(self, size: int) -> None:
        self._events: deque[Event] = deque()
        self._size = size
        self._dropped = 0
        self._floor = 0
        self._changed = asyncio.Event()

    def append(self, event: Event) -> None:
        self._events.append(event)
        if len(self._events) > self._size:
            self._floor = self._events.popleft().now.number
            self._dropped += 1
        self.wake()

    def wake(self) -> None:
        """Releases those who wait at this moment; later ones wait for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def end(self) -> int:
        """The position after the newest change."""
        return self._dropped + len(self._events)

    def after(self, number: int) -> int:
        """The position of the first change after a resourceVersion. Raises: StatusError 410 if some were dropped."""
        if number < self._floor:
            raise expired(f"too old resource version: {number} ({self._floor})")
        position = self.end
        for event in reversed(self._events):
            if event.now.number <= number:
                break
            position -= 1
        return position

    def since(self, position: int) -> list[Event]:
        """The changes from a position on. Raises: StatusError 410 if the reader was too slow."""
        if position < self._dropped:
            raise expired(f"too old resource version: the watch fell behind ({self._floor})")
        start = position - self._dropped
        return [self._events[i] for i in range(start, len(self._events))]

    async def wait(self, seconds: float) -> None:
        """Until the next change, at most so long (wall clock)."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return


Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped objects."""


class Table:
    """All objects of one resource."""

    def __init__(self, kind: str, window: int) -> None:
        self.kind = kind
        self.rows: dict[Key, Version] = {}
        self.window = Window(window)

    def listed(self, namespace: str | None) -> list[Version]:
        """In the order in which the API lists: by namespace, then name."""
        keys = sorted(key for key in self.rows if namespace is None or key[0] == namespace)
        return [self.rows[key] for key in keys]


class Store:
    """Tables by resource (``plural.group``) under one counter of versions.

    history: keep every version of every object ever stored, for tests that judge what was ever true.
    window: how many changes of a resource a watch can go back.
    """

    def __init__(self, *, history: bool = False, window: int = 10_000) -> None:
        self.number = 1
        self.history: list[Change] = []
        self.listeners: list[Callable[[str, Event], None]] = []
        self._keep = history
        self._window = window
        self._tables: dict[str, Table] = {}

    def table(self, resource: str, kind: str) -> Table:
        """The table of a resource; made at first use, and kept when a CRD goes, so that its watches stay valid."""
        if resource not in self._tables:
            self._tables[resource] = Table(kind, self._window)
        return self._tables[resource]

    def tables(self) -> Iterator[tuple[str, Table]]:
        yield from list(self._tables.items())

    def put(self, resource: str, table: Table, key: Key, obj: Object) -> Version:
        """Stores an object as a new version; sets its resourceVersion (the metadata dict must be the caller's own)."""
        before = table.rows.get(key)
        now = self._version(obj)
        table.rows[key] = now
        self._tell(resource, table, Event("MODIFIED" if before else "ADDED", now, before))
        return now

    def drop(self, resource: str, table: Table, key: Key) -> Version:
        """Removes an object; watchers get its last state under a resourceVersion of its own, as from a real server."""
        before = table.rows.pop(key)
        now = self._version({**before.obj, "metadata": dict(before.obj["metadata"])})
        self._tell(resource, table, Event("DELETED", now, before))
        return now

    def _version(self, obj: Object) -> Version:
        self.number += 1
        obj["metadata"]["resourceVersion"] = str(self.number)
        return Version(obj, self.number)

    def _tell(self, resource: str, table: Table, event: Event) -> None:
        table.window.append(event)
        if self._keep:
            self.history.append((event.now.number, event.type, table.kind, event.now.obj))
        for listener in self.listeners:
            listener(resource, event)
