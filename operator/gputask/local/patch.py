"""The three patches of the API: merge (RFC 7386), JSON (RFC 6902) and strategic merge for the built-in kinds."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from gputask.local.statuses import StatusError, bad_request

Object = dict[str, Any]


def patcher(content_type: str, *, custom: bool) -> Callable[[Any, Any], Any]:
    """How a patch of this media type applies: ``(target, patch) -> result``. Raises: StatusError 415."""
    kind = content_type.partition(";")[0].strip()
    accepted = patch_types(custom=custom)
    if kind not in accepted:
        raise StatusError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted),
        )
    return accepted[kind]


def patch_types(*, custom: bool) -> dict[str, Callable[[Any, Any], Any]]:
    """The media types of patches; custom resources have no strategic one."""
    types: dict[str, Callable[[Any, Any], Any]] = {
        "application/json-patch+json": json_patch,
        "application/merge-patch+json": merge_patch,
    }
    return types if custom else {**types, "application/strategic-merge-patch+json": strategic_merge}


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: null deletes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902. Raises: StatusError 400 for a malformed patch, 422 for one that does not apply."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    result = deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
            raise bad_request("error in JSON patch: every operation needs op and path")
        result = _apply(result, operation)
    return result


def _apply(document: Any, operation: Object) -> Any:
    op, path = operation["op"], operation["path"]
    match op:
        case "add" | "replace" | "test":
            if "value" not in operation and op != "test":
                raise bad_request(f"error in JSON patch: {op} {path} needs a value")
            value = deepcopy(operation.get("value"))
        case "move" | "copy":
            source = str(operation.get("from", ""))
            value = deepcopy(_get(document, source))
            if op == "move":
                document = _remove(document, source)
        case "remove":
            return _remove(document, path)
        case _:
            raise bad_request(f"Unexpected kind: {op}")
    if op == "test":
        if _get(document, path) != value:
            raise _does_not_apply(f"testing value {path} failed")
        return document
    if op == "replace":
        _get(document, path)
    return _set(document, path, value, insert=op != "replace")


def _steps(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise bad_request(f"error in JSON patch: path {pointer!r} must start with a slash")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _index(step: str, length: int, pointer: str) -> int:
    if not step.isdecimal() or int(step) >= length:
        raise _does_not_apply(f"Unable to access invalid index: {step} of {pointer}")
    return int(step)


def _get(document: Any, pointer: str) -> Any:
    for step in _steps(pointer):
        if isinstance(document, list):
            document = document[_index(step, len(document), pointer)]
        elif isinstance(document, dict) and step in document:
            document = document[step]
        else:
            raise _does_not_apply(f'doc is missing path: "{pointer}": missing value')
    return document


def _parent(document: Any, pointer: str) -> tuple[Any, str]:
    head, _, _ = pointer.rpartition("/")
    return _get(document, head), _steps(pointer)[-1]


def _set(document: Any, pointer: str, value: Any, *, insert: bool) -> Any:
    if not pointer:
        return value
    parent, last = _parent(document, pointer)
    if isinstance(parent, list):
        if insert:
            parent.insert(len(parent) if last == "-" else _index(last, len(parent) + 1, pointer), value)
        else:
            parent[_index(last, len(parent), pointer)] = value
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise _does_not_apply(f'doc is missing path: "{pointer}"')
    return document


def _remove(document: Any, pointer: str) -> Any:
    _get(document, pointer)
    if not pointer:
        raise _does_not_apply("the whole document cannot be removed")
    parent, last = _parent(document, pointer)
    if isinstance(parent, list):
        parent.pop(_index(last, len(parent), pointer))
    else:
        del parent[last]
    return document


def _does_not_apply(why: str) -> StatusError:
    return StatusError(422, "Invalid", f"the server rejected our request due to an error in our request: {why}", {})


# Lists of the built-in kinds that merge by a key of their items (patchMergeKey in their Go types), by field name.
MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
MERGED_SETS = frozenset({"finalizers"})


def strategic_merge(target: Any, patch: Any) -> Any:
    """Strategic merge patch as ``kubectl apply`` sends it: lists by key, and the ``$...`` directives.

    Raises: StatusError 400 for an unknown directive or an item without its key.
    """
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type: {directive}")
    result = dict(target) if isinstance(target, dict) else {}
    if isinstance(retain := patch.get("$retainKeys"), list):
        result = {key: value for key, value in result.items() if key in retain}
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_field(result, key, value)
    for key, value in patch.items():
        name, _, field = key.partition("/")
        if name == "$deleteFromPrimitiveList":
            result[field] = [item for item in result.get(field) or [] if item not in value]
        elif name == "$setElementOrder" and isinstance(result.get(field), list):
            result[field] = _ordered(result[field], value, MERGE_KEYS.get(field))
    return result


def _merge_field(result: Object, key: str, value: Any) -> None:
    old = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(value, list) and key in MERGE_KEYS and all(isinstance(item, dict) for item in value):
        result[key] = _merge_list(old or [], value, MERGE_KEYS[key], key)
    elif isinstance(value, list) and key in MERGED_SETS:
        result[key] = [*(old or []), *(item for item in value if item not in (old or []))]
    elif isinstance(value, dict):
        result[key] = strategic_merge(old, value)
    else:
        result[key] = value


def _merge_list(old: list[Object], patch: list[Object], key: str, field: str) -> list[Object]:
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    result = list(old)
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key} (list {field})")
        at = next((i for i, known in enumerate(result) if known.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            result = [known for known in result if known.get(key) != item[key]]
        elif at is None:
            result.append(strategic_merge({}, item))
        else:
            result[at] = strategic_merge(result[at], item)
    return result


def _ordered(items: list[Any], order: list[Any], key: str | None) -> list[Any]:
    """The items in the order asked for; those that it does not name keep their places relative to their forerunners."""
    wanted = [entry.get(key) if key and isinstance(entry, dict) else entry for entry in order]

    def name(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    named = sorted((item for item in items if name(item) in wanted), key=lambda item: wanted.index(name(item)))
    queue = iter(named)
    return [next(queue) if name(item) in wanted else item for item in items]
