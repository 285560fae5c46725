"""One request class during a pass: what all of its tasks share, computed once and only when needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gputask.planner.holds import HoldFinder
from gputask.planner.messages import closest_miss, infeasible
from gputask.planner.model import Cause, RequestClass
from gputask.planner.nodes import NodeState
from gputask.planner.options import Option
from gputask.planner.placement import choose
from gputask.planner.probe import Probe
from gputask.planner.reasons import count_causes
from gputask.planner.table import Bools, Table, View


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why blocked tasks of a class do not start: see :class:`Waiting`."""

    feasible: bool
    counts: tuple[Mapping[Cause, int], ...]
    message: str


class ClassState:
    """``current`` is the first option that may still fit somewhere; options before it are done for this pass."""

    def __init__(self, request: RequestClass, options: Sequence[Option], table: Table, usable: Bools, now: float):
        self.request = request
        self.current = 0
        self._table = table
        self._now = now
        self._options = options
        self._usable = usable
        self._verdicts: dict[frozenset[str], Verdict] = {}

    @cached_property
    def probes(self) -> list[Probe]:
        return [Probe(self._table, option, self._usable, self._now) for option in self._options]

    @cached_property
    def feasible(self) -> bool:
        """Whether some usable node would run it when empty of our work, less foreign use (R4)."""
        for probe in self.probes:
            for n in np.flatnonzero(probe.fits(View.EMPTY, probe.lasting)).tolist():
                state = self._table.states[n]
                if choose(state, probe.option, state.empty) is not None:
                    return True
        return False

    @cached_property
    def finder(self) -> HoldFinder:
        """Where its blocked tasks can hold room; made when the first of them is blocked."""
        self._table.sync()
        return HoldFinder(self.probes, self._table.states, self._now)

    def may_last(self, variant_index: int, state: NodeState) -> bool:
        """Whether the filters admit this node for a variant, and it lives long enough."""
        for probe in self.probes:
            if probe.option.first <= variant_index < probe.option.first + len(probe.option.names):
                return bool(probe.lasting[state.index])
        return False

    def verdict(self, excluded: frozenset[str]) -> Verdict:
        """Why a blocked task does not start, as it was when the first such task of the class was blocked."""
        if excluded not in self._verdicts:
            out = np.array([name in excluded for name in self._table.node_names], dtype=np.bool_)
            self._verdicts[excluded] = Verdict(self.feasible, self._counts(out), self._message(out))
        return self._verdicts[excluded]

    def _counts(self, excluded: Bools) -> tuple[Mapping[Cause, int], ...]:
        counts: list[Mapping[Cause, int]] = []
        for probe in self.probes:
            counts += [count_causes(probe, self._table, excluded)] * len(probe.option.names)
        return tuple(counts)

    def _message(self, excluded: Bools) -> str:
        if self.feasible:
            return closest_miss(self.probes, self._table, excluded)
        return infeasible(self.probes, self._table, self.request.constraints)
