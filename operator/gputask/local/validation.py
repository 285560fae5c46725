"""What a CRD's schema refuses, in the API server's words: types, bounds, enumerations, patterns, list keys, rules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from gputask.local.rules import broken_rules
from gputask.local.schema import TYPE_FIELDS, Node, Object
from gputask.local.statuses import (
    Cause,
    duplicate,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
    wrong_type,
)

Causes = Iterator[Cause]


def problems(obj: Object, old: Object | None, root: Node) -> list[Cause]:
    """Everything wrong with a custom object; ``old`` is its stored state, for transition rules.

    CEL rules are judged only on objects that the rest of the schema accepts, as the real server does.
    """
    before = old or {}
    # What a request did not touch (the spec in a write of the status) is the stored part itself, and was judged then.
    own = {key: value for key, value in obj.items() if key not in TYPE_FIELDS and value is not before.get(key)}
    children = {key: node for key, node in (root.get("properties") or {}).items() if key not in TYPE_FIELDS}
    missing = [name for name in root.get("required", ()) if name not in obj]
    shape = {**root, "properties": children, "required": missing}
    causes = list(_problems(own, shape, ""))
    if causes:
        return causes
    return list(_rules(obj, old, root, ""))


def _problems(value: Any, node: Node, path: str) -> Causes:
    if value is None and node.get("nullable"):
        return
    if (wrong := _type_problem(value, node, path)) is not None:
        yield wrong
        return
    if "enum" in node and value not in node["enum"]:
        yield unsupported(path, value, node["enum"])
    if isinstance(value, str):
        yield from _string(value, node, path)
    elif isinstance(value, list):
        yield from _list(value, node, path)
    elif isinstance(value, dict):
        yield from _map(value, node, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, node, path)
    yield from _junctors(value, node, path)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
    "integer": lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v == int(v),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
}


def _type_problem(value: Any, node: Node, path: str) -> Cause | None:
    wanted: tuple[str, ...]
    if node.get("x-kubernetes-int-or-string"):
        wanted = ("integer", "string")
    elif "type" in node:
        wanted = (node["type"],)
    else:
        return None
    if any(_TYPES[name](value) for name in wanted):
        return None
    found = _type_name(value)
    return wrong_type(path, found, f'{path} in body must be of type {",".join(wanted)}: "{found}"')


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    return {float: "number", str: "string", list: "array"}.get(type(value), "object")


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    # Go's $ is the end of the text; Python's also matches before a last newline.
    return re.compile(re.sub(r"\\.|\[(?:\\.|[^\]])*\]|\$", lambda m: r"\Z" if m[0] == "$" else m[0], text))


def _string(value: str, node: Node, path: str) -> Causes:
    if len(value) > node.get("maxLength", len(value)):
        yield too_long(path, node["maxLength"])
    if len(value) < node.get("minLength", 0):
        yield invalid(path, value, f"{path} in body should be at least {node['minLength']} chars long")
    if "pattern" in node and not _pattern(node["pattern"]).search(value):
        yield invalid(path, value, f"{path} in body should match '{node['pattern']}'")
    if node.get("format") == "date-time" and not _DATE_TIME.match(value):
        yield invalid(path, value, f'{path} in body must be of type date-time: "{value}"')


_DATE_TIME = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)\Z")
_WIDTHS = {"int32": 31, "int64": 63}


def _number(value: float, node: Node, path: str) -> Causes:
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and (value < low or (value == low and node.get("exclusiveMinimum"))):
        than = "greater than" if node.get("exclusiveMinimum") else "greater than or equal to"
        yield invalid(path, value, f"{path} in body should be {than} {low}")
    if high is not None and (value > high or (value == high and node.get("exclusiveMaximum"))):
        than = "less than" if node.get("exclusiveMaximum") else "less than or equal to"
        yield invalid(path, value, f"{path} in body should be {than} {high}")
    if (multiple := node.get("multipleOf")) is not None and value % multiple:
        yield invalid(path, value, f"{path} in body should be a multiple of {multiple}")
    bits = _WIDTHS.get(node.get("format", ""))
    if bits is not None and not -(1 << bits) <= value < 1 << bits:
        yield invalid(path, value, f"{path} in body must be of type {node['format']}: {json.dumps(value)}")


def _list(value: list[Any], node: Node, path: str) -> Causes:
    if len(value) > node.get("maxItems", len(value)):
        yield too_many(path, len(value), node["maxItems"])
    if len(value) < node.get("minItems", 0):
        yield invalid(path, len(value), f"{path} in body should have at least {node['minItems']} items")
    if (items := node.get("items")) is not None:
        for i, item in enumerate(value):
            yield from _problems(item, items, f"{path}[{i}]")
    yield from _twins(value, node, path)


def _twins(value: list[Any], node: Node, path: str) -> Causes:
    kind = node.get("x-kubernetes-list-type", "set" if node.get("uniqueItems") else "atomic")
    if kind == "atomic":
        return
    seen = set()
    for i, item in enumerate(value):
        shown = json.dumps(item)
        if kind == "map":
            if not isinstance(item, dict):
                continue
            key = {name: item.get(name) for name in node["x-kubernetes-list-map-keys"]}
            shown = (
                "map[string]interface {}{" + ", ".join(f"{json.dumps(k)}:{json.dumps(v)}" for k, v in key.items()) + "}"
            )
        if shown in seen:
            yield duplicate(f"{path}[{i}]", shown)
        seen.add(shown)


def _map(value: Mapping[str, Any], node: Node, path: str) -> Causes:
    if len(value) > node.get("maxProperties", len(value)):
        yield too_many(path, len(value), node["maxProperties"])
    if len(value) < node.get("minProperties", 0):
        yield invalid(path, len(value), f"{path} in body should have at least {node['minProperties']} properties")
    properties = node.get("properties") or {}
    others = node.get("additionalProperties")
    for name in node.get("required", ()):
        if name not in value and name not in TYPE_FIELDS:
            yield required(_join(path, name))
    for name, item in value.items():
        child = properties.get(name) or (others if isinstance(others, dict) else None)
        if child is not None:
            yield from _problems(item, child, _join(path, name))


def _junctors(value: Any, node: Node, path: str) -> Causes:
    for child in node.get("allOf", ()):
        yield from _problems(value, child, path)
    if "anyOf" in node and not any(_fits(value, child, path) for child in node["anyOf"]):
        yield invalid(path, value, f"{path} in body must validate at least one schema (anyOf)")
    if "oneOf" in node and sum(_fits(value, child, path) for child in node["oneOf"]) != 1:
        yield invalid(path, value, f"{path} in body must validate one and only one schema (oneOf)")
    if "not" in node and _fits(value, node["not"], path):
        yield invalid(path, value, f"{path} in body must not validate the schema (not)")


def _fits(value: Any, node: Node, path: str) -> bool:
    return next(_problems(value, node, path), None) is None


def _rules(value: Any, old: Any, node: Node, path: str) -> Causes:
    if value is None:
        return
    if "x-kubernetes-validations" in node:
        yield from broken_rules(value, old, node, path)
    if isinstance(value, list) and (items := node.get("items")) is not None:
        twins = _old_items(old, node)
        for i, item in enumerate(value):
            yield from _rules(item, twins(item), items, f"{path}[{i}]")
    elif isinstance(value, dict):
        properties, others = node.get("properties") or {}, node.get("additionalProperties")
        before = old if isinstance(old, dict) else {}
        for name, item in value.items():
            child = properties.get(name) or (others if isinstance(others, dict) else None)
            if child is not None and item is not before.get(name):
                yield from _rules(item, before.get(name), child, _join(path, name))


def _old_items(old: Any, node: Node) -> Callable[[Any], Any]:
    """Which old item a new one continues: by key in lists of type map, else none (and no transition rule runs)."""
    if not isinstance(old, list) or node.get("x-kubernetes-list-type") != "map":
        return lambda _: None
    keys = node["x-kubernetes-list-map-keys"]
    index = {tuple(item.get(key) for key in keys): item for item in old}
    return lambda item: index.get(tuple(item.get(key) for key in keys))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
