"""What a request class asks, as the planner tries it: options in order of preference (R2).

An option is one variant, or a run of consecutive variants that are equal but for one device suffix: 64
written-out cards are one option whose device is chosen by best fit, like the ``devices`` request that
replaces them.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gputask.planner.model import Amounts, DeviceDemand, RequestClass, Variant


@dataclass(frozen=True, slots=True)
class DevicePart:
    """``units[i]`` of ``pools[i]`` on each of ``count`` distinct devices: any healthy ones, or those ``named``.

    The position of a name is the offset of its variant in the option.
    """

    count: int
    pools: tuple[str, ...]
    units: tuple[int, ...]
    named: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """Variants ``first``, ``first + 1``, ... of a class, of which best fit picks one. ``amounts``: flat keys as
    the request wrote them, that is all but the parts'."""

    first: int
    names: tuple[str, ...]
    amounts: Amounts
    parts: tuple[DevicePart, ...]
    min_time: float


@lru_cache(maxsize=4096)
def options_of(request: RequestClass, node_level: frozenset[str]) -> tuple[Option, ...]:
    """The options of a class, in listed order. Kept from pass to pass: 65 variants take a while to compare.

    :param node_level: keys with a slash that some node offers as a pool of its own: it separates no device
        (``runtime/aaa``), so variants that differ there stay apart.
    """
    options: list[Option] = []
    start = 0
    for end in range(1, len(request.variants) + 1):
        run = request.variants[start : end + 1]
        if end == len(request.variants) or _named_devices(run, node_level) is None:
            options.append(_option(start, request.variants[start:end], node_level))
            start = end
    return tuple(options)


def option_of(request: RequestClass, index: int) -> Option:
    """One variant by itself, for reasons that speak of each."""
    return _option(index, request.variants[index : index + 1], ())


def _option(first: int, run: Sequence[Variant], node_level: Container[str]) -> Option:
    head = run[0]
    amounts = head.amounts
    parts: list[DevicePart] = []
    named = _named_devices(run, node_level) if len(run) > 1 else None
    if named is not None:
        suffix = named[0]
        moving = [(key, units) for key, units in amounts if _split(key)[1] == suffix]
        amounts = tuple(pair for pair in amounts if pair not in moving)
        parts.append(DevicePart(1, tuple(_split(k)[0] for k, _ in moving), tuple(u for _, u in moving), named))
    if head.devices is not None and head.devices.count > 0 and head.devices.amounts:
        parts.append(_any_devices(head.devices))
    return Option(first, tuple(v.name for v in run), amounts, tuple(parts), head.min_time)


def _any_devices(demand: DeviceDemand) -> DevicePart:
    return DevicePart(demand.count, tuple(k for k, _ in demand.amounts), tuple(u for _, u in demand.amounts))


def _named_devices(run: Sequence[Variant], node_level: Container[str]) -> tuple[str, ...] | None:
    """The device suffix of each variant of a run, if they are equal but for it; else None."""
    head, *others = run
    names: list[str] = []
    for other in others:
        step = _differing_suffixes(head, other, node_level)
        if step is None or (names and names[0] != step[0]) or step[1] in names:
            return None
        names = [*(names or [step[0]]), step[1]]
    return tuple(names)


def _differing_suffixes(one: Variant, other: Variant, node_level: Container[str]) -> tuple[str, str] | None:
    if one.devices != other.devices or one.min_time != other.min_time or len(one.amounts) != len(other.amounts):
        return None
    shared = set(one.amounts) & set(other.amounts)
    ours, theirs = set(one.amounts) - shared, set(other.amounts) - shared
    if any(key in node_level for key, _ in ours | theirs):
        return None
    suffixes = {_split(key)[1] for key, _ in ours}, {_split(key)[1] for key, _ in theirs}
    if len(suffixes[0]) != 1 or len(suffixes[1]) != 1 or suffixes[0] == suffixes[1]:
        return None
    (here,), (there,) = suffixes
    if not here or not there or {_split(key)[1] for key, _ in shared} & {here, there}:
        return None
    if {(_split(key)[0], units) for key, units in ours} != {(_split(key)[0], units) for key, units in theirs}:
        return None
    return here, there


def _split(key: str) -> tuple[str, str]:
    """Pool and suffix of a flat key; the suffix is empty without a slash."""
    name, slash, suffix = key.rpartition("/")
    return (name, suffix) if slash else (key, "")
