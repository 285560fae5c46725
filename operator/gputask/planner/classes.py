"""One request class during a pass: what all of its tasks share, computed once and only when needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from gputask.planner.holds import HoldFinder
from gputask.planner.messages import closest_miss, infeasible
from gputask.planner.model import Cause, RequestClass
from gputask.planner.options import Option
from gputask.planner.placement import choose
from gputask.planner.probe import Probe
from gputask.planner.reasons import count_causes
from gputask.planner.table import Bools, Table, View


class ClassState:
    """``current`` is the first option that may still fit somewhere; options before it are done for this pass."""

    def __init__(self, request: RequestClass, options: Sequence[Option], table: Table, usable: Bools, now: float):
        self.request = request
        self.current = 0
        self._table = table
        self._now = now
        self._options = options
        self._usable = usable

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

    @cached_property
    def message(self) -> str:
        """Why its first blocked task did not start."""
        if self.feasible:
            return closest_miss(self.probes, self._table)
        return infeasible(self.probes, self._table, self.request.constraints)

    @cached_property
    def counts(self) -> tuple[Mapping[Cause, int], ...]:
        """As :meth:`counts_without`, with no node excluded; as it was when its first task was blocked."""
        return self.counts_without(np.zeros(len(self._table.states), dtype=np.bool_))

    def counts_without(self, excluded: Bools) -> tuple[Mapping[Cause, int], ...]:
        """For each variant how many nodes refuse it for which cause; excluded nodes are out."""
        counts: list[Mapping[Cause, int]] = []
        for probe in self.probes:
            counts += [count_causes(probe, self._table, excluded)] * len(probe.option.names)
        return tuple(counts)
