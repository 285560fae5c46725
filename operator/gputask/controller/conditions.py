"""Conditions of a GpuTask as they should be, and how they go into the list that is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputask.api.conditions import TaskCondition

MESSAGE_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition as it should be."""

    type: TaskCondition
    holds: bool
    reason: str
    message: str = ""


def merged(current: Sequence[Mapping[str, Any]], wanted: Sequence[Condition], *, now: str) -> list[dict[str, Any]]:
    """The list of conditions after a change: one not mentioned stays, a transition time moves with the status only."""
    by_type = {str(condition["type"]): dict(condition) for condition in current}
    for condition in wanted:
        status = "True" if condition.holds else "False"
        before = by_type.get(condition.type)
        since = before["lastTransitionTime"] if before is not None and before["status"] == status else now
        by_type[condition.type.value] = {
            "type": condition.type.value,
            "status": status,
            "reason": condition.reason,
            "message": condition.message[:MESSAGE_LENGTH],
            "lastTransitionTime": since,
        }
    return list(by_type.values())
