"""Tables: what ``kubectl get`` prints, computed on the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from gputask.local.kinds import Column, Resource
from gputask.local.store import Version, encode

Object = dict[str, Any]


class TableForm:
    """Rows of cells; ``include`` says what each row carries of its object: Metadata, Object or None."""

    def __init__(self, resource: Resource, include: str, *, now: Callable[[], datetime]) -> None:
        self.name = f"table {include}"
        self._resource = resource
        self._include = include
        self._now = now

    def one(self, version: Version) -> bytes:
        return self.many([version], {"resourceVersion": version.obj["metadata"].get("resourceVersion", "")})

    def many(self, versions: list[Version], meta: Object) -> bytes:
        return self._table([self._row(version.obj) for version in versions], meta)

    def bookmark(self, meta: Object) -> bytes:
        # Clients read the version of a bookmark from its one row.
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
        cells = [None] * len(self._resource.columns)
        return self._table([{"cells": cells, "object": partial}], meta)

    def _table(self, rows: list[Object], meta: Object) -> bytes:
        columns = self._resource.columns or _PLAIN
        definitions = [
            {"name": c.name, "type": c.type, "format": c.format, "description": c.description, "priority": c.priority}
            for c in columns
        ]
        table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
        return encode({**table, "columnDefinitions": definitions, "rows": rows})

    def _row(self, obj: Object) -> Object:
        row: Object = {"cells": [self._cell(obj, column) for column in self._resource.columns or _PLAIN]}
        if self._include == "Object":
            row["object"] = obj
        elif self._include == "Metadata":
            meta = obj["metadata"]
            row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
        return row

    def _cell(self, obj: Object, column: Column) -> Any:
        computed = _COMPUTED.get(column.path)
        value = computed(obj) if computed else json_path(column.path)(obj)
        if column.type == "date":
            return age(value, self._now()) if value else "<unknown>"
        if value is None or isinstance(value, bool | int | float):
            return value
        return value if isinstance(value, str) else encode(value).decode()


_PLAIN = (
    Column("Name", "string", ".metadata.name", format="name"),
    Column("Age", "date", ".metadata.creationTimestamp"),
)


def age(stamp: str, now: datetime) -> str:
    """A duration as kubectl shortens it: 5s, 3m20s, 7h, 12d."""
    seconds = int((now - datetime.fromisoformat(stamp.replace("Z", "+00:00")).astimezone(UTC)).total_seconds())
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"


@lru_cache(maxsize=512)
def json_path(path: str) -> Callable[[Object], Any]:
    """The reader of a column's path: fields, indices, ``[*]``, and ``[?(@.field=="value")]``."""
    steps = _steps(path)

    def read(obj: Any) -> Any:
        found = [obj]
        many = False
        for step in steps:
            found = [child for value in found for child in step(value)]
            many = many or getattr(step, "many", False)
        if many:
            return ",".join(str(item) for item in found if item is not None) or None
        return found[0] if found else None

    return read


class _Field:
    many = False

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, value: Any) -> list[Any]:
        return [value[self._name]] if isinstance(value, Mapping) and self._name in value else []


class _Items:
    """``[0]``, ``[*]`` or ``[?(@.type=="Ready")]``."""

    def __init__(self, text: str) -> None:
        self.many = text == "*"
        self._index = int(text) if text.lstrip("-").isdecimal() else None
        self._test: tuple[str, str] | None = None
        if text.startswith("?("):
            field, _, wanted = text.removeprefix("?(").removesuffix(")").partition("==")
            self._test = field.strip().removeprefix("@."), wanted.strip().strip("\"'")

    def __call__(self, value: Any) -> list[Any]:
        if isinstance(value, Mapping) and self.many:
            return list(value.values())
        if not isinstance(value, list):
            return []
        if self._test is not None:
            field, wanted = self._test
            return [item for item in value if isinstance(item, Mapping) and str(item.get(field)) == wanted][:1]
        if self._index is not None:
            return value[self._index : self._index + 1] if self._index >= 0 else value[self._index :][:1]
        return value


def _steps(path: str) -> list[_Field | _Items]:
    steps: list[_Field | _Items] = []
    name = ""
    i = 0
    while i < len(path):
        letter = path[i]
        if letter == "\\":
            name += path[i + 1]
            i += 2
            continue
        if letter in ".[" and name:
            steps.append(_Field(name))
            name = ""
        if letter == "[":
            close = path.index("]", i)
            inner = path[i + 1 : close]
            steps.append(_Field(inner.strip("'\"")) if inner[:1] in "'\"" else _Items(inner))
            i = close
        elif letter != ".":
            name += letter
        i += 1
    if name:
        steps.append(_Field(name))
    return steps


def _pod_ready(pod: Object) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return f"{sum(bool(s.get('ready')) for s in statuses)}/{len(pod['spec'].get('containers') or ())}"


def _pod_status(pod: Object) -> str:
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if status.get("reason"):
        return str(status["reason"])
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        reason = (state.get("waiting") or state.get("terminated") or {}).get("reason")
        if reason and status.get("phase") != "Running":
            return str(reason)
    conditions = status.get("conditions") or ()
    if any(c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in conditions):
        return "SchedulingGated"
    return str(status.get("phase", "Unknown"))


def _pod_restarts(pod: Object) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return str(sum(s.get("restartCount", 0) for s in statuses))


def _node_status(node: Object) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), "Unknown")
    words = ["Ready" if ready == "True" else "Unknown" if ready == "Unknown" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or "<none>"


def _event_object(event: Object) -> str:
    involved = event.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _event_seen(event: Object) -> str | None:
    series = event.get("series") or {}
    stamp = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(stamp or event["metadata"]["creationTimestamp"])


_COMPUTED: Mapping[str, Callable[[Object], Any]] = {
    "pod-ready": _pod_ready,
    "pod-status": _pod_status,
    "pod-restarts": _pod_restarts,
    "node-status": _node_status,
    "node-roles": _node_roles,
    "event-object": _event_object,
    "event-seen": _event_seen,
}
