"""Owner garbage collection: an object goes when the last of its owners is gone; owners are found by UID."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gputask.local.kinds import Resource
from gputask.local.objects import Deletion, Objects, Options
from gputask.local.store import Event, Key, Version

Object = dict[str, Any]
Place = tuple[str, Key]
"""(resource, key) of an object in the store."""

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class OwnerCollector:
    """Told of every change, in order; deletes what has lost its owners (policy Background) and serves the finalizers of
    the policies Foreground and Orphan."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._dependents: dict[str, set[Place]] = defaultdict(set)
        """Who names an owner, by the owner's UID."""
        self._waiting: dict[str, Place] = {}
        """Owners in foreground deletion, by UID."""

    def on_change(self, resource: str, event: Event) -> None:
        meta = event.now.obj["metadata"]
        place = resource, (meta.get("namespace", ""), meta["name"])
        for owner in _owners(event.before):
            self._dependents[owner["uid"]].discard(place)
        if event.type == "DELETED":
            self._on_deleted(event)
            return
        owners = _owners(event.now)
        for owner in owners:
            self._dependents[owner["uid"]].add(place)
        if owners and event.before is None:
            # Its owner may have gone before it came; nobody else would ever look again.
            self._judge(place)
        if meta.get("deletionTimestamp"):
            self._serve_finalizers(place, meta)

    def _on_deleted(self, event: Event) -> None:
        uid = event.now.obj["metadata"]["uid"]
        self._waiting.pop(uid, None)
        for dependent in sorted(self._dependents.pop(uid, ())):
            self._judge(dependent)
        for owner in _owners(event.before):
            if place := self._waiting.get(owner["uid"]):
                self._finish_foreground(place, owner["uid"])

    def _judge(self, place: Place) -> None:
        """Deletes a dependent without owners; of some that are gone and some that are not, drops the gone."""
        found = self._find(place)
        if found is None:
            return
        resource, version = found
        meta = version.obj["metadata"]
        owners = meta.get("ownerReferences") or []
        present = [owner for owner in owners if self._exists(owner, meta.get("namespace", ""))]
        if not owners or len(present) == len(owners):
            return
        if present:
            new = {**version.obj, "metadata": {**meta, "ownerReferences": present}}
            self._objects.update(resource, place[1], new, Options(), whole=False)
        else:
            self._delete(place, meta["uid"])

    def _exists(self, owner: Object, namespace: str) -> bool:
        kind = self._objects.kinds.of_kind(owner["apiVersion"], owner["kind"])
        if kind is None:
            # A kind that is not served now, for instance because its CRD is being replaced: no proof of absence.
            return True
        key = (namespace if kind.namespaced else "", owner["name"])
        version = self._objects.kinds.table(kind).rows.get(key)
        return version is not None and version.obj["metadata"]["uid"] == owner["uid"]

    def _serve_finalizers(self, place: Place, meta: Object) -> None:
        finalizers = meta.get("finalizers") or ()
        if ORPHAN in finalizers:
            for dependent in sorted(self._dependents.pop(meta["uid"], ())):
                self._orphan(dependent, meta["uid"])
            self._drop_finalizer(place, ORPHAN)
        elif FOREGROUND in finalizers and meta["uid"] not in self._waiting:
            self._waiting[meta["uid"]] = place
            for dependent in sorted(self._dependents.get(meta["uid"], ())):
                if found := self._find(dependent):
                    self._delete(dependent, found[1].obj["metadata"]["uid"], FOREGROUND)
            self._finish_foreground(place, meta["uid"])

    def _finish_foreground(self, place: Place, uid: str) -> None:
        for dependent in self._dependents.get(uid, ()):
            found = self._find(dependent)
            if found and any(o["uid"] == uid and o.get("blockOwnerDeletion") for o in _owners(found[1])):
                return
        self._drop_finalizer(place, FOREGROUND)

    def _orphan(self, place: Place, uid: str) -> None:
        if found := self._find(place):
            resource, version = found
            meta = version.obj["metadata"]
            rest = [owner for owner in meta.get("ownerReferences") or () if owner["uid"] != uid]
            new = {**version.obj, "metadata": {**meta, "ownerReferences": rest}}
            self._objects.update(resource, place[1], new, Options(), whole=False)

    def _drop_finalizer(self, place: Place, name: str) -> None:
        if found := self._find(place):
            drop_finalizer(self._objects, found[0], place[1], name)

    def _delete(self, place: Place, uid: str, finalizer: str | None = None) -> None:
        resource = self._objects.kinds.by_key(place[0])
        if resource is None:
            return
        self._objects.delete(resource, place[1], Deletion(uid=uid, finalizer=finalizer))

    def _find(self, place: Place) -> tuple[Resource, Version] | None:
        resource = self._objects.kinds.by_key(place[0])
        version = self._objects.kinds.table(resource).rows.get(place[1]) if resource else None
        return (resource, version) if resource and version else None


def drop_finalizer(objects: Objects, resource: Resource, key: Key, name: str) -> None:
    """Takes one finalizer off an object; with the last of them a terminating object goes."""
    obj = objects.get(resource, *key).obj
    meta = obj["metadata"]
    rest = [finalizer for finalizer in meta.get("finalizers") or () if finalizer != name]
    new = {**obj, "metadata": {**meta, "finalizers": rest}}
    objects.update(resource, key, new, Options(), whole=False)


def _owners(version: Version | None) -> list[Object]:
    return list(version.obj["metadata"].get("ownerReferences") or ()) if version else []
