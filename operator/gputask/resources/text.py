"""Reading the JSON or YAML text of an annotation: strict, bounded, and never raising anything but ValueError."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import yaml

MAX_CHARACTERS = 65_536
"""Longest annotation that is read: several hundred devices."""

ECHO = 80
"""Characters of somebody's text that a message repeats at most."""


_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_SafeLoader):  # type: ignore[misc]
    """Safe YAML without repeated keys. A number is kept as it was written, so that no amount passes through a float."""


def _mapping(loader: Any, node: Any) -> dict[str, Any]:
    return _unique([(_key(loader, key), loader.construct_object(value, deep=True)) for key, value in node.value])


def _key(loader: Any, node: Any) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError("a key is no text; write name: value")
    return str(node.value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{str(key)[:ECHO]!r} stands there twice; each name stands once")
        found[key] = value
    return found


def _number(loader: Any, node: Any) -> str:
    return str(node.value)


_StrictLoader.add_constructor("tag:yaml.org,2002:map", _mapping)
for _tag in ("int", "float", "timestamp"):
    _StrictLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _number)


def read_text(text: str) -> Any:
    """The value of a JSON or YAML text. Numbers come as int, Decimal or as the text they were written in.

    :raises ValueError: one line: what is wrong and what would be right.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{len(text)} characters are too many; at most {MAX_CHARACTERS} are read")
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError:
        pass
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    try:
        if any(isinstance(event, yaml.events.AliasEvent) for event in yaml.parse(text, Loader=_SafeLoader)):
            raise ValueError("YAML aliases are not read, as they can blow up a short text; write the value out")
        return yaml.load(text, Loader=_StrictLoader)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeError:
        raise ValueError("it is no valid Unicode text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or "it cannot be read"
        raise ValueError(f"it is neither JSON nor YAML: {str(what)[:ECHO]}{where}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no amount")
