"""Many objects in little memory: a mapping that keeps each as the JSON text that it came as.

As dicts, GpuTasks take five times the memory, and the garbage collector walks over every part of them. A read decodes:
some microseconds for a kilobyte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Packed(MutableMapping[str, dict[str, Any]]):
    """Objects by key. What a read gives belongs to the reader: another read gives another object, equal to it."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}

    def __getitem__(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = _decode(self._texts[key])
        return found

    def __setitem__(self, key: str, value: Mapping[str, Any]) -> None:
        self._texts[key] = _encode(value)

    def __delitem__(self, key: str) -> None:
        del self._texts[key]

    def __contains__(self, key: object) -> bool:
        return key in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)
