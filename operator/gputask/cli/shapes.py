"""The JSON shapes of a plan, as scripts read them: every key always, null where there is nothing, amounts as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gputask.planner.model import Decision, Reason
from gputask.resources.amounts import format_amount
from gputask.simulate.history import amounts_json, labels_json


def decision_json(decision: Decision, moment: Callable[[float], str]) -> dict[str, Any]:
    """One decision. ``moment`` writes an instant of the planner's axis as RFC 3339."""
    return {
        "action": decision.action.value,
        "task": decision.task.key,
        "node": decision.node,
        "variant": decision.variant,
        "variantIndex": decision.variant_index,
        "devices": list(decision.allocation.devices),
        "amounts": amounts_json(decision.allocation),
        "labels": labels_json(decision.allocation),
        "startsBy": None if decision.starts_by is None else moment(decision.starts_by),
        "victims": [victim.task for victim in decision.victims],
    }


def reason_json(reason: Reason) -> dict[str, Any]:
    """One cell of the matrix node x variant x resource."""
    return {
        "cause": reason.cause.value,
        "node": reason.node,
        "variant": reason.variant,
        "variantIndex": reason.variant_index,
        "resource": reason.resource,
        "device": reason.device,
        "asked": _amount(reason.asked),
        "free": _amount(reason.free),
        "capacity": _amount(reason.capacity),
        "short": _amount(reason.short),
        "heldBy": list(reason.held_by),
        "message": reason.message,
    }


def waiting_json(task: str, feasible: bool, reasons: Sequence[Reason]) -> dict[str, Any]:
    """A task that was not placed, and all reasons why."""
    return {"task": task, "feasible": feasible, "reasons": [reason_json(reason) for reason in reasons]}


def _amount(units: int | None) -> str | None:
    return None if units is None else format_amount(units)
