"""Structural schemas: what they drop from an object and what they add to it. What they refuse is in validation.py.

One walker serves the built-in kinds (schemas of their Go types, with ``$ref``) and the custom ones (schemas of CRDs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
Node = Mapping[str, Any]
"""One node of a schema, as OpenAPI writes it."""

TYPE_FIELDS = ("apiVersion", "kind", "metadata")


def _no_reference(name: str) -> Node:
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Schema:
    """A root node, and who knows the nodes that it refers to by name."""

    root: Node = field(default_factory=lambda: {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    resolve: Callable[[str], Node] = _no_reference

    def at(self, node: Node) -> Node:
        """The node itself, or the one that it refers to."""
        reference = node.get("$ref")
        return node if reference is None else self.resolve(reference)

    def prune(self, obj: Object) -> tuple[Object, list[str]]:
        """The object without fields that the schema does not know, and the paths of those."""
        unknown: list[str] = []
        pruned: Object = self._prune(obj, self.root, "", unknown, root=True)
        return pruned, unknown

    def fill(self, obj: Object) -> Object:
        """The object with the schema's defaults where a field is missing."""
        filled: Object = self._fill(obj, self.root)
        return filled

    def _prune(self, value: Any, node: Node, path: str, unknown: list[str], *, root: bool = False) -> Any:
        node = self.at(node)
        if isinstance(value, list):
            items = node.get("items")
            if items is None:
                return value
            return [self._prune(item, items, f"{path}[{i}]", unknown) for i, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        keep = bool(node.get("x-kubernetes-preserve-unknown-fields"))
        embedded = root or bool(node.get("x-kubernetes-embedded-resource"))
        return self._prune_map(value, node, path, unknown, keep=keep, embedded=embedded)

    def _prune_map(
        self, value: Object, node: Node, path: str, unknown: list[str], *, keep: bool, embedded: bool
    ) -> Object:
        properties: Node = node.get("properties") or {}
        others = node.get("additionalProperties")
        if not properties and not others and node.get("type") != "object":
            return value
        kept: Object = {}
        for key, item in value.items():
            at = f"{path}.{key}" if path else key
            if embedded and key in TYPE_FIELDS:
                kept[key] = item  # whatever a CRD says of its metadata, the server knows better
            elif key in properties:
                kept[key] = self._prune(item, properties[key], at, unknown)
            elif isinstance(others, dict):
                kept[key] = self._prune(item, others, at, unknown)
            elif keep or others is True:
                kept[key] = item
            else:
                unknown.append(at)
        return kept

    def _fill(self, value: Any, node: Node) -> Any:
        """The value itself where nothing was missing, so that unchanged parts stay recognisable as such."""
        node = self.at(node)
        if isinstance(value, list):
            items = node.get("items")
            if items is None:
                return value
            whole = [self._fill(item, items) for item in value]
            return whole if any(new is not old for new, old in zip(whole, value, strict=True)) else value
        if not isinstance(value, dict):
            return value
        known: Node = node.get("properties") or {}
        found: Object = {}
        for key, child in known.items():
            child = self.at(child)
            item = value.get(key)
            if item is None and "default" in child and not (key in value and child.get("nullable")):
                found[key] = self._fill(deepcopy(child["default"]), child)
            elif key in value and (filled := self._fill(item, child)) is not item:
                found[key] = filled
        others = node.get("additionalProperties")
        if isinstance(others, dict):
            for key, item in value.items():
                if key not in known and (filled := self._fill(item, others)) is not item:
                    found[key] = filled
        return {**value, **found} if found else value
