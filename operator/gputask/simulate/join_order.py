"""Which node joins at which instant: the instants stay, the names move. A right planner does not care (R8)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from gputask.simulate.scenario import Millis, NodeVersion


def reorder(versions: Sequence[NodeVersion], order: str, *, seed: int = 0) -> tuple[NodeVersion, ...]:
    """Node versions such that the nodes join in this order.

    :param order: ``given`` (by instant, then as the files have them), ``reverse``, ``shuffle`` (by ``seed``), or all
        names with commas between them.
    :raises ValueError: one line, when the names are not exactly those of the nodes.
    """
    by_name: dict[str, list[NodeVersion]] = {}
    # Sorting is stable: nodes of one instant stay as the files have them.
    for version in sorted(versions, key=lambda version: version.at):
        by_name.setdefault(version.node.name, []).append(version)
    given = list(by_name)
    slots = [by_name[name][0].at for name in given]
    return tuple(
        version
        for name, slot in zip(_names(given, order, seed), slots, strict=True)
        for version in _moved(by_name[name], slot)
    )


def _names(given: list[str], order: str, seed: int) -> list[str]:
    match order:
        case "given":
            return given
        case "reverse":
            return given[::-1]
        case "shuffle":
            return random.Random(seed).sample(given, len(given))
    wanted = [name.strip() for name in order.split(",")]
    if sorted(wanted) != sorted(given):
        raise ValueError(f"{order!r} is no order of the nodes; write given, reverse, shuffle or {','.join(given)}")
    return wanted


def _moved(versions: list[NodeVersion], slot: Millis) -> list[NodeVersion]:
    """Its versions when it joins at another instant: the one in force there comes first, later ones stay. One that
    would be gone by then never comes."""
    in_force = [version for version in versions if version.at <= slot] or versions[:1]
    moved = [replace(in_force[-1], at=slot), *(version for version in versions[1:] if version.at > slot)]
    return [version for version in moved if version.until is None or version.at < version.until]
