"""What the last pass said about each waiting task, as the conditions will tell it, and which tasks heard news."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gputask.api.conditions import ReservedReason
from gputask.planner.model import Cause, Hold, Plan, Waiting

_NEAREST_FIRST = (
    Cause.GAP,
    Cause.HELD,
    Cause.SHORT,
    Cause.NODE_LIFE,
    Cause.UNKNOWN,
    Cause.NODE_OUT,
    Cause.UNSUPPORTED,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a task waits. ``feasible`` as in R4."""

    feasible: bool
    reason: ReservedReason
    message: str


class Verdicts:
    """The verdicts of the last pass, by task UID."""

    def __init__(self) -> None:
        self._verdicts: dict[str, Verdict] = {}

    def get(self, uid: str) -> Verdict | None:
        return self._verdicts.get(uid)

    def record(self, plan: Plan) -> set[str]:
        """Take in the outcome of a pass.

        :returns: UIDs of the tasks of which the verdict is new or another one than before.
        """
        holds = {hold.uid: hold for hold in plan.holds}
        after = {}
        for waiting in plan.waiting:
            uid = waiting.task.uid
            before = None if waiting.judged else self._verdicts.get(uid)
            after[uid] = before or verdict(waiting, holds.get(uid))
        news = {uid for uid, new in after.items() if self._verdicts.get(uid) != new}
        self._verdicts = after
        return news

    def counts(self, uids: Iterable[str]) -> Counter[str]:
        """How many of these tasks wait for which reason; infeasible ones count as ``Infeasible``."""
        known = (self._verdicts.get(uid) for uid in uids)
        return Counter(found.reason.value if found.feasible else "Infeasible" for found in known if found is not None)


def verdict(waiting: Waiting, hold: Hold | None) -> Verdict:
    """The one reason of a task that the most promising node has: a gap is nearer than a shortage."""
    if hold is not None:
        return Verdict(True, ReservedReason.HOLDING, f"room is kept on {hold.node}; {waiting.message}")
    causes = {cause for counts in waiting.counts for cause, count in counts.items() if count}
    nearest = next((cause for cause in _NEAREST_FIRST if cause in causes), Cause.NODE_OUT)
    return Verdict(waiting.feasible, ReservedReason(nearest.value), waiting.message)
