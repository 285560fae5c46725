"""Create, update and delete of any object, with the checks of the real API server in their order.

The order matters to clients: which of two things wrong with a request they are told, and what a right one stores.
There is no await in here: a write is one step, as a transaction of etcd is.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gputask.local.checks import (
    check_deletion,
    check_name,
    check_precondition,
    checked_kind,
    kept,
    report_unknown,
    spec_changed,
)
from gputask.local.crds import KEY as CRDS
from gputask.local.crds import CrdStrategy
from gputask.local.kinds import Kinds, Resource
from gputask.local.metadata import metadata_problems, update_problems
from gputask.local.pods import PodStrategy
from gputask.local.statuses import (
    StatusError,
    already_exists,
    bad_request,
    forbidden,
    invalid,
    invalid_object,
    modified,
    not_found,
)
from gputask.local.store import Key, Store, Table, Version
from gputask.local.strategies import (
    BudgetStrategy,
    CustomStrategy,
    EventStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    PriorityClassStrategy,
    Strategy,
)
from gputask.local.typed import decoded, typed_schema

Object = dict[str, Any]

_STRATEGIES: Mapping[str, Strategy] = {
    "namespaces": NamespaceStrategy(),
    "nodes": NodeStrategy(),
    "pods": PodStrategy(),
    "events": EventStrategy(),
    "leases.coordination.k8s.io": LeaseStrategy(),
    "priorityclasses.scheduling.k8s.io": PriorityClassStrategy(),
    "poddisruptionbudgets.policy": BudgetStrategy(),
    CRDS: CrdStrategy(),
}
_METADATA = typed_schema("V1ObjectMeta")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of names made from generateName, as Kubernetes has them: no vowels, so no words."""


@dataclass(slots=True)
class Options:
    """How a write is meant. ``warnings`` is filled: unknown fields where the client only wants to be warned."""

    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Deletion:
    """How a delete is meant.

    uid, resource_version: what it demands of the object. grace: seconds, or None for the object's own. finalizer: what
    the propagation policy adds (``foregroundDeletion``, ``orphan``).
    """

    uid: str | None = None
    resource_version: str | None = None
    grace: int | None = None
    finalizer: str | None = None
    dry_run: bool = False


_PLAIN = Deletion()


class Objects:
    """The one way to the store for requests and for the controllers in this process.

    now: the present in UTC, for timestamps.
    """

    def __init__(self, store: Store, kinds: Kinds, *, now: Callable[[], datetime]) -> None:
        self.store = store
        self.kinds = kinds
        self._now = now

    def timestamp(self, *, later: float = 0) -> str:
        """The present plus so many seconds, as metadata has it."""
        return (self._now() + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def get(self, resource: Resource, namespace: str, name: str) -> Version:
        """The stored version. Raises: StatusError 404."""
        version = self.kinds.table(resource).rows.get((namespace, name))
        if version is None:
            raise not_found(resource.group, resource.plural, name)
        return version

    def create(self, resource: Resource, namespace: str, body: Any, options: Options) -> Version:
        """Stores a new object. Raises: StatusError 400, 403, 404 (namespace), 409 or 422."""
        strategy = _strategy(resource)
        obj = self._decoded(resource, body, options)
        meta = self._new_metadata(resource, namespace, obj["metadata"])
        obj["metadata"] = meta
        key = (namespace, meta.get("name", ""))
        if resource.namespaced:
            self._check_namespace(resource, key)
        if resource.has_status and not strategy.keeps_status:
            obj.pop("status", None)
        if resource.counts_generations:
            meta["generation"] = 1
        obj = resource.schema.fill(obj) if resource.custom else obj
        strategy.on_create(obj, self._lookup)
        self._validate(resource, strategy, obj, None)
        table = self.kinds.table(resource)
        if key in table.rows:
            raise already_exists(resource.group, resource.plural, key[1])
        if options.dry_run:
            return Version(obj, 0)
        return self.store.put(resource.key, table, key, obj)

    def update(
        self, resource: Resource, key: Key, body: Any, options: Options, *, subresource: str = "", whole: bool = True
    ) -> Version:
        """Replaces an object, or only its status.

        whole: the body is a PUT, which for some kinds must carry the resourceVersion; a patched object may omit it.
        Raises: StatusError 400, 404, 409 or 422.
        """
        strategy = _strategy(resource)
        new = self._decoded(resource, body, options)
        check_name(new["metadata"], key)
        table = self.kinds.table(resource)
        stored = table.rows.get(key)
        if stored is None:
            if strategy.creates_on_update and whole and not subresource:
                return self.create(resource, key[0], body, options)
            raise not_found(resource.group, resource.plural, key[1])
        old = stored.obj
        self._check_versions(resource, strategy, new["metadata"], old["metadata"], whole=whole)
        new = kept(resource, strategy, new, old, subresource)
        new = resource.schema.fill(new) if resource.custom else new
        if not subresource:
            strategy.on_update(new, old)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old:
            return stored
        self._validate(resource, strategy, new, old)
        if resource.counts_generations and spec_changed(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return self.store_update(resource, table, key, new, dry_run=options.dry_run)

    def store_update(self, resource: Resource, table: Table, key: Key, new: Object, *, dry_run: bool) -> Version:
        """Stores a checked object; one that only its finalizers kept goes with the last of them."""
        meta = new["metadata"]
        if dry_run:
            return Version(new, 0)
        version = self.store.put(resource.key, table, key, new)
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds"):
            if resource.key == "namespaces" and new["spec"].get("finalizers"):
                return version
            return self.store.drop(resource.key, table, key)
        return version

    def delete(self, resource: Resource, key: Key, how: Deletion = _PLAIN) -> tuple[Version, bool]:
        """Deletes an object, or marks it as terminating; the flag says that it is gone.

        Raises: StatusError 404 or 409.
        """
        strategy = _strategy(resource)
        table = self.kinds.table(resource)
        old = self.get(resource, *key).obj
        meta = dict(old["metadata"])
        check_deletion(resource, meta, uid=how.uid, resource_version=how.resource_version)
        seconds = strategy.grace(old, how.grace)
        before = meta.get("deletionGracePeriodSeconds")
        finalizers = list(meta.get("finalizers") or ())
        if how.finalizer and how.finalizer not in finalizers and not meta.get("deletionTimestamp"):
            finalizers.append(how.finalizer)
        emptied = resource.key == "namespaces" and bool(old["spec"].get("finalizers"))
        if not finalizers and not seconds and not emptied:
            return (Version(old, 0) if how.dry_run else self.store.drop(resource.key, table, key)), True
        if meta.get("deletionTimestamp") and (before is None or seconds >= before):
            return table.rows[key], False
        # A shorter grace moves the end forward from now; a longer one never moves it back.
        meta |= {"deletionTimestamp": self.timestamp(later=seconds), "deletionGracePeriodSeconds": seconds}
        if finalizers:
            meta["finalizers"] = finalizers
        if meta.get("generation"):
            meta["generation"] += 1
        new = {**old, "metadata": meta}
        if emptied:
            new["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
        return (Version(new, 0) if how.dry_run else self.store.put(resource.key, table, key, new)), False

    def _lookup(self, key: str, name: str) -> Object | None:
        resource = self.kinds.by_key(key)
        version = self.kinds.table(resource).rows.get(("", name)) if resource else None
        return version.obj if version else None

    def _decoded(self, resource: Resource, body: Any, options: Options) -> Object:
        """The body as an object of the caller's own, known fields only. Raises: StatusError 400."""
        obj = checked_kind(resource, body)
        schema, kind = resource.schema, resource.kind
        obj, unknown = schema.prune(obj)
        if resource.custom:
            given = obj.get("metadata")
            meta = decoded({} if given is None else given, _METADATA, kind, resource.version)
            obj["metadata"], strange = _METADATA.prune(meta)
            unknown += [f"metadata.{path}" for path in strange]
        else:
            obj = decoded(obj, schema, kind, resource.version)
            obj["metadata"] = dict(obj.get("metadata") or {})
        options.warnings += report_unknown(resource, unknown, options.field_validation)
        for name in ("managedFields", "selfLink"):
            obj["metadata"].pop(name, None)
        return obj

    def _new_metadata(self, resource: Resource, namespace: str, given: Object) -> Object:
        meta = dict(given)
        if meta.get("resourceVersion") not in (None, "", "0"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        meta.pop("resourceVersion", None)
        if resource.namespaced:
            if meta.get("namespace", namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            meta["namespace"] = namespace
        else:
            meta.pop("namespace", None)
        if not meta.get("name") and meta.get("generateName"):
            suffix = "".join(secrets.choice(_SUFFIX) for _ in range(5))
            meta["name"] = meta["generateName"][: 63 - len(suffix)] + suffix
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            meta.pop(name, None)
        return meta | {"uid": str(uuid.uuid4()), "creationTimestamp": self.timestamp()}

    def _check_namespace(self, resource: Resource, key: Key) -> None:
        namespace = self._lookup("namespaces", key[0])
        if namespace is None:
            raise not_found("", "namespaces", key[0])
        if namespace["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {key[0]} because it is being terminated"
            raise forbidden(resource.group, resource.plural, key[1], why)

    def _check_versions(self, resource: Resource, strategy: Strategy, new: Object, old: Object, *, whole: bool) -> None:
        asked = new.get("resourceVersion")
        check_precondition(resource, old, "UID", new.get("uid"), old["uid"])
        if asked in (None, "", "0"):
            if whole and strategy.needs_version:
                cause = invalid("metadata.resourceVersion", 0, "must be specified for an update")
                raise invalid_object(resource.group, resource.kind, old["name"], [cause])
        elif asked != old["resourceVersion"]:
            raise modified(resource.group, resource.plural, old["name"])

    def _validate(self, resource: Resource, strategy: Strategy, obj: Object, old: Object | None) -> None:
        meta = obj["metadata"]
        causes = list(metadata_problems(meta, label_name=strategy.label_names))
        if old is not None:
            causes += update_problems(meta, old["metadata"])
        causes += strategy.problems(obj, old)
        if causes:
            raise invalid_object(resource.group, resource.kind, meta.get("name") or "", causes)


def _strategy(resource: Resource) -> Strategy:
    return CustomStrategy(resource) if resource.custom else _STRATEGIES.get(resource.key) or Strategy()
