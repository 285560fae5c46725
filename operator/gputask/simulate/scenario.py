"""What a simulation is given: nodes, tasks and foreign use, each with the instants of its coming and going.

Instants and durations are integer milliseconds since the start (:data:`Millis`), so that equal instants are equal.
The planner's axis is seconds since the start: work that began before it has negative times.
"""

from __future__ import annotations

from dataclasses import dataclass

from gputask.planner.model import Foreign, Node, Task
from gputask.resources.pools import Allocation

Millis = int


@dataclass(frozen=True, slots=True)
class NodeVersion:
    """One node as it is from an instant on, as a whole, until a later version replaces it or it disappears."""

    node: Node
    """Without running and foreign work: the simulation knows those."""
    at: Millis = 0
    until: Millis | None = None
    drain: bool = False
    """Its work is moved when it disappears, and that is nobody's crash."""


@dataclass(frozen=True, slots=True)
class ForeignUse:
    """Use of a node by something that is not ours."""

    node: str
    foreign: Foreign
    at: Millis = 0
    until: Millis | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a task runs: what a decision said, or what the files say of work that already runs."""

    node: str
    variant: str
    variant_index: int
    allocation: Allocation
    started: Millis
    """Before the start of the simulation it is negative."""


@dataclass(frozen=True, slots=True)
class SimTask:
    """A task, and what its pod will do."""

    task: Task
    at: Millis = 0
    until: Millis | None = None
    """Cancelled then."""
    runs: Millis | None = None
    """How long its pod runs; None for ever. A second attempt runs as long again."""
    exit_code: int = 0
    crash_limit: int = 0
    """Failed at the crash after so many."""
    backoff: Millis = 0
    """Pause between a crash and the next attempt."""
    preemptible: bool = False
    """Others may evict it."""
    min_runtime: Millis = 0
    """For so long after its start it is not evicted."""
    stops: Millis = 0
    """How long its pod takes to stop once it is evicted."""
    running: Placement | None = None
    """It runs when the simulation starts."""

    @property
    def time_limit(self) -> Millis | None:
        limit = self.task.time_limit
        return None if limit is None else round(limit * 1000)

    def ends(self, started: Millis) -> tuple[Millis, str] | None:
        """When and why an attempt ends by itself: Succeeded, Failed (by its exit code) or DeadlineExceeded."""
        limit = self.time_limit
        if self.runs is not None and (limit is None or self.runs <= limit):
            return started + self.runs, "Failed" if self.exit_code else "Succeeded"
        return None if limit is None else (started + limit, "DeadlineExceeded")


@dataclass(frozen=True, slots=True)
class Scenario:
    """The whole input of a simulation. ``nodes`` are in the order in which nodes of one instant join."""

    nodes: tuple[NodeVersion, ...]
    tasks: tuple[SimTask, ...]
    foreign: tuple[ForeignUse, ...] = ()


def seconds(t: Millis) -> float:
    """An instant on the planner's axis."""
    return t / 1000
