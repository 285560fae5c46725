"""Assumed placements: decided, and not in the ledger yet (protocol line 1).

Taken synchronously with the decision, so that the next pass sees the room as taken; forgotten when the ledger has the
entry, and on every other way out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType

from gputask.resources.pools import Allocation


@dataclass(frozen=True, slots=True)
class Assumption:
    """Room on a node that a decision counts on. As a context manager it is forgotten at the end of the block."""

    task_uid: str
    node: str
    allocation: Allocation
    _home: Assumed = field(repr=False, compare=False)

    def forget(self) -> None:
        """Idempotent: every exit path may call it."""
        self._home._forget(self)

    def __enter__(self) -> Assumption:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.forget()


class Assumed:
    """All assumptions of this process. At most one for a task."""

    def __init__(self) -> None:
        self._by_node: defaultdict[str, dict[str, Assumption]] = defaultdict(dict)
        self._by_task: dict[str, Assumption] = {}

    def assume(self, task_uid: str, node: str, allocation: Allocation) -> Assumption:
        """:raises ValueError: the task has one already: two decisions for one task are a fault of the caller."""
        if task_uid in self._by_task:
            raise ValueError(f"task {task_uid} is assumed on {self._by_task[task_uid].node} already")
        assumption = Assumption(task_uid, node, allocation, self)
        self._by_node[node][task_uid] = self._by_task[task_uid] = assumption
        return assumption

    def on(self, node: str) -> Iterable[Assumption]:
        """What is assumed on a node, for the snapshot of a pass."""
        return tuple(self._by_node.get(node, {}).values())

    def of(self, task_uid: str) -> Assumption | None:
        return self._by_task.get(task_uid)

    def _forget(self, assumption: Assumption) -> None:
        if self._by_task.get(assumption.task_uid) is assumption:
            del self._by_task[assumption.task_uid]
            del self._by_node[assumption.node][assumption.task_uid]
            if not self._by_node[assumption.node]:
                del self._by_node[assumption.node]
