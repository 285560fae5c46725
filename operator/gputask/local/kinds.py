"""Which resources the server knows, and what differs between them; custom ones come and go with their CRDs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gputask.local.schema import Schema
from gputask.local.store import Store, Table

Object = dict[str, Any]
Path = tuple[str, ...]

METADATA_FIELDS: Mapping[str, Path] = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``: the path of its value in the object; priority 1 shows with ``-o wide`` only."""

    name: str
    type: str
    path: str
    priority: int = 0
    format: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a custom resource keeps what its scale subresource shows."""

    spec: Path
    status: Path
    selector: Path | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """One resource of the API: its names, its schema, what it serves beside the plain verbs."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    custom: bool = False
    counts_generations: bool = False
    schema: Schema = field(default_factory=Schema)
    columns: tuple[Column, ...] = ()
    fields: Mapping[str, Path] = field(default_factory=dict)
    scale: Scale | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> str:
        """Its name in the store and in details of errors: ``plural.group``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def selectable(self) -> Mapping[str, Path]:
        return {**METADATA_FIELDS, **self.fields}

    def subresources(self) -> tuple[str, ...]:
        """What can follow a name in a path."""
        found = ("status",) * self.has_status + ("scale",) * (self.scale is not None)
        return found + (("binding", "eviction", "log") if self.key == "pods" else ())


class Kinds:
    """All resources served now, found by group, version and plural, or by apiVersion and kind."""

    def __init__(self, store: Store, resources: tuple[Resource, ...]) -> None:
        self._store = store
        self._served: dict[tuple[str, str, str], Resource] = {}
        for resource in resources:
            self.serve(resource)

    def serve(self, resource: Resource) -> None:
        self._served[resource.group, resource.version, resource.plural] = resource

    def withdraw(self, group: str, plural: str) -> None:
        """A CRD went: all versions of its resource go."""
        for key in [key for key in self._served if (key[0], key[2]) == (group, plural)]:
            del self._served[key]

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._served.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        return next((r for r in self if (r.api_version, r.kind) == (api_version, kind)), None)

    def by_key(self, key: str) -> Resource | None:
        """The resource whose objects a table of the store holds."""
        return next((r for r in self if r.key == key), None)

    def table(self, resource: Resource) -> Table:
        return self._store.table(resource.key, resource.kind)

    def __iter__(self) -> Iterator[Resource]:
        return iter(list(self._served.values()))
