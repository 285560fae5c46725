"""One pass (R1): in rank order each task takes the first option that fits somewhere now, or waits, with a hold if
it can have one. Works on runs of equal tasks; what did not fit does not fit later in the pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from math import inf

import numpy as np

from gputask.planner.blocked import Blocked, decision_of
from gputask.planner.classes import ClassState
from gputask.planner.filters import refusal
from gputask.planner.model import (
    Action,
    Cause,
    Decision,
    Node,
    NodeConstraints,
    Plan,
    Rank,
    RequestClass,
    Snapshot,
    Task,
    Waiting,
)
from gputask.planner.nodes import NodeState
from gputask.planner.options import Option, options_of
from gputask.planner.placement import Choice, start
from gputask.planner.table import Bools, Table


def plan(
    snapshot: Snapshot,
    now: float,
    *,
    budget: Callable[[], bool] | None = None,
    decided: Callable[[Decision], None] | None = None,
) -> Plan:
    """Decide who starts, who holds room and who waits (design rules R1 to R12, without R7).

    :param now: seconds on the axis of the snapshot.
    :param budget: asked between runs of a class; False stops the pass there (R9), though not before the first run.
    :param decided: told of each decision but holds as soon as it is made: nothing later in the pass changes it.
    """
    return Pass(snapshot, now, decided).run(budget)


class Pass:
    """The state of one pass over a snapshot."""

    def __init__(self, snapshot: Snapshot, now: float, decided: Callable[[Decision], None] | None = None) -> None:
        self.now = now
        self._decided = decided
        self.faults: list[str] = []
        self.states = list(self._node_states(snapshot.nodes))
        self.tasks = self._ranked(snapshot.tasks)
        self._resume = snapshot.resume
        self._usable: dict[NodeConstraints, Bools] = {}
        self._decisions: list[Decision] = []
        self._waiting: list[Waiting] = []
        options = dict(self._options({task.request: None for task in self.tasks}))
        self.table = Table(self.states, [option for found in options.values() for option in found])
        self._blocked = Blocked(snapshot, self.table, now)
        self.classes = {request: self._class_state(request, found) for request, found in options.items()}

    # --- building, where a bad object is skipped (R10) -------------------------------------------------

    def _node_states(self, nodes: Iterable[Node]) -> Iterator[NodeState]:
        index = 0
        for node in sorted(nodes, key=lambda n: n.name):
            try:
                yield NodeState(node, index, self.now)
                index += 1
            except Exception as error:
                self.faults.append(f"node {node.name} is skipped: {error!r}")

    def _ranked(self, tasks: Iterable[Task]) -> list[Task]:
        ranked = []
        for task in tasks:
            try:
                ranked.append(((-int(task.priority), float(task.created), str(task.uid)), hash(task.request), task))
            except Exception as error:
                self.faults.append(f"task {task.key} is skipped: {error!r}")
        ranked.sort(key=lambda entry: entry[0])
        return [task for _, _, task in ranked]

    def _options(self, requests: Iterable[RequestClass]) -> Iterator[tuple[RequestClass, tuple[Option, ...]]]:
        node_level = frozenset(key for state in self.states for key in state.node.resources.pools if "/" in key)
        for request in requests:
            try:
                yield request, options_of(request, node_level)
            except Exception as error:
                self.faults.append(f"a request class is skipped: {error!r}")

    def _class_state(self, request: RequestClass, options: Sequence[Option]) -> ClassState:
        return ClassState(request, options, self.table, self.usable(request.constraints), self.now)

    def usable(self, constraints: NodeConstraints) -> Bools:
        """The nodes that the filters admit."""
        if constraints not in self._usable:
            admitted = [self._admits(state, constraints) for state in self.states]
            self._usable[constraints] = np.array(admitted, dtype=np.bool_)
        return self._usable[constraints]

    def _admits(self, state: NodeState, constraints: NodeConstraints) -> bool:
        try:
            return refusal(state.node, constraints) is None
        except Exception as error:
            self.faults.append(f"node {state.node.name} is out: {error!r}")
            return False

    # --- the pass --------------------------------------------------------------------------------------

    def run(self, budget: Callable[[], bool] | None = None) -> Plan:
        """Decide for all tasks in rank order, or until the budget is spent."""
        resume: Rank | None = None
        looked = False  # each pass comes one run further, however short its budget
        for (request, excluded, unsupported, seen), group in groupby(self.tasks, key=self._run_key):
            tasks = list(group)
            if looked and resume is None and budget is not None and not budget():
                resume = tasks[0].rank
            looked = looked or not seen
            if resume is not None:
                self._put_off(tasks)
            elif unsupported:
                self._refuse(tasks)
            else:
                self._guarded(request, tasks, excluded, seen)
        return Plan(
            tuple(self._decisions),
            tuple(self._waiting),
            tuple(self._blocked.holds),
            cut=resume is not None,
            resume=resume,
            faults=tuple(self.faults),
        )

    def _run_key(self, task: Task) -> tuple[RequestClass, frozenset[str], bool, bool]:
        """What tasks of one run share; ``seen`` by the cut pass before is the last."""
        seen = self._resume is not None and task.rank < self._resume
        return task.request, task.excluded_nodes, bool(task.unsupported), seen

    def _guarded(self, request: RequestClass, tasks: list[Task], excluded: frozenset[str], seen: bool) -> None:
        """Decide for one run; if that raises, what is left of the run is skipped and the pass goes on (R10)."""
        if (state := self.classes.get(request)) is None:
            self._skip(tasks)
            return
        decided, waited = len(self._decisions), len(self._waiting)
        try:
            if seen:
                self._stand(state, tasks)
            else:
                self._start(state, tasks, excluded)
                self._wait(state, tasks[len(self._decisions) - decided :], excluded)
        except Exception as error:
            placed = {d.task.uid for d in self._decisions[decided:] if d.action is Action.PLACE}
            done = placed | {w.task.uid for w in self._waiting[waited:]}
            self.faults.append(f"the class of task {tasks[0].key} is skipped: {error!r}")
            self._skip([task for task in tasks if task.uid not in done])

    def _start(self, state: ClassState, tasks: Sequence[Task], excluded: frozenset[str]) -> None:
        """Start as many tasks of a run as fit, the first ones first."""
        waiting = iter(tasks)
        task = next(waiting, None)
        position = state.current
        while task is not None and position < len(state.probes):
            probe = state.probes[position]
            for n in probe.candidates():
                node = self.states[n]
                if node.node.name in excluded:
                    continue
                while task is not None and (choice := start(node, probe.option)) is not None:
                    self._place(task, node, choice)
                    task = next(waiting, None)
                self.table.touch(node)
                if task is None:
                    return
                probe.open[n] = False
            position += 1
            if not excluded:
                state.current = position

    def _place(self, task: Task, node: NodeState, choice: Choice) -> None:
        ends = inf if task.time_limit is None else self.now + task.time_limit
        node.place(task.key, choice.allocation, ends)
        self._decide(decision_of(Action.PLACE, task, node, choice))

    def _decide(self, decision: Decision) -> None:
        self._decisions.append(decision)
        if self._decided is not None and decision.action is not Action.HOLD:
            self._decided(decision)

    def _wait(self, state: ClassState, tasks: Sequence[Task], excluded: frozenset[str]) -> None:
        if not tasks:
            return
        verdict = state.verdict(excluded)
        for task in tasks:
            if verdict.feasible and (decision := self._blocked.keep_room(state, task)) is not None:
                self._decide(decision)
            self._waiting.append(Waiting(task, verdict.feasible, verdict.counts, verdict.message))

    def _stand(self, state: ClassState, tasks: Iterable[Task]) -> None:
        """Tasks that the cut pass before has judged: only their holds are set again."""
        for task in tasks:
            if (decision := self._blocked.stand(state, task)) is not None:
                self._decide(decision)
            self._waiting.append(
                Waiting(task, state.feasible, (), "waits as before: the pass goes on where the last one stopped", False)
            )

    # --- tasks that are not decided --------------------------------------------------------------------

    def _refuse(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            counts = tuple({Cause.UNSUPPORTED: len(self.states)} for _ in task.request.variants)
            self._waiting.append(Waiting(task, False, counts, "; ".join(task.unsupported)))

    def _skip(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self._waiting.append(
                Waiting(task, False, (), "skipped: handling its request raised; see the operator's log")
            )

    def _put_off(self, tasks: Iterable[Task]) -> None:
        """Tasks that a cut pass did not reach keep the hold they had, for the next pass to judge."""
        for task in tasks:
            self._waiting.append(Waiting(task, True, (), "not looked at yet: the pass ran out of time", False))
            self._blocked.put_off(task)
