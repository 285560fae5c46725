"""The state of a simulation between two events: who waits, who runs where, which nodes are there."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from gputask.planner.model import Hold, Node, Running, Snapshot, Task
from gputask.simulate.scenario import ForeignUse, Millis, NodeVersion, Placement, SimTask, seconds


@dataclass(slots=True, eq=False)
class TaskState:
    """One task from its submission to its end."""

    sim: SimTask
    attempt: int = 0
    crashes: int = 0
    stopping: Millis | None = None
    """It is evicted, and gone at this instant."""
    placement: Placement | None = None
    ended: bool = False


class World:
    """Everything that is there now. Nodes are rebuilt for the planner only when something on them changed."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskState] = {}
        self._waiting: dict[str, Task] = {}
        self._versions: dict[str, NodeVersion] = {}
        self._running: dict[str, dict[str, TaskState]] = defaultdict(dict)
        self._foreign: dict[str, list[ForeignUse]] = defaultdict(list)
        self._nodes: dict[str, Node] = {}

    def snapshot(self, holds: tuple[Hold, ...]) -> Snapshot:
        """The frozen input of a pass."""
        for name in self._versions.keys() - self._nodes.keys():
            self._nodes[name] = self._node(name)
        return Snapshot(tuple(self._nodes.values()), tuple(self._waiting.values()), holds)

    # --- tasks --------------------------------------------------------------------------------------

    def add(self, sim: SimTask) -> TaskState:
        """A task appears, waiting."""
        state = self.tasks[sim.task.uid] = TaskState(sim)
        self.wait(state)
        return state

    def wait(self, state: TaskState) -> None:
        """It may be placed from now on."""
        self._waiting[state.sim.task.uid] = state.sim.task

    def start(self, state: TaskState, placement: Placement) -> None:
        """It takes its room on a node."""
        uid = state.sim.task.uid
        self._waiting.pop(uid, None)
        state.attempt += 1
        state.placement = placement
        state.stopping = None
        self._running[placement.node][uid] = state
        self._nodes.pop(placement.node, None)

    def stop(self, state: TaskState) -> None:
        """It gives its room back, if it has any, and does not wait either."""
        uid = state.sim.task.uid
        self._waiting.pop(uid, None)
        if state.placement is not None:
            del self._running[state.placement.node][uid]
            self._nodes.pop(state.placement.node, None)
            state.placement = None

    def evict(self, state: TaskState, gone: Millis) -> None:
        """It begins to stop, and keeps its room until then."""
        assert state.placement is not None, "only running work is evicted"
        state.stopping = gone
        self._nodes.pop(state.placement.node, None)

    def end(self, state: TaskState) -> None:
        """It never comes back."""
        state.ended = True

    def protected_until(self) -> set[Millis]:
        """The instants at which work that runs may be evicted from then on."""
        return {
            state.placement.started + state.sim.min_runtime
            for states in self._running.values()
            for state in states.values()
            if state.sim.min_runtime and state.sim.preemptible and state.placement is not None
        }

    def on_node(self, name: str) -> list[TaskState]:
        """Who runs on a node, in rank order."""
        return sorted(self._running[name].values(), key=lambda state: state.sim.task.rank)

    # --- nodes --------------------------------------------------------------------------------------

    def shown(self, name: str) -> NodeVersion | None:
        """The version of a node that is there now."""
        return self._versions.get(name)

    def show(self, version: NodeVersion) -> bool:
        """A node appears, or replaces what was there.

        :returns: whether it was there before.
        """
        name = version.node.name
        replaced = name in self._versions
        self._versions[name] = version
        self._nodes.pop(name, None)
        return replaced

    def hide(self, name: str) -> None:
        """A node disappears. Its work is the caller's to move."""
        del self._versions[name]
        self._nodes.pop(name, None)

    def foreign(self, use: ForeignUse, *, present: bool) -> None:
        """Foreign use begins or ends on a node, whether the node is there or not."""
        if present:
            self._foreign[use.node].append(use)
        else:
            self._foreign[use.node].remove(use)
        self._nodes.pop(use.node, None)

    def _node(self, name: str) -> Node:
        return replace(
            self._versions[name].node,
            running=tuple(_running(state) for state in self._running[name].values()),
            foreign=tuple(use.foreign for use in self._foreign[name]),
        )


def _running(state: TaskState) -> Running:
    task, placement = state.sim.task, state.placement
    assert placement is not None
    sim, ends = state.sim, state.stopping
    if ends is None and sim.time_limit is not None:
        ends = placement.started + sim.time_limit
    return Running(
        task=task.key,
        uid=task.uid,
        priority=task.priority,
        allocation=placement.allocation,
        ends=None if ends is None else seconds(ends),
        created=task.created,
        started=seconds(placement.started),
        preemptible=sim.preemptible,
        protected_until=seconds(placement.started + sim.min_runtime) if sim.min_runtime else None,
        leaving=state.stopping is not None,
    )
