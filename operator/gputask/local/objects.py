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

from gputask.local.crds import KEY as CRDS
from gputask.local.crds import CrdStrategy
from gputask.local.kinds import Kinds, Resource
from gputask.local.metadata import metadata_problems, update_problems
from gputask.local.pods import PodStrategy
from gputask.local.statuses import (
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_object,
    modified,
    not_found,
)
from gputask.local.store import Key, Store, Table, Version
from gputask.local.strategies import (
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
class Preconditions:
    """What a delete demands of the object; None demands nothing."""

    uid: str | None = None
    resource_version: str | None = None


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
        _check_name(new["metadata"], key)
        table = self.kinds.table(resource)
        stored = table.rows.get(key)
        if stored is None:
            if strategy.creates_on_update and whole and not subresource:
                return self.create(resource, key[0], body, options)
            raise not_found(resource.group, resource.plural, key[1])
        old = stored.obj
        self._check_versions(resource, strategy, new["metadata"], old["metadata"], whole=whole)
        new = _kept(resource, strategy, new, old, subresource)
        new = resource.schema.fill(new) if resource.custom else new
        if not subresource:
            strategy.on_update(new, old)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old:
            return stored
        self._validate(resource, strategy, new, old)
        if resource.counts_generations and _spec_changed(new, old):
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

    def delete(
        self,
        resource: Resource,
        key: Key,
        *,
        preconditions: Preconditions = Preconditions(),
        grace: int | None = None,
        finalizer: str | None = None,
        dry_run: bool = False,
    ) -> tuple[Version, bool]:
        """Deletes an object, or marks it as terminating; the flag says that it is gone.

        grace: seconds, or None for the object's own. finalizer: what the propagation policy adds
        (``foregroundDeletion``, ``orphan``). Raises: StatusError 404 or 409.
        """
        strategy = _strategy(resource)
        table = self.kinds.table(resource)
        old = self.get(resource, *key).obj
        meta = dict(old["metadata"])
        _check_preconditions(resource, meta, preconditions)
        seconds = strategy.grace(old, grace)
        before = meta.get("deletionGracePeriodSeconds")
        finalizers = list(meta.get("finalizers") or ())
        if finalizer and finalizer not in finalizers and not meta.get("deletionTimestamp"):
            finalizers.append(finalizer)
        emptied = resource.key == "namespaces" and bool(old["spec"].get("finalizers"))
        if not finalizers and not seconds and not emptied:
            return (Version(old, 0) if dry_run else self.store.drop(resource.key, table, key)), True
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
        return (Version(new, 0) if dry_run else self.store.put(resource.key, table, key, new)), False

    def _lookup(self, key: str, name: str) -> Object | None:
        resource = self.kinds.by_key(key)
        version = self.kinds.table(resource).rows.get(("", name)) if resource else None
        return version.obj if version else None

    def _decoded(self, resource: Resource, body: Any, options: Options) -> Object:
        """The body as an object of the caller's own, known fields only. Raises: StatusError 400."""
        obj = _checked_kind(resource, body)
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
        if unknown:
            _report_unknown(resource, unknown, options)
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
        if new.get("uid") not in (None, "", old["uid"]):
            raise conflict(
                resource.group,
                resource.plural,
                old["name"],
                _precondition("UID", new["uid"], old["uid"], resource, old),
            )
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


def _checked_kind(resource: Resource, given: Any) -> Object:
    if not isinstance(given, dict):
        raise bad_request("the request body must be one object")
    body: Object = given
    if not resource.custom:
        # As Go's decoder does it: the path says what a body is that does not say it.
        body = {"apiVersion": resource.api_version, "kind": resource.kind} | body
    if not body.get("kind"):
        raise bad_request(f"Object 'Kind' is missing in the request body, expected {resource.kind}")
    if body.get("apiVersion") != resource.api_version or body["kind"] != resource.kind:
        raise bad_request(
            f"the API version and kind in the data ({body.get('apiVersion')}, {body['kind']}) do not match the "
            f"expected ({resource.api_version}, {resource.kind})"
        )
    return body


def _report_unknown(resource: Resource, unknown: list[str], options: Options) -> None:
    texts = [f'unknown field "{path}"' for path in unknown]
    if options.field_validation == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {', '.join(texts)}"
        )
    if options.field_validation == "Warn":
        options.warnings += texts


def _check_name(meta: Object, key: Key) -> None:
    namespace, name = key
    if meta.get("name", name) != name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
    if meta.get("namespace", namespace) != namespace:
        raise bad_request(
            f"the namespace of the object ({meta['namespace']}) does not match the namespace on the URL ({namespace})"
        )


def _kept(resource: Resource, strategy: Strategy, new: Object, old: Object, subresource: str) -> Object:
    """The new object with everything from the old one that this request must not change."""
    meta, before = dict(new["metadata"]), old["metadata"]
    if subresource == "status":
        new = {**old, "metadata": meta, **({"status": new["status"]} if "status" in new else {})}
        if "status" not in new:
            new.pop("status", None)
        meta = meta if strategy.status_metadata else dict(before)
        if "ownerReferences" in before:
            meta["ownerReferences"] = before["ownerReferences"]
        else:
            meta.pop("ownerReferences", None)
    elif resource.has_status:
        new = {key: value for key, value in new.items() if key != "status"}
        if "status" in old:
            new["status"] = old["status"]
    fixed = (
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    )
    for name in fixed:
        if name in before:
            meta[name] = before[name]
        else:
            meta.pop(name, None)
    return {**new, "metadata": meta}


def _spec_changed(new: Object, old: Object) -> bool:
    def rest(obj: Object) -> Object:
        return {key: value for key, value in obj.items() if key not in ("metadata", "status")}

    return rest(new) != rest(old)


def _check_preconditions(resource: Resource, meta: Object, wanted: Preconditions) -> None:
    if wanted.uid is not None and wanted.uid != meta["uid"]:
        raise conflict(
            resource.group,
            resource.kind,
            meta["name"],
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated",
        )
    if wanted.resource_version is not None and wanted.resource_version != meta["resourceVersion"]:
        raise conflict(
            resource.group,
            resource.kind,
            meta["name"],
            f"the ResourceVersion in the precondition ({wanted.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified",
        )


def _precondition(what: str, asked: str, found: str, resource: Resource, meta: Object) -> str:
    """The text of etcd's layer for a precondition that does not hold."""
    place = "/".join(
        filter(None, ("", "registry", resource.group, resource.plural, meta.get("namespace"), meta["name"]))
    )
    return (
        f"StorageError: invalid object, Code: 4, Key: /{place}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: {what} in precondition: {asked}, {what} in object meta: {found}"
    )


def bind_preconditions(resource: Resource, meta: Object, wanted: Object) -> None:
    """A Binding's UID and resourceVersion are preconditions on the pod. Raises: StatusError 409."""
    for what, field_name in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
        asked = wanted.get(field_name)
        if asked and asked != meta[field_name]:
            why = _precondition(what, asked, meta[field_name], resource, meta)
            raise conflict(resource.group, resource.plural, meta["name"], why)
