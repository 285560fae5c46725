"""Label and field selectors: their text form, and whether an object matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gputask.local.statuses import bad_request

Object = Mapping[str, Any]
Matches = Callable[[Object], bool]

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^\s=!]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s=!]*)$")
_KEY = re.compile(r"^(?P<no>!\s*)?(?P<key>[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?)$")
_COMMA = re.compile(r",(?![^(]*\))")


def label_selector(text: str) -> Matches | None:
    """Whether an object's labels match (``a=b,c!=d,e in (f,g),h,!i``); None if the selector is empty.

    Raises: StatusError 400 where the text is no selector.
    """
    tests = [_label_test(part.strip(), text) for part in _COMMA.split(text) if part.strip()]
    if not tests:
        return None

    def matches(obj: Object) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return matches


def _label_test(part: str, whole: str) -> Callable[[Mapping[str, str]], bool]:
    if found := _SET.match(part):
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUAL.match(part):
        key, value = found["key"], found["value"]
        if found["op"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _KEY.match(part):
        key, wanted = found["key"], not found["no"]
        return lambda labels: (key in labels) is wanted
    raise bad_request(f"unable to parse requirement: found '{part}' in {whole!r}, expected a label selector")


def field_selector(text: str, fields: Mapping[str, tuple[str, ...]]) -> Matches | None:
    """Whether an object's fields match (``spec.nodeName=n1,status.phase!=Failed``); None if the selector is empty.

    fields: the labels that this resource serves, each with its path in the object.
    Raises: StatusError 400 for a field that the resource does not serve.
    """
    tests: list[tuple[tuple[str, ...], str, bool]] = []
    for part in filter(None, (item.strip() for item in text.split(","))):
        found = re.match(r"^(?P<key>[^=!]+)(?P<op>==|=|!=)(?P<value>.*)$", part)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        if found["key"] not in fields:
            raise bad_request(f'field label not supported: "{found["key"]}"')
        tests.append((fields[found["key"]], found["value"], found["op"] != "!="))
    if not tests:
        return None
    return lambda obj: all((_text_at(obj, path) == value) is equal for path, value, equal in tests)


def _text_at(obj: Any, path: tuple[str, ...]) -> str:
    for step in path:
        obj = obj.get(step) if isinstance(obj, Mapping) else None
    if isinstance(obj, bool):
        return "true" if obj else "false"
    return "" if obj is None else str(obj)


def both(first: Matches | None, second: Matches | None) -> Matches | None:
    """The conjunction of two selectors, where None is the one that everything matches."""
    if first is None or second is None:
        return first or second
    return lambda obj: first(obj) and second(obj)


def selects(selector: Mapping[str, Any] | None, obj: Object) -> bool:
    """Whether a LabelSelector (``matchLabels``, ``matchExpressions``) selects an object; an empty one selects all, and
    none at all selects nothing."""
    if selector is None:
        return False
    labels = obj["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(expression, labels) for expression in selector.get("matchExpressions") or ())


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
    return key not in labels
