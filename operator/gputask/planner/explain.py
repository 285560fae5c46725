"""R12 in full: for one task, why each variant does not start on each node, resource by resource."""

from __future__ import annotations

from dataclasses import replace

from gputask.planner.filters import refusal
from gputask.planner.model import Cause, Reason, Snapshot, Task
from gputask.planner.nodes import NodeState
from gputask.planner.options import Option, option_of
from gputask.planner.plan import Pass
from gputask.planner.reasons import cells


def explain(snapshot: Snapshot, now: float, task_key: str) -> list[Reason]:
    """The matrix node x variant x resource of one waiting task: a reason for each cell that keeps it from starting.

    It shows the task's own turn: the pass has placed all tasks of higher rank and chosen their holds. A node
    without a reason for some variant is one where that variant starts now.

    :raises LookupError: no waiting task has this key.
    """
    task = next((t for t in snapshot.tasks if t.key == task_key), None)
    if task is None:
        raise LookupError(f"no waiting task {task_key!r} in the snapshot")
    if task.unsupported:
        return [Reason(Cause.UNSUPPORTED, text) for text in task.unsupported]
    above = tuple(t for t in snapshot.tasks if t.rank < task.rank)
    turn = Pass(replace(snapshot, tasks=above), now)
    turn.run()
    options = [option_of(task.request, index) for index in range(len(task.request.variants))]
    return [reason for state in turn.states for reason in _of_node(state, task, options, now)]


def _of_node(state: NodeState, task: Task, options: list[Option], now: float) -> list[Reason]:
    name = state.node.name
    out = refusal(state.node, task.request.constraints)
    if out is None and name in task.excluded_nodes:
        out = "the task pauses here after a refusal"
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
