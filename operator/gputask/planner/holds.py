"""R5: where a blocked task keeps room: one node, variant, devices and labels.

Best is the earliest guaranteed start T* (time limits of what runs and of higher holds); without any T*, where
least is still to be freed, then variant order, then node name. Higher holds count as used, and all holds of a
node fit the empty node together. Within a pass both keys of a node only grow, so a heap of lower bounds is
enough: only the nodes at its top are looked at exactly.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from gputask.planner.model import Hold
from gputask.planner.nodes import NodeState
from gputask.planner.options import Option
from gputask.planner.placement import Choice, choose, to_free
from gputask.planner.probe import Probe
from gputask.planner.table import View

PATIENCE = 300.0
"""Seconds that a hold without an earlier T* stays, even if elsewhere less is to be freed (holdPatienceSeconds)."""

Key = tuple[float, int, int]
"""(T*, to be freed in millionths, position of the option): less is better."""

_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place where a task could hold room."""

    key: Key
    state: NodeState
    choice: Choice

    @property
    def starts_by(self) -> float | None:
        return None if self.key[0] == inf else self.key[0]


class HoldFinder:
    """Finds holds for the blocked tasks of one class, best first."""

    def __init__(self, probes: Sequence[Probe], states: Sequence[NodeState], now: float) -> None:
        self._options = [probe.option for probe in probes]
        self._states = states
        self._now = now
        self._lasting = [probe.lasting for probe in probes]
        self._exact: dict[int, Candidate] = {}
        self._heap = self._lower_bounds(probes)
        heapq.heapify(self._heap)

    def _lower_bounds(self, probes: Sequence[Probe]) -> list[tuple[Key, int, int]]:
        """An entry (key, node, version) for each node that may be held; no version: the key is a bound."""
        least = np.full(len(self._states), np.iinfo(np.int64).max)
        possible = np.zeros(len(self._states), dtype=np.bool_)
        for probe in probes:
            fits = probe.fits(View.UNHELD, probe.lasting)
            possible |= fits
            least[fits] = np.minimum(least[fits], probe.least_to_free(View.SPARE)[fits])
        bounds: list[tuple[Key, int, int]] = []
        for n in np.flatnonzero(possible).tolist():
            end = self._states[n].first_end
            bounds.append(((end, int(least[n]) if end == inf else 0, 0), n, _UNKNOWN))
        return bounds

    def settled(self, state: NodeState, hold: Hold) -> Choice | None:
        """The hold of the pass before, where it is plain to see that it stays: nothing has a guaranteed end, its
        patience is not over, it names no device and no label, and its room is still there. None: look closer."""
        position = self._position(hold)
        if position is None or not self._heap or self._heap[0][0][0] != inf or self._now - hold.since >= PATIENCE:
            return None
        option, taken = self._options[position], hold.allocation
        if option.parts or taken.labels or state.first_end != inf or not self._lasting[position][state.index]:
            return None
        asked = {state.flat(key): units for key, units in option.amounts}
        if len(asked) != len(option.amounts) or asked != taken.amounts:
            return None
        stock = state.unheld
        if any(key in stock.labels or stock.available(key) < units for key, units in taken.amounts.items()):
            return None
        return Choice(option.first, option.names[0], taken)

    def _position(self, hold: Hold) -> int | None:
        """The option that a hold was chosen for."""
        for position, option in enumerate(self._options):
            if option.first <= hold.variant_index < option.first + len(option.names):
                return position
        return None

    def is_unbeaten(self, old: Candidate, since: float) -> bool:
        """Whether a hold stays (:func:`stays`) wherever the best place is; False if only that place can tell.

        The heap's first T* is a bound for all: nodes only lose room in a pass.
        """
        if not self._heap:
            return False
        bound = self._heap[0][0][0]
        return old.key[0] < bound or (old.key[0] == bound and self._now - since < PATIENCE)

    def best(self, excluded: Container[str] = ()) -> Candidate | None:
        """The best place now for the next task of the class, or None if no node can be held."""
        aside: list[tuple[Key, int, int]] = []
        found: Candidate | None = None
        while self._heap and found is None:
            _, n, version = self._heap[0]
            state = self._states[n]
            if state.node.name in excluded:
                aside.append(heapq.heappop(self._heap))
            elif version == state.version:
                found = self._exact[n]
            elif (candidate := self._look(state)) is not None:
                self._exact[n] = candidate
                heapq.heapreplace(self._heap, (candidate.key, n, state.version))
            else:
                heapq.heappop(self._heap)
        for entry in aside:
            heapq.heappush(self._heap, entry)
        return found

    def _look(self, state: NodeState) -> Candidate | None:
        found = [
            candidate
            for position in range(len(self._options))
            if self._lasting[position][state.index] and (candidate := self._candidate(state, position)) is not None
        ]
        return min(found, key=lambda c: c.key, default=None)

    def again(self, state: NodeState, hold: Hold) -> Candidate | None:
        """The hold of the pass before as it stands now: same node, variant and devices; None if it is no more."""
        position = self._position(hold)
        if position is None or not self._lasting[position][state.index]:
            return None
        return self._candidate(state, position, only=frozenset(hold.allocation.devices))

    def _candidate(self, state: NodeState, position: int, only: frozenset[str] | None = None) -> Candidate | None:
        option = self._options[position]
        choice = choose(state, option, state.unheld, only=only)
        if choice is None:
            return None
        starts, timed = guaranteed_start(state, option, only)
        if timed is not None:
            choice = timed
        return Candidate((starts, to_free(choice.allocation, state.spare), position), state, choice)


def guaranteed_start(
    state: NodeState, option: Option, only: frozenset[str] | None = None
) -> tuple[float, Choice | None]:
    """T* on a node: the first guaranteed end after which the option fits beside all that may remain."""
    lives = state.node.lives_until
    timeline = [(end, stock) for end, stock in state.timeline() if lives is None or lives - end >= option.min_time]
    if not timeline or (best := choose(state, option, timeline[-1][1], only=only)) is None:
        return inf, None
    low, high = 0, len(timeline) - 1
    while low < high:  # what fits at one end fits at all later ones
        middle = (low + high) // 2
        if (choice := choose(state, option, timeline[middle][1], only=only)) is not None:
            high, best = middle, choice
        else:
            low = middle + 1
    return timeline[high][0], best


def stays(old: Candidate, best: Candidate, since: float, now: float) -> bool:
    """Whether a hold stays where it is: it moves only to an earlier T*, or after patience to less to be freed."""
    if best.key[0] != old.key[0]:
        return old.key[0] < best.key[0]
    return best.key[1] >= old.key[1] or now - since < PATIENCE
