"""The discrete events of a simulation. The planner is the one that the operator runs; time is the next change.

All changes of one instant come first: ends of work, nodes that go, nodes that come, foreign use, submissions.
Then passes until one places nothing. A pass runs only when something changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from gputask.planner.holds import PATIENCE
from gputask.planner.model import Action, Decision, Hold, Plan, Snapshot
from gputask.planner.plan import plan
from gputask.simulate.history import Event, Kind, Pass, Record, Settled
from gputask.simulate.scenario import ForeignUse, Millis, NodeVersion, Placement, Scenario, SimTask, seconds
from gputask.simulate.state import TaskState, World

Planner = Callable[[Snapshot, float], Plan]

HOLD_PATIENCE: Millis = round(PATIENCE * 1000)
"""A hold may move after so long (R5), so there is a pass then even if nothing else changes."""

_END, _NODE_OUT, _NODE_IN, _FOREIGN, _SUBMIT, _WAKE = range(6)


@dataclass(frozen=True, slots=True)
class _Change:
    apply: Callable[[Millis], Iterator[Event]]


class Simulation:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario, *, planner: Planner = plan) -> None:
        self._plan = planner
        self._world = World()
        self._agenda: list[tuple[Millis, int, Any, int, _Change]] = []
        self._sequence = count()
        self._holds: tuple[Hold, ...] = ()
        self._woken: set[tuple[str, float]] = set()
        self._protects = any(sim.min_runtime for sim in scenario.tasks)
        for position, version in enumerate(scenario.nodes):
            self._at(version.at, _NODE_IN, position, partial(self._node_in, version))
            if version.until is not None:
                self._at(version.until, _NODE_OUT, version.node.name, partial(self._node_out, version))
        for use in scenario.foreign:
            self._at(use.at, _FOREIGN, use.foreign.owner, partial(self._foreign, use, True))
            if use.until is not None:
                self._at(use.until, _FOREIGN, use.foreign.owner, partial(self._foreign, use, False))
        for sim in scenario.tasks:
            self._at(0 if sim.running else sim.at, _SUBMIT, sim.task.rank, partial(self._submit, sim))

    def run(self, until: Millis | None = None) -> Iterator[Record]:
        """Everything that happens up to and including ``until``, or until nothing more can."""
        while self._agenda and (until is None or self._agenda[0][0] <= until):
            t = self._agenda[0][0]
            while self._agenda and self._agenda[0][0] == t:
                yield from self._changes(t)
                yield from self._passes(t)
            yield Settled(t)

    def _at(self, t: Millis, phase: int, order: Any, apply: Callable[[Millis], Iterator[Event]]) -> None:
        heapq.heappush(self._agenda, (t, phase, order, next(self._sequence), _Change(apply)))

    def _changes(self, t: Millis) -> Iterator[Event]:
        while self._agenda and self._agenda[0][0] == t:
            yield from heapq.heappop(self._agenda)[4].apply(t)

    # --- passes -------------------------------------------------------------------------------------

    def _passes(self, t: Millis) -> Iterator[Record]:
        placed = True
        while placed:
            outcome = self._plan(self._world.snapshot(self._holds), seconds(t))
            before = {hold.uid: hold for hold in self._holds}
            self._holds = tuple(replace(h, committed=True) if h.victims else h for h in outcome.holds)
            yield Pass(t, outcome.holds, outcome.faults)
            placed = False
            stopped: list[TaskState] = []
            for decision in outcome.decisions:
                if decision.action is Action.PLACE:
                    placed = True
                    yield self._bind(t, decision)
                    continue
                if _moved(before.get(decision.task.uid), decision):
                    yield _event(t, Kind.HELD, decision.task.key, _placement(t, decision))
                for victim in decision.victims:
                    yield self._preempt(t, decision, self._world.tasks[victim.uid], stopped)
            for state in stopped:  # after all decisions of the pass, which knew nothing of it
                placed = True
                yield self._requeue(state, "Preempted", t)
        self._wake_for_patience(t)
        self._wake_for_protection(t)

    def _preempt(self, t: Millis, decision: Decision, victim: TaskState, stopped: list[TaskState]) -> Event:
        """It keeps its room until it has stopped, and waits at its old rank then; ``stopped`` has those that need no
        time for it."""
        gone = t + victim.sim.stops
        self._world.evict(victim, gone)
        if gone == t:
            stopped.append(victim)
        else:
            self._at(gone, _END, victim.sim.task.rank, partial(self._stopped, victim, victim.attempt))
        return _event(t, Kind.PREEMPTED, victim.sim.task.key, victim.placement, decision.task.key)

    def _stopped(self, state: TaskState, attempt: int, t: Millis) -> Iterator[Event]:
        if state.attempt == attempt and state.placement is not None:
            yield self._requeue(state, "Preempted", t)

    def _bind(self, t: Millis, decision: Decision) -> Event:
        state = self._world.tasks[decision.task.uid]
        placement = _placement(t, decision)
        self._start(state, placement)
        return _event(t, Kind.BOUND, decision.task.key, placement)

    def _wake_for_patience(self, t: Millis) -> None:
        for hold in self._holds:
            due = round(hold.since * 1000) + HOLD_PATIENCE
            if due > t and (hold.uid, hold.since) not in self._woken:
                self._woken.add((hold.uid, hold.since))
                self._at(due, _WAKE, (), self._nothing)

    def _wake_for_protection(self, t: Millis) -> None:
        """Whoever waits may evict work whose least runtime is over, even if nothing else changes."""
        for due in self._world.protected_until() if self._protects else ():
            if due > t and ("", seconds(due)) not in self._woken:
                self._woken.add(("", seconds(due)))
                self._at(due, _WAKE, (), self._nothing)

    def _nothing(self, _: Millis) -> Iterator[Event]:
        yield from ()

    # --- tasks --------------------------------------------------------------------------------------

    def _submit(self, sim: SimTask, t: Millis) -> Iterator[Event]:
        state = self._world.add(sim)
        if sim.until is not None:
            self._at(max(sim.until, t), _END, sim.task.rank, partial(self._cancel, state))
        if sim.running:
            self._start(state, sim.running)
        yield Event(t, Kind.SUBMITTED, task=sim.task.key)

    def _start(self, state: TaskState, placement: Placement) -> None:
        self._world.start(state, placement)
        end = state.sim.ends(placement.started)
        if end is not None:
            # Work that should have ended before the start ends with it.
            due, reason = max(end[0], 0), end[1]
            self._at(due, _END, state.sim.task.rank, partial(self._end, state, state.attempt, reason))

    def _end(self, state: TaskState, attempt: int, reason: str, t: Millis) -> Iterator[Event]:
        if state.attempt != attempt or state.placement is None:
            return
        if reason == "Failed":
            yield self._crash(state, "Crashed", t, pause=state.sim.backoff)
        else:
            yield self._finish(state, reason, t)

    def _cancel(self, state: TaskState, t: Millis) -> Iterator[Event]:
        if not state.ended:
            yield self._finish(state, "Cancelled", t)

    def _crash(self, state: TaskState, reason: str, t: Millis, *, pause: Millis = 0) -> Event:
        state.crashes += 1
        if state.crashes > state.sim.crash_limit:
            return self._finish(state, "Failed", t)
        return self._requeue(state, reason, t, pause=pause)

    def _requeue(self, state: TaskState, reason: str, t: Millis, *, pause: Millis = 0) -> Event:
        event = _event(t, Kind.REQUEUED, state.sim.task.key, state.placement, reason)
        self._world.stop(state)
        if pause:
            self._at(t + pause, _SUBMIT, state.sim.task.rank, partial(self._retry, state, state.attempt))
        else:
            self._world.wait(state)
        return event

    def _retry(self, state: TaskState, attempt: int, _: Millis) -> Iterator[Event]:
        if state.attempt == attempt and not state.ended:
            self._world.wait(state)
        yield from ()

    def _finish(self, state: TaskState, reason: str, t: Millis) -> Event:
        event = _event(t, Kind.FINISHED, state.sim.task.key, state.placement, reason)
        self._world.stop(state)
        self._world.end(state)
        return event

    # --- nodes --------------------------------------------------------------------------------------

    def _node_in(self, version: NodeVersion, t: Millis) -> Iterator[Event]:
        replaced = self._world.show(version)
        yield Event(t, Kind.NODE_ADDED, node=version.node.name, reason="Replaced" if replaced else None)

    def _node_out(self, version: NodeVersion, t: Millis) -> Iterator[Event]:
        name = version.node.name
        if self._world.shown(name) is not version:
            return
        self._world.hide(name)
        yield Event(t, Kind.NODE_REMOVED, node=name, reason="Drained" if version.drain else None)
        for state in self._world.on_node(name):
            if version.drain:
                yield self._requeue(state, "Drained", t)
            else:
                yield self._crash(state, "NodeLost", t)

    def _foreign(self, use: ForeignUse, present: bool, _: Millis) -> Iterator[Event]:
        self._world.foreign(use, present=present)
        yield from ()


def _moved(before: Hold | None, decision: Decision) -> bool:
    now = (decision.node, decision.variant_index, decision.allocation.devices)
    return before is None or (before.node, before.variant_index, before.allocation.devices) != now


def _placement(t: Millis, decision: Decision) -> Placement:
    return Placement(decision.node, decision.variant, decision.variant_index, decision.allocation, t)


def _event(t: Millis, kind: Kind, task: str, place: Placement | None, reason: str | None = None) -> Event:
    return Event(t, kind, task=task, node=place.node if place else None, place=place, reason=reason)
