"""What a request must not contradict: its path, the versions it names, and what only the server sets."""

from __future__ import annotations

from typing import Any

from gputask.local.kinds import Resource
from gputask.local.statuses import bad_request, conflict
from gputask.local.store import Key
from gputask.local.strategies import Strategy

Object = dict[str, Any]


def checked_kind(resource: Resource, given: Any) -> Object:
    """The body, if it is an object of this resource. Raises: StatusError 400."""
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


def report_unknown(resource: Resource, unknown: list[str], validation: str) -> list[str]:
    """The warnings about unknown fields (``validation`` Warn). Raises: StatusError 400 (Strict)."""
    texts = [f'unknown field "{path}"' for path in unknown]
    if validation == "Strict" and unknown:
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {', '.join(texts)}"
        )
    return texts if validation == "Warn" else []


def check_name(meta: Object, key: Key) -> None:
    """The body may leave out its name and namespace, but not differ from the path. Raises: StatusError 400."""
    namespace, name = key
    if meta.get("name", name) != name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
    if meta.get("namespace", namespace) != namespace:
        raise bad_request(
            f"the namespace of the object ({meta['namespace']}) does not match the namespace on the URL ({namespace})"
        )


def kept(resource: Resource, strategy: Strategy, new: Object, old: Object, subresource: str) -> Object:
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


def spec_changed(new: Object, old: Object) -> bool:
    """Whether anything differs that counts for metadata.generation."""

    def rest(obj: Object) -> Object:
        return {key: value for key, value in obj.items() if key not in ("metadata", "status")}

    return rest(new) != rest(old)


def check_deletion(resource: Resource, meta: Object, *, uid: str | None, resource_version: str | None) -> None:
    """The preconditions of a delete. Raises: StatusError 409."""
    wanted = (
        ("UID", uid, meta["uid"], "deleted and then recreated"),
        ("ResourceVersion", resource_version, meta["resourceVersion"], "modified"),
    )
    for what, asked, found, perhaps in wanted:
        if asked is not None and asked != found:
            why = (
                f"the {what} in the precondition ({asked}) does not match the {what} in record ({found}). "
                f"The object might have been {perhaps}"
            )
            raise conflict(resource.group, resource.kind, meta["name"], why)


def _precondition_text(what: str, asked: str, found: str, resource: Resource, meta: Object) -> str:
    """The text of etcd's layer for a precondition that does not hold."""
    place = "/".join(
        filter(None, ("", "registry", resource.group, resource.plural, meta.get("namespace"), meta["name"]))
    )
    return (
        f"StorageError: invalid object, Code: 4, Key: /{place}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: {what} in precondition: {asked}, {what} in object meta: {found}"
    )


def check_precondition(resource: Resource, meta: Object, what: str, asked: Any, found: str) -> None:
    """A UID or resourceVersion that an update or a Binding demands of the stored object. Raises: StatusError 409."""
    if asked and asked != found:
        why = _precondition_text(what, asked, found, resource, meta)
        raise conflict(resource.group, resource.plural, meta["name"], why)
