"""Breadth-first exploration of all states within bounds, with the shortest trace to a violation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from .checks import violation
from .rules import PROTOCOL, Bounds, Rules
from .state import State
from .steps import Label
from .world import initial, successors


@dataclass
class Result:
    """What was found. `trace` leads from the initial state to `broken`; both are empty if nothing is broken."""

    states: int = 0
    transitions: int = 0
    broken: str | None = None
    trace: list[tuple[Label, State]] = field(default_factory=list)
    reached: list[State] = field(default_factory=list)


def explore(
    bounds: Bounds,
    rules: Rules = PROTOCOL,
    *,
    check: Callable[[State], str | None] = violation,
    exact: bool = False,
) -> Result:
    """Visit every state once, nearest first; stop at the first that `check` objects to."""
    start = initial(bounds)
    numbers: dict[State, int] = {start: 0}
    reached, parents = [start], [0]
    parts: dict[object, object] = {}  # equal tasks, pods, nodes and writes are kept once: states are many
    result = Result(reached=reached)
    number = 0
    while number < len(reached):
        for _, after in successors(reached[number], bounds, rules, exact=exact):
            result.transitions += 1
            if after in numbers:
                continue
            after = State._make(parts.setdefault(part, part) for part in after)
            numbers[after] = len(reached)
            reached.append(after)
            parents.append(number)
            result.broken = check(after)
            if result.broken:
                result.states = len(reached)
                result.trace = _trace(reached, parents, bounds, rules, exact)
                return result
        number += 1
    result.states = len(reached)
    return result


def _trace(
    reached: list[State], parents: list[int], bounds: Bounds, rules: Rules, exact: bool
) -> list[tuple[Label, State]]:
    """Labels are not kept while exploring; those of the one path that matters are found again."""
    path = [len(reached) - 1]
    while path[-1]:
        path.append(parents[path[-1]])
    path.reverse()
    steps = []
    for before, after in pairwise(path):
        found = (step for step in successors(reached[before], bounds, rules, exact=exact) if step[1] == reached[after])
        steps.append(next(found))
    return steps
