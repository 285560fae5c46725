"""R12 in full: for one task, why each variant does not start on each node, resource by resource; and what would
make it start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from gputask.planner.filters import refusal
from gputask.planner.holds import guaranteed_start
from gputask.planner.messages import NO_NODE
from gputask.planner.model import Cause, Reason, Snapshot, Task
from gputask.planner.nodes import NodeState, holders
from gputask.planner.options import Option, option_of
from gputask.planner.placement import choose, shortage, to_free
from gputask.planner.plan import Pass
from gputask.planner.reasons import cells


@dataclass(frozen=True, slots=True)
class Way:
    """What would make one variant start on one node: so much more left of each key (units), by whoever holds it."""

    node: str
    variant: str
    variant_index: int
    freed: Mapping[str, int]
    held_by: tuple[str, ...]
    not_before: float | None
    """The instant by which time limits guarantee it; None if nothing does."""


def explain(snapshot: Snapshot, now: float, task_key: str) -> list[Reason]:
    """The matrix node x variant x resource of one waiting task: a reason for each cell that keeps it from starting.

    It shows the task's own turn: the pass has placed all tasks of higher rank and chosen their holds. A node
    without a reason for some variant is one where that variant starts now.

    :raises LookupError: no waiting task has this key.
    """
    return Turn(snapshot, now, task_key).reasons()


class Turn:
    """The pass as it stands when the turn of one waiting task comes.

    :raises LookupError: no waiting task has this key.
    """

    def __init__(self, snapshot: Snapshot, now: float, task_key: str) -> None:
        task = next((t for t in snapshot.tasks if t.key == task_key), None)
        if task is None:
            raise LookupError(f"no waiting task {task_key!r} in the snapshot")
        above = Pass(replace(snapshot, tasks=tuple(t for t in snapshot.tasks if t.rank < task.rank)), now)
        above.run()
        self._task = task
        self._now = now
        self._states = above.states
        self._options = [option_of(task.request, index) for index in range(len(task.request.variants))]

    def reasons(self) -> list[Reason]:
        """See :func:`explain`."""
        if self._task.unsupported:
            return [Reason(Cause.UNSUPPORTED, text) for text in self._task.unsupported]
        if not self._states:
            return [Reason(Cause.NODE_OUT, NO_NODE)]
        return [r for state in self._states for r in _of_node(state, self._task, self._options, self._now)]

    def ways(self) -> list[Way]:
        """What would make the task start, for each node and variant where it fits beside nobody; the least to be
        freed first."""
        if self._task.unsupported:
            return []
        usable = [state for state in self._states if _why_out(state, self._task) is None]
        found = [way for s in usable for option in self._options if (way := _way(s, option, self._now)) is not None]
        return [way for _, way in sorted(found, key=lambda entry: (entry[0], entry[1].variant_index, entry[1].node))]


def _way(state: NodeState, option: Option, now: float) -> tuple[int, Way] | None:
    lives = state.node.lives_until
    if lives is not None and lives - now < option.min_time:
        return None
    choice = choose(state, option, state.unheld) or choose(state, option, state.empty)
    if choice is None:
        return None
    keys = choice.allocation.amounts
    freed = {key: short for key in keys if (short := shortage(choice.allocation, key, state.spare))}
    occupants = list(state.occupants())
    held_by = dict.fromkeys(task for key in freed for task in holders(occupants, key))
    starts, _ = guaranteed_start(state, option)
    way = Way(
        state.node.name,
        choice.variant,
        choice.variant_index,
        freed,
        tuple(held_by),
        None if starts == inf else starts,
    )
    return to_free(choice.allocation, state.spare), way


def _why_out(state: NodeState, task: Task) -> str | None:
    """Why this task cannot have this node at all now."""
    out = refusal(state.node, task.request.constraints)
    if out is None and state.node.name in task.excluded_nodes:
        return "the task pauses here after a refusal"
    return out


def _of_node(state: NodeState, task: Task, options: list[Option], now: float) -> list[Reason]:
    name = state.node.name
    out = _why_out(state, task)
    if out is not None:
        return [Reason(Cause.NODE_OUT, f"{name}: {out}", node=name)]
    reasons: list[Reason] = []
    for option in options:
        lives = state.node.lives_until
        if lives is not None and lives - now < option.min_time:
            text = f"{name}: asks {option.min_time:g} s, and the node lives {max(0.0, lives - now):g} s"
            reasons.append(Reason(Cause.NODE_LIFE, text, name, option.names[0], option.first))
        else:
            reasons += cells(state, option)
    return reasons
