"""How an admission can end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    BOUND = "Bound"
    TASK_GONE = "TaskGone"
    CLAIM_LOST = "ClaimLost"
    NO_ROOM = "NoRoom"
    POD_REFUSED = "PodRefused"
    POD_GONE = "PodGone"
    POD_ELSEWHERE = "PodElsewhere"
    BIND_REFUSED = "BindRefused"
    UNKNOWN = "Unknown"
    """Nothing is lost, but only a later sweep can tell what became of it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an admission ended. ``message`` is one line for a person."""

    kind: Kind
    message: str = ""
