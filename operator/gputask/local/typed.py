"""Schemas of the built-in kinds, read off the models of the ``kubernetes`` package, made from Kubernetes' own.

So a typo in a pod is refused here with the field's name, as the real server refuses it, without a copy of its schema.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from gputask.local.patch import MERGE_KEYS, MERGED_SETS
from gputask.local.schema import Node, Schema
from gputask.local.statuses import StatusError, bad_request

PREFIX = "#/components/schemas/"

_SCALARS: dict[str, Node] = {
    "str": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "datetime": {"type": "string", "format": "date-time"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "object": {"x-kubernetes-preserve-unknown-fields": True},
}
_QUANTITY: Node = {"x-kubernetes-int-or-string": True, "format": "quantity"}
_QUANTITY_MAPS = frozenset({"allocatable", "capacity", "limits", "overhead", "requests", "allocatedResources"})
_QUANTITIES = frozenset({"sizeLimit", "divisor"})
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)"
_IS_QUANTITY = re.compile(rf"^{_NUMBER}(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$")


def typed_schema(model: str) -> Schema:
    """The schema of a model, for instance ``V1Pod``."""
    return Schema({"$ref": PREFIX + model}, component)


@cache
def component(reference: str) -> Node:
    """The schema node of one model by its reference (``#/components/schemas/V1Pod``)."""
    # Half a second of import, paid when the server starts and not by every command.
    from kubernetes.client import models

    model = getattr(models, reference.removeprefix(PREFIX))
    properties = {
        model.attribute_map[name]: _field(model.attribute_map[name], text) for name, text in model.openapi_types.items()
    }
    return {"type": "object", "properties": properties}


def _field(name: str, text: str) -> Node:
    """The node of a field, with what kubectl must know to make a strategic merge patch of it."""
    node = _node(name, text)
    if node.get("type") == "array" and name in MERGE_KEYS and "$ref" in node["items"]:
        return {**node, "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": MERGE_KEYS[name]}
    return {**node, "x-kubernetes-patch-strategy": "merge"} if name in MERGED_SETS else node


def _node(name: str, text: str) -> Node:
    if name in _QUANTITY_MAPS and text == "Dict[str, str]":
        return {"type": "object", "additionalProperties": _QUANTITY}
    if name in _QUANTITIES:
        return _QUANTITY
    if found := re.fullmatch(r"[Ll]ist\[(.+)\]", text):
        return {"type": "array", "items": _node("", found[1])}
    if found := re.fullmatch(r"[Dd]ict\[str, (.+)\]", text):
        return {"type": "object", "additionalProperties": _node("", found[1])}
    return _SCALARS.get(text) or {"$ref": PREFIX + text}


def decoded(obj: Any, schema: Schema, kind: str, version: str) -> Any:
    """The object as Go's decoder would hold it: nulls dropped, numbers of quantities as text.

    Raises: StatusError 400 where a value has another type than the field.
    """

    def walk(value: Any, node: Node, path: str) -> Any:
        node = schema.at(node)
        if node.get("format") == "quantity":
            return _quantity(value, kind, version)
        wanted = node.get("type")
        if wanted is None:
            return value
        if not _is(wanted, value):
            raise _cannot(
                kind, version, f"json: cannot unmarshal {_go(value)} into Go struct field {path} of type {wanted}"
            )
        if wanted == "array":
            return [walk(item, node["items"], f"{path}[{i}]") for i, item in enumerate(value)]
        if wanted != "object":
            return value
        children, others = node.get("properties") or {}, node.get("additionalProperties")
        return {
            key: walk(item, children.get(key) or others or {}, f"{path}.{key}")
            for key, item in value.items()
            if item is not None
        }

    return walk(obj, schema.root, kind)


def _quantity(value: Any, kind: str, version: str) -> str:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _IS_QUANTITY.match(text):
        raise _cannot(
            kind,
            version,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            f" (found {str(value)[:80]!r})",
        )
    return text


def _is(wanted: str, value: Any) -> bool:
    match wanted:
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def _go(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    names: dict[type, str] = {dict: "object", list: "array", str: "string"}
    return names.get(type(value), "number")


def _cannot(kind: str, version: str, why: str) -> StatusError:
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')
