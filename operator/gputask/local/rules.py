"""CEL rules of CRDs (``x-kubernetes-validations``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import cel

from gputask.local.schema import Node
from gputask.local.statuses import Cause, forbidden_field, invalid, required

_REASONS = {"FieldValueRequired": required, "FieldValueForbidden": forbidden_field}


class RuleError(Exception):
    """A rule that is no CEL, or that uses what this server's CEL does not have."""


# What Kubernetes' CEL has on top of the standard and the library used here has not: better refused with the CRD than
# failing on each object.
_MISSING = frozenset(
    {"quantity", "isQuantity", "url", "isURL", "ip", "isIP", "cidr", "isCIDR", "format", "semver", "isSorted", "sum"}
    | {"indexOf", "lastIndexOf", "find", "findAll", "split", "join", "replace", "substring", "lowerAscii", "upperAscii"}
    | {"trim", "charAt", "reverse", "authorizer", "optional.of", "optional.none"}
)


@lru_cache(maxsize=1024)
def compiled(text: str) -> cel.Program:
    """The program of a rule. Raises: RuleError."""
    try:
        program = cel.compile(text)
    except ValueError as error:
        raise RuleError(f"compilation failed: {str(error).splitlines()[0]}") from None
    if missing := _MISSING.intersection(program.functions()):
        raise RuleError(f"compilation failed: undeclared reference to '{min(missing)}' (not in this server's CEL)")
    if unknown := set(_roots(text)) - {"self", "oldSelf"} - set(program.functions()):
        raise RuleError(f"compilation failed: undeclared reference to '{min(unknown)}'")
    return program


@lru_cache(maxsize=1024)
def _roots(text: str) -> tuple[str, ...]:
    """The free variables of a rule: all but those that a macro (``all(v, ...)``) binds."""
    bound = set(re.findall(r"\.(?:all|exists|exists_one|existsOne|map|filter)\(\s*(\w+)\s*,", text))
    types = {"string", "int", "uint", "double", "bool", "bytes", "list", "map", "null_type", "type"}
    return tuple(name for name in cel.compile(text).variables() if name not in bound | types)


@lru_cache(maxsize=1024)
def _fields_used(text: str) -> frozenset[str] | None:
    """The fields of self and oldSelf that a rule names, or None if it uses one of them as a whole."""
    # A name that is called (self.all(...)) is a function of the whole, and no field.
    if re.search(r"\b(?:self|oldSelf)\b(?!\s*\.\s*[A-Za-z_]\w*\b(?!\s*\())", text):
        return None
    return frozenset(re.findall(r"\b(?:self|oldSelf)\s*\.\s*(\w+)", text))


def broken_rules(value: Any, old: Any, node: Node, path: str) -> Iterator[Cause]:
    """One cause for each rule of a schema node that the value breaks.

    A rule that names oldSelf is a transition rule: without an old value it does not run.
    """
    for rule in node["x-kubernetes-validations"]:
        text = rule["rule"]
        transition = "oldSelf" in _roots(text)
        if transition and old is None and not rule.get("optionalOldSelf"):
            continue
        variables = {"self": _narrow(value, text)}
        if transition:
            variables["oldSelf"] = _narrow(old, text)
        try:
            kept = compiled(text).execute(variables)
        except Exception as error:  # The library raises KeyError, RuntimeError, TypeError, ValueError by kind of fault.
            yield _cause(rule, node, path, f"rule evaluation error: {_told(error)} (rule: {text})")
            continue
        if kept is not True:
            yield _cause(rule, node, path, _message(rule, variables))


def _narrow(value: Any, text: str) -> Any:
    """Only the fields that the rule names: the library converts all that it is given, and a template can be large."""
    fields = _fields_used(text)
    if fields is None or not isinstance(value, Mapping):
        return value
    return {name: value[name] for name in fields if name in value}


def _told(error: Exception) -> str:
    return f"no such key: {error.args[0]}" if isinstance(error, KeyError) else str(error)


def _message(rule: Mapping[str, Any], variables: dict[str, Any]) -> str:
    if expression := rule.get("messageExpression"):
        try:
            said = compiled(expression).execute(variables)
        except Exception:
            said = None
        if isinstance(said, str) and said.strip():
            return said.strip()
    return str(rule.get("message") or f"failed rule: {rule['rule'].strip()}").strip()


def _cause(rule: Mapping[str, Any], node: Node, path: str, message: str) -> Cause:
    path += rule.get("fieldPath", "")
    if (reason := rule.get("reason")) in _REASONS:
        return _REASONS[reason](path, message)
    shown: Any = {} if node.get("type") == "object" else [] if node.get("type") == "array" else node.get("type", "")
    return invalid(path, shown, message)
