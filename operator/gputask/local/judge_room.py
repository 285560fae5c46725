"""The judge's own reading of what a node declares, and its own sums."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import yaml

from gputask.local.judge_world import Object

_BYTES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def overfull(node: Object, key: str, claims: Iterable[Object]) -> Iterator[str]:
    """How claims (entries, or room that is kept) on one pool of a node are more than it has; nothing if they fit.

    A label that the node has lost is no part of it: who is on it takes none of the others.
    """
    capacity, labels = declared(node).get(key, (Decimal(0), None))
    total = Decimal(0)
    by_label: dict[str, Decimal] = defaultdict(Decimal)
    for claim in claims:
        amount = Decimal(claim.get("amounts", {}).get(key, "0"))
        for label in claim.get("labels", {}).get(key, ()):
            part = min(amount, Decimal(1))
            amount -= part
            if labels is None or label in labels:
                by_label[label] += part
                total += part
        total += amount
    if total > capacity:
        yield f"{key}: {total} of {capacity}"
    for label, taken in by_label.items():
        if taken > 1:
            yield f"{key}: label {label} taken {taken} times"


def unknown_labels(node: Object, key: str, entry: Object) -> Iterator[str]:
    """The labels of an entry that its node does not have."""
    _, labels = declared(node).get(key, (Decimal(0), None))
    for label in entry.get("labels", {}).get(key, ()):
        if labels is not None and label not in labels:
            yield f"{key}: there is no label {label}"


def declared(node: Object) -> dict[str, tuple[Decimal, frozenset[str] | None]]:
    """Capacity of each pool of a Node manifest, device pools as ``pool/ID``, with the labels of indexed ones."""
    annotations = node.get("metadata", {}).get("annotations") or {}
    pools: dict[str, tuple[Decimal, frozenset[str] | None]] = {}
    for name, value in (node.get("status", {}).get("allocatable") or {}).items():
        pools[name] = (_quantity(str(value), in_bytes=name in {"memory", "ephemeral-storage"}), None)
    devices = _loaded(annotations.get("gputask.dev/devices"), [])
    ids = {str(d["id"]) for d in devices}
    by_index = {str(d["index"]): str(d["id"]) for d in devices if d.get("index") is not None}
    for device in devices:
        for name, value in device.get("resources", {}).items():
            pools[f"{name}/{device['id']}"] = _pool(value)
    for name, value in _loaded(annotations.get("gputask.dev/resources"), {}).items():
        base, slash, suffix = str(name).rpartition("/")
        device_id = suffix if suffix in ids else by_index.get(suffix, suffix)
        pools[f"{base}/{device_id}" if slash else str(name)] = _pool(value)
    return pools


def _loaded(text: str | None, nothing: Any) -> Any:
    """An annotation; what cannot be read declares nothing."""
    try:
        return yaml.safe_load(text or "") or nothing
    except yaml.YAMLError:
        return nothing


def _pool(value: Any) -> tuple[Decimal, frozenset[str] | None]:
    text = str(value).strip() if not isinstance(value, list) else "[" + ",".join(_flat(value)) + "]"
    if match := re.fullmatch(r"sum\((.*)\)", text):
        return Decimal(match[1]), None
    if match := re.fullmatch(r"range\((\d+)-(\d+)\)", text):
        labels = frozenset(str(i) for i in range(int(match[1]), int(match[2]) + 1))
        return Decimal(len(labels)), labels
    if match := re.fullmatch(r"(\d+)x(\d+)", text):
        return Decimal(int(match[1]) * int(match[2])), None
    if text.startswith("["):
        labels = frozenset(part.strip(" []\"'") for part in text.split(",") if part.strip(" []\"'"))
        return Decimal(len(labels)), labels
    return _quantity(text, in_bytes=False), None


def _flat(value: list[Any]) -> Iterator[str]:
    for item in value:
        yield from _flat(item) if isinstance(item, list) else [str(item)]


def _quantity(text: str, *, in_bytes: bool) -> Decimal:
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    if match is None:
        return Decimal(0)
    number, unit = Decimal(match[1]), match[2]
    if unit == "m":
        return number / 1000
    size = number * _BYTES.get(unit, 1)
    return size / 2**20 if in_bytes or unit else size
