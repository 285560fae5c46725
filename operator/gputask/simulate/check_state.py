"""What the checker knows at an instant: who runs where by its own books, who waits, and what fits where."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from gputask.planner.model import Foreign, Hold, Node, RequestClass, Task, Variant
from gputask.resources.pools import Allocation
from gputask.simulate.check_nodes import refusal
from gputask.simulate.check_room import Room
from gputask.simulate.scenario import Millis, NodeVersion, SimTask

_ROUNDING = 1e-6
"""Seconds by which a node may live too short: half of the float noise of a difference of instants."""


class Phase(Enum):
    """Where a task is in its life."""

    UNSEEN = auto()
    WAITING = auto()
    PAUSED = auto()
    """Crashed, and not to be tried again yet."""
    RUNNING = auto()
    ENDED = auto()


@dataclass(slots=True)
class CheckedTask:
    """One task in the checker's books."""

    sim: SimTask
    phase: Phase = Phase.UNSEEN
    node: str | None = None
    started: Millis = 0
    gone: Millis | None = None
    """It is evicted, and gone at this instant."""

    def due(self) -> Millis | None:
        """When its running attempt ends by itself."""
        end = self.sim.ends(self.started) if self.phase is Phase.RUNNING else None
        return None if end is None else max(end[0], 0)


class CheckedNode:
    """One node in the checker's books: its owners, and a memory of what fits, forgotten when anything changes."""

    def __init__(self, versions: list[NodeVersion]) -> None:
        self._versions = sorted(versions, key=lambda version: version.at)
        self.node: Node | None = None
        self._owners: dict[str, Allocation] = {}
        self._foreign: list[Foreign] = []
        self._fitting: dict[tuple[RequestClass, tuple[str, ...]], tuple[Variant, ...]] = {}
        self._possible: dict[RequestClass, tuple[Variant, ...]] = {}

    def appear(self, t: Millis) -> None:
        """The version that is due by ``t`` is there."""
        self.node = next((version.node for version in reversed(self._versions) if version.at <= t), None)
        self._possible.clear()
        self._fitting.clear()

    def disappear(self) -> None:
        """The node is gone; its owners stay in the books until their own events."""
        self.node = None
        self._fitting.clear()

    def put(self, task: str, allocation: Allocation) -> None:
        """One more owner."""
        self._owners[task] = allocation
        self._fitting.clear()

    def remove(self, task: str) -> None:
        """One owner less, if it was one."""
        self._owners.pop(task, None)
        self._fitting.clear()

    def set_foreign(self, foreign: list[Foreign]) -> None:
        """All foreign use of this instant."""
        self._foreign = foreign
        self._fitting.clear()

    def faults(self, allocation: Allocation) -> list[tuple[str, str]]:
        """What is wrong with an owner that is in the books already."""
        if self.node is None:
            return []
        return list(Room(self.node, self._owners.values(), self._foreign).faults(allocation))

    def faults_of_hold(self, hold: Hold, gone: Container[str], above: Iterable[Hold]) -> list[tuple[str, str]]:
        """What keeps a hold's task from starting beside the holds above it once these owners are gone."""
        if self.node is None:
            return []
        staying = [taken for key, taken in self._owners.items() if key not in gone]
        held = [other.allocation for other in above]
        return list(Room(self.node, [*staying, *held, hold.allocation], self._foreign).faults(hold.allocation))

    def leaves_room(self, variant: Variant, gone: Container[str], above: Iterable[Hold]) -> bool:
        """Whether a variant fits beside the holds above once these owners are gone."""
        if self.node is None:
            return False
        staying = [taken for key, taken in self._owners.items() if key not in gone]
        return Room(self.node, [*staying, *(other.allocation for other in above)], self._foreign).fits(variant)

    def fits(self, task: Task, holds: tuple[Hold, ...], t: Millis) -> bool:
        """Whether a variant of a task fits beside all that is here and these holds, and the node lives long enough."""
        if self.node is None or self.node.name in task.excluded_nodes:
            return False
        key = (task.request, tuple(hold.uid for hold in holds))
        if key not in self._fitting:
            self._fitting[key] = self._find(self.node, task.request, holds)
        return any(lives(self.node, variant, t) for variant in self._fitting[key])

    def _find(self, node: Node, request: RequestClass, holds: tuple[Hold, ...]) -> tuple[Variant, ...]:
        # Most of the variants of a task that writes out every card fit no empty node of this kind: judged once.
        if request not in self._possible:
            empty = Room(node, (), ())
            accepted = refusal(node, request.constraints) is None
            self._possible[request] = tuple(v for v in request.variants if accepted and empty.fits(v))
        possible = self._possible[request]
        if not possible:
            return ()
        room = Room(node, (*self._owners.values(), *(hold.allocation for hold in holds)), self._foreign)
        return tuple(variant for variant in possible if room.fits(variant))


class Queue:
    """Waiting tasks by request class, of each class the first in rank order."""

    def __init__(self, tasks: dict[str, CheckedTask]) -> None:
        self._tasks = tasks
        self._classes: dict[RequestClass, list[tuple[tuple[int, float, str], str]]] = {}

    def add(self, task: Task) -> None:
        """It waits. Tasks that nobody may place are not looked at."""
        if not task.unsupported:
            heapq.heappush(self._classes.setdefault(task.request, []), (task.rank, task.key))

    def first_of_each_class(self) -> Iterator[Task]:
        """The first waiting task of each class. Who does not wait any more is dropped on the way."""
        for request, heap in list(self._classes.items()):
            while heap and self._tasks[heap[0][1]].phase is not Phase.WAITING:
                heapq.heappop(heap)
            if heap:
                yield self._tasks[heap[0][1]].sim.task
            else:
                del self._classes[request]


def lives(node: Node, variant: Variant, t: Millis) -> bool:
    """Whether a node lives as long as a variant asks, from ``t`` on."""
    return node.lives_until is None or node.lives_until - t / 1000 >= variant.min_time - _ROUNDING
