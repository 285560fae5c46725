"""Lists and watches: pages of one consistent state, then every change after it, in the form that was asked for."""

from __future__ import annotations

import json
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gputask.local.kinds import Resource
from gputask.local.selectors import Matches, both, field_selector, label_selector
from gputask.local.statuses import StatusError, bad_request, expired
from gputask.local.store import Event, Store, Table, Version, encode

Object = dict[str, Any]

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Form(Protocol):
    """How objects are written: plain JSON, or the rows of a table."""

    name: str

    def one(self, version: Version) -> bytes:
        """One object."""

    def many(self, versions: list[Version], meta: Object) -> bytes:
        """A list."""

    def bookmark(self, meta: Object) -> bytes:
        """The object of a BOOKMARK event."""


class PlainForm:
    """The objects themselves."""

    name = "plain"

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def one(self, version: Version) -> bytes:
        return version.raw

    def many(self, versions: list[Version], meta: Object) -> bytes:
        head = encode(
            {"kind": f"{self._resource.kind}List", "apiVersion": self._resource.api_version, "metadata": meta}
        )
        return head[:-1] + b',"items":[' + b",".join([version.raw for version in versions]) + b"]}"

    def bookmark(self, meta: Object) -> bytes:
        return encode({"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": meta})


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a table a request is about; ``namespace`` None means all."""

    resource: Resource
    table: Table
    namespace: str | None
    matches: Matches | None

    @classmethod
    def of(
        cls, resource: Resource, table: Table, namespace: str | None, name: str | None, query: Mapping[str, str]
    ) -> Selection:
        """From a request's selectors. Raises: StatusError 400 for a selector that makes no sense."""
        fields = query.get("fieldSelector", "")
        if name is not None:
            fields = ",".join(filter(None, (fields, f"metadata.name={name}")))
        selectors = label_selector(query.get("labelSelector", "")), field_selector(fields, resource.selectable)
        return cls(resource, table, namespace, both(*selectors))

    def versions(self) -> list[Version]:
        """All that match now, in the order of a list."""
        listed = self.table.listed(self.namespace)
        return listed if self.matches is None else [v for v in listed if self.matches(v.obj)]

    def seen(self, event: Event) -> tuple[str, Version] | None:
        """The event as a watcher with this selection sees it: entering is ADDED, leaving is DELETED."""
        if self.namespace is not None and event.now.obj["metadata"].get("namespace") != self.namespace:
            return None
        if self.matches is None:
            return event.type, event.now
        was = event.before is not None and self.matches(event.before.obj)
        is_now = event.type != "DELETED" and self.matches(event.now.obj)
        if was and not is_now:
            # The last state that the watcher knew, under the version of the change that hid it.
            assert event.before is not None
            meta = {**event.before.obj["metadata"], "resourceVersion": str(event.now.number)}
            return "DELETED", Version({**event.before.obj, "metadata": meta}, event.now.number)
        if not is_now:
            return None
        return ("MODIFIED" if was else "ADDED"), event.now


class Lists:
    """Answers lists. The rest of a list that a client reads page by page is kept as it was at the first page."""

    kept = 64

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rests: OrderedDict[str, tuple[int, list[Version]]] = OrderedDict()

    def page(self, selection: Selection, form: Form, query: Mapping[str, str]) -> bytes:
        """One page (``limit``, ``continue``), or all. Raises: StatusError 410 for a token or version not kept."""
        number, versions = self._state(selection, query)
        meta: Object = {"resourceVersion": str(number)}
        limit = _number(query, "limit")
        if limit and len(versions) > limit:
            token = secrets.token_urlsafe(12)
            self._rests[token] = (number, versions[limit:])
            if len(self._rests) > self.kept:
                self._rests.popitem(last=False)
            meta["continue"] = token
            if selection.matches is None:
                meta["remainingItemCount"] = len(versions) - limit
            versions = versions[:limit]
        return form.many(versions, meta)

    def _state(self, selection: Selection, query: Mapping[str, str]) -> tuple[int, list[Version]]:
        if token := query.get("continue"):
            if token not in self._rests:
                raise expired(
                    "The provided continue parameter is too old to display a consistent list result. You must start a "
                    "new list without the continue parameter."
                )
            return self._rests[token]
        asked = _number(query, "resourceVersion")
        if asked > self._store.number:
            raise _too_large(asked, self._store.number)
        if query.get("resourceVersionMatch") == "Exact" and asked != self._store.number:
            raise expired(f"The resourceVersion for the provided list is too old: {asked}")
        return self._store.number, selection.versions()


def _too_large(asked: int, number: int) -> StatusError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Too large resource version: {asked}, current: {number}"
    return StatusError(504, "Timeout", f"Timeout: {message}", {"causes": [cause], "retryAfterSeconds": 1})


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    if not text.isdecimal():
        raise bad_request(f"invalid {name}: {json.dumps(text)} is no whole number")
    return int(text)


@dataclass(frozen=True, slots=True)
class Pace:
    """When a watch says something without a change, in seconds of the wall clock."""

    bookmark_seconds: float = 10.0
    timeout_seconds: float = 3600.0


async def watch(
    selection: Selection,
    form: Form,
    query: Mapping[str, str],
    *,
    store: Store,
    pace: Pace,
    closing: Callable[[], bool],
) -> AsyncIterator[bytes]:
    """The lines of a watch, several in one piece where several changes are there.

    A version that is no longer in the window, at the start or because the reader was too slow, ends it with an ERROR
    event of code 410. The first piece may be empty: it says that the watch stands.
    """
    end = time.monotonic() + (_number(query, "timeoutSeconds") or pace.timeout_seconds)
    bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
    window = selection.table.window
    try:
        asked = _number(query, "resourceVersion")
        initial = query.get("sendInitialEvents") in ("true", "1")
        if asked and not initial:
            position = window.after(asked)
            yield b""
        else:
            position, first, number = window.end, selection.versions(), store.number
            yield b"".join([_line("ADDED", form.one(version)) for version in first])
            if initial and bookmarks:
                meta = {"resourceVersion": str(number), "annotations": {INITIAL_EVENTS_END: "true"}}
                yield _line("BOOKMARK", form.bookmark(meta))
        told = time.monotonic()
        while not closing() and (now := time.monotonic()) < end:
            events = window.since(position)
            position += len(events)
            if lines := b"".join([_event_line(selection, form, event) for event in events]):
                yield lines
            elif not events:
                await window.wait(min(end - now, max(told + pace.bookmark_seconds - now, 0.01)))
            if bookmarks and time.monotonic() - told >= pace.bookmark_seconds and position == window.end:
                told = time.monotonic()
                yield _line("BOOKMARK", form.bookmark({"resourceVersion": str(store.number)}))
    except StatusError as error:
        yield _line("ERROR", encode(error.body()))


def _event_line(selection: Selection, form: Form, event: Event) -> bytes:
    """The event's line, encoded once for all watchers that see it alike; empty for those that do not see it."""
    seen = selection.seen(event)
    if seen is None:
        return b""
    type, version = seen
    left = "" if version is event.now else "left "
    key = f"{left}{type} {form.name}"
    line = event.forms.get(key)
    if line is None:
        line = event.forms[key] = _line(type, form.one(version))
    return line


def _line(type: str, obj: bytes) -> bytes:
    return b'{"type":"' + type.encode() + b'","object":' + obj + b"}\n"
