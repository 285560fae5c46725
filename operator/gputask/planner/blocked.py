"""What a blocked task gets when its turn comes: room made by evictions (R11), or a hold (R5), or nothing.

First whatever was committed to it before; then victims, if the room does not come by itself; then the ordinary hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import inf

from gputask.planner.classes import ClassState
from gputask.planner.holds import stays
from gputask.planner.model import Action, Decision, Hold, RequestClass, Running, Snapshot, Task
from gputask.planner.nodes import NodeState
from gputask.planner.placement import Choice, shortage
from gputask.planner.preemption import Preemption
from gputask.planner.table import Table


class Blocked:
    """Keeps room for blocked tasks during one pass. ``holds`` are those kept so far, in rank order."""

    def __init__(self, snapshot: Snapshot, table: Table, now: float) -> None:
        self._snapshot = snapshot
        self._table = table
        self._states = {state.node.name: state for state in table.states}
        self._now = now
        self._previous = {hold.uid: hold for hold in snapshot.holds}
        self._in_vain: set[tuple[RequestClass, frozenset[str]]] = set()
        self.holds: list[Hold] = []

    @cached_property
    def _preemption(self) -> Preemption:
        return Preemption(self._table.states, self._snapshot.budgets, self._now)

    def keep_room(self, state: ClassState, task: Task) -> Decision | None:
        """The task cannot start: keep room for it where that is best, and evict for it if that is right."""
        previous = self._previous.get(task.uid)
        return (
            self._committed(state, task, previous) or self._make_room(state, task) or self._hold(state, task, previous)
        )

    def stand(self, state: ClassState, task: Task) -> Decision | None:
        """The task was judged by the cut pass before: only its hold is set again."""
        previous = self._previous.get(task.uid)
        if previous is None or previous.committed:
            return self._committed(state, task, previous)
        node = self._states.get(previous.node)
        old = state.finder.again(node, previous) if node is not None and self._may_use(task, node) else None
        return None if old is None else self._keep(task, old.state, old.choice, previous.since, old.starts_by)

    def put_off(self, task: Task) -> None:
        """The cut pass does not reach this task: it keeps the hold that it had, for the next pass to judge."""
        if task.uid in self._previous:
            self.holds.append(self._previous[task.uid])

    # --- evictions (R11) ------------------------------------------------------------------------------

    def _committed(self, state: ClassState, task: Task, previous: Hold | None) -> Decision | None:
        """The hold of an eviction that is on its way, if its room still comes free; else it is given up."""
        if previous is None or not previous.committed:
            return None
        node = self._states.get(previous.node)
        if node is None or not self._may_use(task, node) or not state.may_last(previous.variant_index, node):
            return None
        left = node.without(node.leaving.union(previous.victims))
        if any(shortage(previous.allocation, key, left) for key in previous.allocation.amounts):
            return None
        victims = tuple(
            o.work
            for o in node.running
            if o.work is not None and o.work.uid in previous.victims and o.work.uid not in node.leaving
        )
        variant = task.request.variants[previous.variant_index].name
        choice = Choice(previous.variant_index, variant, previous.allocation)
        decision = self._keep(task, node, choice, previous.since, None, previous.victims, victims, committed=True)
        self._preemption.spend(node, victims)
        return decision

    def _make_room(self, state: ClassState, task: Task) -> Decision | None:
        key = task.request, task.excluded_nodes
        if not task.may_preempt or key in self._in_vain or self._preemption.is_hopeless(task):
            return None
        self._table.sync()
        if self._preemption.room_comes(task, state.probes):
            return None
        found = self._preemption.find(task, state.probes)
        if found is None:
            # Whoever is next in this class has no higher rank, and in a pass no room comes that was not looked at.
            self._in_vain.add(key)
            return None
        uids = tuple(victim.uid for victim in found.victims)
        decision = self._keep(task, found.state, found.choice, self._now, None, uids, found.victims)
        self._preemption.spend(found.state, found.victims)
        return decision

    # --- holds (R5) -----------------------------------------------------------------------------------

    def _hold(self, state: ClassState, task: Task, previous: Hold | None) -> Decision | None:
        """Where it had its hold, unless somewhere else is better."""
        old, since = None, self._now
        if previous is not None and (node := self._states.get(previous.node)) is not None and self._may_use(task, node):
            if (settled := state.finder.settled(node, previous)) is not None:
                return self._keep(task, node, settled, previous.since, None)
            old = state.finder.again(node, previous)
            since = previous.since if old is not None else since
        if old is None or not state.finder.is_unbeaten(old, since):
            best = state.finder.best(task.excluded_nodes)
            if best is None:
                return None
            if old is None or not stays(old, best, since, self._now):
                old, since = best, self._now
        return self._keep(task, old.state, old.choice, since, old.starts_by)

    def _may_use(self, task: Task, node: NodeState) -> bool:
        return node.node.name not in task.excluded_nodes

    def _keep(
        self,
        task: Task,
        node: NodeState,
        choice: Choice,
        since: float,
        starts_by: float | None,
        victims: Sequence[str] | None = None,
        evicted: tuple[Running, ...] = (),
        *,
        committed: bool = False,
    ) -> Decision:
        ends = (inf if starts_by is None else starts_by) + (inf if task.time_limit is None else task.time_limit)
        node.hold(task.key, choice.allocation, ends, victims)
        self._table.touch(node)
        self.holds.append(
            Hold(
                task=task.key,
                uid=task.uid,
                node=node.node.name,
                variant_index=choice.variant_index,
                allocation=choice.allocation,
                since=since,
                starts_by=starts_by,
                victims=tuple(victims or ()),
                committed=committed,
            )
        )
        action = Action.PREEMPT if evicted else Action.HOLD
        return decision_of(action, task, node, choice, starts_by=starts_by, victims=evicted)


def decision_of(
    action: Action,
    task: Task,
    node: NodeState,
    choice: Choice,
    *,
    starts_by: float | None = None,
    victims: tuple[Running, ...] = (),
) -> Decision:
    """What is decided for a task, in the words of the plan."""
    return Decision(
        action=action,
        task=task,
        node=node.node.name,
        variant=choice.variant,
        variant_index=choice.variant_index,
        allocation=choice.allocation,
        starts_by=starts_by,
        victims=victims,
    )
