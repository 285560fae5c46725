"""R11: whom to evict for a blocked task, and where. Decides only; nobody is evicted here.

A set of victims is on one node, and with it gone the task fits there in every dimension, beside all that stays and
all higher holds. It is minimal: no member could stay. Found by taking all possible victims out and giving back what
need not go, in three orders: the most important first, which keeps the top priority of the set as low as it can be,
the largest share first, which disturbs the least of the node, and the smallest share first, which needs few victims.
Of all sets for the first variant that has any, the cheapest is taken.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from gputask.planner.model import Running, Task
from gputask.planner.nodes import NodeState, Occupant
from gputask.planner.placement import PPM, Choice, choose, ratio
from gputask.planner.probe import Probe
from gputask.planner.table import View

Cost = tuple[int, int, float, tuple[float, ...], str]
"""Top priority, number, seconds of work lost, -created of each (the youngest first), node name: less is better."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """Who goes, and what the task takes once they are gone."""

    cost: Cost
    state: NodeState
    choice: Choice
    victims: tuple[Running, ...]


class Preemption:
    """Finds victims during one pass. ``budgets``: how many evictions each allows now."""

    def __init__(self, states: Sequence[NodeState], budgets: Mapping[str, int], now: float) -> None:
        self._states = states
        self._budgets = dict(budgets)
        self._now = now
        self._lowest = [min((w.priority for w in self._evictable(s)), default=inf) for s in states]
        """For each node the priority of the least important work that may be evicted there."""
        self._lowest_of_all = min(self._lowest, default=inf)

    # --- questions ------------------------------------------------------------------------------------

    def is_hopeless(self, task: Task) -> bool:
        """Whether no node has any work that may be evicted for this task."""
        return not task.may_preempt or task.priority <= self._lowest_of_all

    def room_comes(self, task: Task, probes: Sequence[Probe]) -> bool:
        """Whether work that leaves already makes room for the task somewhere: then nobody is evicted for it."""
        return any(
            choose(state, probe.option, state.without(state.leaving)) is not None
            for probe in probes
            for state in self._open(task, probe)
            if state.leaving
        )

    def find(self, task: Task, probes: Sequence[Probe]) -> Eviction | None:
        """The cheapest set of victims for the first variant that has any."""
        for probe in probes:
            best: Eviction | None = None
            for bound, state in self._in_order(task, probe):
                if best is not None and best.cost < bound:
                    break
                for found in self._sets(task, probe, state):
                    if best is None or found.cost < best.cost:
                        best = found
            if best is not None:
                return best
        return None

    def spend(self, state: NodeState, victims: Iterable[Running]) -> None:
        """These leave ``state`` now: they are nobody else's victims, and their budgets are spent."""
        for victim in victims:
            for budget in victim.budgets:
                if budget in self._budgets:
                    self._budgets[budget] -= 1
        self._lowest[state.index] = min((w.priority for w in self._evictable(state)), default=inf)
        self._lowest_of_all = min(self._lowest)

    # --- where ----------------------------------------------------------------------------------------

    def _open(self, task: Task, probe: Probe) -> Iterator[NodeState]:
        """Usable nodes where the option fits beside holds, if everything else were gone."""
        for n in np.flatnonzero(probe.fits(View.UNHELD, probe.lasting)).tolist():
            if self._states[n].node.name not in task.excluded_nodes:
                yield self._states[n]

    def _in_order(self, task: Task, probe: Probe) -> Iterator[tuple[Cost, NodeState]]:
        """Nodes with possible victims, and what a set there costs at the least; the cheapest bound first."""
        heap = []
        for state in self._open(task, probe):
            if self._lowest[state.index] < task.priority:
                bound = min(
                    (w.priority, 1, self._lost((w,)), (-w.created,), state.node.name)
                    for w in self._victims(task, state)
                )
                heap.append((bound, state.index))
        heapq.heapify(heap)
        while heap:
            bound, index = heapq.heappop(heap)
            yield bound, self._states[index]

    # --- who ------------------------------------------------------------------------------------------

    def _evictable(self, state: NodeState) -> Iterator[Running]:
        for occupant in state.running:
            work = occupant.work
            if work is None or not work.preemptible or work.uid in state.leaving:
                continue
            if work.protected_until is not None and work.protected_until > self._now:
                continue
            if all(self._budgets.get(budget, 1) > 0 for budget in work.budgets):
                yield work

    def _victims(self, task: Task, state: NodeState) -> list[Running]:
        """Never of equal priority: those would evict each other for ever."""
        return [work for work in self._evictable(state) if work.priority < task.priority]

    def _sets(self, task: Task, probe: Probe, state: NodeState) -> Iterator[Eviction]:
        """Minimal sets on one node."""
        possible = self._victims(task, state)
        occupants = {o.work.uid: o for o in state.running if o.work is not None}
        for candidates in self._within_budgets(state, possible, occupants):
            for ordered in _orders(candidates, state, occupants):
                victims = self._minimal(probe, state, ordered, occupants)
                if victims and self._allowed(victims):
                    choice = choose(state, probe.option, state.without(state.leaving | {v.uid for v in victims}))
                    assert choice is not None, "what is given back leaves room for the option"
                    least_important_first = tuple(sorted(victims, key=_by_importance, reverse=True))
                    yield Eviction(self._cost(victims, state), state, choice, least_important_first)

    def _minimal(
        self, probe: Probe, state: NodeState, candidates: Sequence[Running], occupants: Mapping[str, Occupant]
    ) -> list[Running]:
        """Those of the candidates that have to go, if they are given back in this order; none if all are too few."""
        stock = state.without(state.leaving | {work.uid for work in candidates})
        if choose(state, probe.option, stock) is None:
            return []
        victims = []
        for work in candidates:
            allocation = occupants[work.uid].allocation
            stock.take(allocation)
            if choose(state, probe.option, stock) is None:
                stock.give(allocation)
                victims.append(work)
        return victims

    # --- budgets --------------------------------------------------------------------------------------

    def _within_budgets(
        self, state: NodeState, possible: list[Running], occupants: Mapping[str, Occupant]
    ) -> Iterator[list[Running]]:
        """All of them; and where a budget allows fewer than it counts, also only as many as it allows: those that give
        most, and those that matter least. (The best choice under several budgets is a hard problem.)"""
        yield possible
        if not self._allowed(possible):
            by_share = sorted(possible, key=lambda work: -_share(occupants[work.uid], state))
            for best_first in (by_share, sorted(possible, key=_by_importance, reverse=True)):
                left, taken = dict(self._budgets), []
                for work in best_first:
                    if all(left.get(budget, 1) > 0 for budget in work.budgets):
                        taken.append(work)
                        left |= {budget: left[budget] - 1 for budget in work.budgets if budget in left}
                yield taken

    def _allowed(self, victims: Iterable[Running]) -> bool:
        """Whether their budgets allow all of them to go: counted over the whole set."""
        counts = Counter(budget for work in victims for budget in work.budgets)
        return all(count <= self._budgets.get(budget, count) for budget, count in counts.items())

    # --- what it costs --------------------------------------------------------------------------------

    def _cost(self, victims: Sequence[Running], state: NodeState) -> Cost:
        youngest = tuple(sorted(-work.created for work in victims))
        return max(w.priority for w in victims), len(victims), self._lost(victims), youngest, state.node.name

    def _lost(self, victims: Iterable[Running]) -> float:
        return sum(max(0.0, self._now - work.started) for work in victims if work.started is not None)


def _orders(
    candidates: Sequence[Running], state: NodeState, occupants: Mapping[str, Occupant]
) -> Iterator[list[Running]]:
    """In which order they are given back; who is first is the likeliest to stay."""
    by_importance = sorted(candidates, key=_by_importance)
    shares = {work.uid: _share(occupants[work.uid], state) for work in candidates}
    yield by_importance
    yield sorted(by_importance, key=lambda work: -shares[work.uid])
    yield sorted(by_importance, key=lambda work: shares[work.uid])


def _by_importance(work: Running) -> tuple[int, float, str]:
    return -work.priority, work.created, work.uid


def _share(occupant: Occupant, state: NodeState) -> int:
    """How much of the node it has: the sum of amount / capacity over all that it has, in millionths."""
    amounts = occupant.allocation.amounts
    return sum(min(PPM, ratio(units, state.empty.available(key))) for key, units in amounts.items())
