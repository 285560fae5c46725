"""How a pool is written: HyperQueue's descriptors and their plain forms (design, section 3).

================================  =======================================================================
``8``, ``"0.5"``, ``8Gi``         a sum of so much; byte units for memory-like names
``"sum(1.5)"``                    a sum; any part of it can be taken
``[a,b]``, ``"[a,b]"``            labels with identity
``"range(0-7)"``                  the labels 0 to 7
``[[0,1],[2,3]]``, ``"2x4"``      labels in groups; the groups themselves are not used yet
``"unknown"``                     how much there is, is not known
================================  =======================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gputask.resources.amounts import parse_amount
from gputask.resources.pools import IndexedPool, Pool, SumPool, UnknownPool

MAX_LABELS = 1024
"""Labels of one pool."""

_LABEL = re.compile(r"[!-~]{1,63}")
_NOT_IN_LABELS = set("[],+\"'")
_SUM = re.compile(r"sum\((.*)\)")
_RANGE = re.compile(r"range\(\s*(\d{1,9})\s*-\s*(\d{1,9})\s*\)")
_GROUPS = re.compile(r"([1-9]\d{0,8})\s*x\s*([1-9]\d{0,8})")
_TOKEN = re.compile(r"\s*(?:([\[\],])|\"([^\"]*)\"|'([^']*)'|([^\[\],\"']*[^\[\],\"'\s]))\s*")


def parse_pool(value: object, name: str) -> Pool:
    """The pool that a declaration of ``name`` describes. Capacity with a unit is rounded down.

    :raises ValueError: one line, without the name.
    """
    if isinstance(value, list):
        return _indexed(_labels(value))
    if not isinstance(value, str):
        return SumPool(parse_amount(value, name, rounding="down"))
    text = value.strip()
    if text == "unknown":
        return UnknownPool()
    if text.startswith("["):
        return _indexed(_labels(_nested(text)))
    if match := _SUM.fullmatch(text):
        return SumPool(parse_amount(match[1].strip(), name, rounding="down"))
    if match := _RANGE.fullmatch(text):
        return _range(int(match[1]), int(match[2]))
    if match := _GROUPS.fullmatch(text):
        return _range(0, int(match[1]) * int(match[2]) - 1)
    if "(" in text:
        raise ValueError(f"{text[:80]!r} is no descriptor; write sum(N), range(A-B), [a,b], NxM, unknown or a number")
    return SumPool(parse_amount(text, name, rounding="down"))


def _range(first: int, last: int) -> IndexedPool:
    if last < first - 1:
        raise ValueError(f"range({first}-{last}) runs backwards; write the smaller number first")
    _few(last - first + 1)
    return IndexedPool(tuple(str(i) for i in range(first, last + 1)))


def _indexed(labels: Iterator[str]) -> IndexedPool:
    found = tuple(labels)
    _few(len(found))
    if len(set(found)) != len(found):
        twice = next(label for label in found if found.count(label) > 1)
        raise ValueError(f"label {twice!r} stands there twice; labels are identities, so each stands once")
    return IndexedPool(found)


def _labels(values: list[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, list):
            yield from _labels(value)
            continue
        label = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
        if not _LABEL.fullmatch(label) or _NOT_IN_LABELS & set(label):
            raise ValueError(f"{str(value)[:80]!r} cannot be a label; use letters, digits and signs, no space or comma")
        yield label


def _few(count: int) -> None:
    if count > MAX_LABELS:
        raise ValueError(f"{count} labels are too many, the limit is {MAX_LABELS}; declare sum({count})")


def _nested(text: str) -> list[object]:
    """The lists in ``[a,b]`` and ``[[0,1],[2,3]]``: labels may be quoted, and need not be."""
    stack: list[list[object]] = [[]]
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(stack) > 3:
            break
        position = match.end()
        if match[1] == "[":
            stack.append([])
        elif match[1] == "]":
            if len(stack) < 2:
                break
            done = stack.pop()
            stack[-1].append(done)
        elif match[1] is None:
            stack[-1].append(match[2] or match[3] or match[4] or "")
    else:
        if len(stack) == 1 and len(stack[0]) == 1 and isinstance(stack[0][0], list):
            return stack[0][0]
    raise ValueError(f"{text[:80]!r} is no list of labels; write [a,b] or [[0,1],[2,3]]")
