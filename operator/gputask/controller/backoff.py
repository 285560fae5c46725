"""Growing pauses after errors: of a task as a whole, and of a task on one node. In memory; a restart tries at once.

A pause never delays anybody else. It concerns errors only: one that began because a node had no room ends as soon as
something is released there (B25).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from gputask.api.conditions import ReservedReason

FIRST_SECONDS = 1.0
LARGEST_SECONDS = 300.0

SAME_SECONDS = 0.5
"""Two ends of a pause so near to each other are one: the same instant, read by two clocks."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the last try failed: a reason of the condition Reserved, and one line."""

    reason: ReservedReason
    message: str


@dataclass(frozen=True, slots=True)
class _Pause:
    failures: int
    until: float
    because: Refusal


class Backoff:
    """Pauses on the injected clock (seconds, monotonic): 1 s, doubled with each failure in a row, at most 300 s."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tasks: dict[str, _Pause] = {}
        self._nodes: dict[str, dict[str, _Pause]] = {}
        self._ends: list[tuple[float, str]] = []
        self._full: dict[str, set[str]] = {}
        """By node: tasks that pause there because it had no room."""
        self._releases: Counter[str] = Counter()

    def refuse(self, task_uid: str, because: Refusal) -> float:
        """One more failure of the task; the pause that follows, in seconds."""
        return self._lengthen(self._tasks, task_uid, task_uid, because)

    def refuse_on(self, task_uid: str, node: str, because: Refusal) -> float:
        """The same for this task on this node only."""
        if node in self._full:
            self._full[node].discard(task_uid)
        return self._lengthen(self._nodes.setdefault(task_uid, {}), node, task_uid, because)

    def no_room_on(self, task_uid: str, node: str, because: Refusal, *, since: int) -> None:
        """The ledger of the node had less room than was planned with: a pause on it, until something is released.

        :param since: the releases there when it was planned. A later one may have been before the refusal or after it,
            and would be missed: then there is no pause.
        """
        if since == self.releases_on(node):
            self.refuse_on(task_uid, node, because)
            self._full.setdefault(node, set()).add(task_uid)

    def releases_on(self, node: str) -> int:
        """How often something was released there."""
        return self._releases[node]

    def released_on(self, node: str) -> set[str]:
        """Something was released there: the tasks of which the pause is over with that, each told once."""
        self._releases[node] += 1
        ended = self._full.pop(node, set())
        for task_uid in ended:
            self._nodes.get(task_uid, {}).pop(node, None)
        return ended

    def pause(self, task_uid: str, seconds: float, because: Refusal) -> None:
        """The task waits so long at least; its status says so, hence a restart of the operator shortens nothing."""
        before = self._tasks.get(task_uid)
        until = self._clock() + seconds
        if before is None or before.until < until - SAME_SECONDS:
            self._tasks[task_uid] = _Pause(before.failures if before is not None else 0, until, because)
            heapq.heappush(self._ends, (until, task_uid))

    def forget(self, task_uid: str) -> None:
        """The task was placed, changed or went away: its next failure is its first."""
        self._tasks.pop(task_uid, None)
        self._nodes.pop(task_uid, None)

    def refusal(self, task_uid: str) -> Refusal | None:
        """Why the task as a whole is in a pause now; None if it is not."""
        pause = self._tasks.get(task_uid)
        return pause.because if pause is not None and pause.until > self._clock() else None

    def excluded_nodes(self, task_uid: str) -> frozenset[str]:
        """Nodes on which the task is in a pause now."""
        now = self._clock()
        return frozenset(node for node, pause in self._nodes.get(task_uid, {}).items() if pause.until > now)

    def refusals(self, task_uid: str) -> list[Refusal]:
        """Why the task pauses on the nodes on which it does now."""
        now = self._clock()
        return [pause.because for _, pause in sorted(self._nodes.get(task_uid, {}).items()) if pause.until > now]

    def due(self) -> set[str]:
        """Tasks of which a pause has ended since this was last asked; told once for each pause."""
        now = self._clock()
        ended = set()
        while self._ends and self._ends[0][0] <= now:
            ended.add(heapq.heappop(self._ends)[1])
        return ended

    def next_end(self) -> float | None:
        """Seconds until the next pause ends; None if none runs."""
        return max(0.0, self._ends[0][0] - self._clock()) if self._ends else None

    def _lengthen(self, pauses: dict[str, _Pause], key: str, task_uid: str, because: Refusal) -> float:
        before = pauses.get(key)
        failures = before.failures + 1 if before is not None else 1
        pause = min(FIRST_SECONDS * 2.0 ** min(failures - 1, 30), LARGEST_SECONDS)
        until = self._clock() + pause
        pauses[key] = _Pause(failures, until, because)
        heapq.heappush(self._ends, (until, task_uid))
        return pause
