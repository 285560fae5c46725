"""From the outcome of a pass to one reason for each waiting task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gputask.api.conditions import ReservedReason
from gputask.controller.verdicts import Verdicts, verdict
from gputask.planner.model import Action, Cause, Decision, Hold, Plan, RequestClass, Task, Variant, Waiting
from gputask.resources.pools import Allocation

REQUEST = RequestClass((Variant("v", (("cpu", 10_000),)),))
TAKEN = Allocation({"cpu": 10_000})


def waiting(uid: str, counts: Mapping[Cause, int], *, feasible: bool = True, message: str = "short of cpu") -> Waiting:
    return Waiting(Task(f"default/{uid}", uid, 0, 0.0, REQUEST), feasible, (counts,), message)


def outcome(
    *waits: Waiting, holds: tuple[Hold, ...] = (), decisions: tuple[Decision, ...] = (), cut: bool = False
) -> Plan:
    return Plan(decisions, waits, holds, cut)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({Cause.SHORT: 3, Cause.GAP: 1}, ReservedReason.GAP),
        ({Cause.SHORT: 1, Cause.NODE_OUT: 999}, ReservedReason.SHORT),
        ({Cause.NODE_OUT: 4}, ReservedReason.NODE_OUT),
        ({Cause.UNSUPPORTED: 4}, ReservedReason.UNSUPPORTED),
        ({}, ReservedReason.NODE_OUT),
    ],
)
def test_the_reason_is_that_of_the_most_promising_node(counts: Mapping[Cause, int], reason: ReservedReason) -> None:
    assert verdict(waiting("t", counts), None).reason is reason


def test_a_task_for_which_room_is_kept_says_where() -> None:
    hold = Hold("default/t", "t", "n1", 0, TAKEN, since=0.0)
    found = verdict(waiting("t", {Cause.SHORT: 1}), hold)
    assert found.reason is ReservedReason.HOLDING
    assert "n1" in found.message


def test_only_a_verdict_that_is_new_or_another_one_is_news() -> None:
    verdicts = Verdicts()
    assert verdicts.record(outcome(waiting("a", {Cause.SHORT: 1}), waiting("b", {Cause.SHORT: 1}))) == {"a", "b"}
    assert verdicts.record(outcome(waiting("a", {Cause.SHORT: 1}), waiting("b", {Cause.HELD: 1}))) == {"b"}


def test_a_pass_leaves_the_verdicts_of_those_it_did_not_look_at() -> None:
    verdicts = Verdicts()
    verdicts.record(outcome(waiting("a", {Cause.SHORT: 1}), waiting("b", {Cause.SHORT: 1})))
    placed = Decision(Action.PLACE, waiting("a", {}).task, "n1", "v", 0, TAKEN)
    unjudged = replace(waiting("b", {}, message="not looked at yet"), judged=False)
    new = replace(waiting("c", {}, message="not looked at yet"), judged=False)
    assert verdicts.record(outcome(unjudged, new, decisions=(placed,), cut=True)) == {"c"}
    assert verdicts.get("a") is None
    assert (known := verdicts.get("b")) is not None
    assert known.reason is ReservedReason.SHORT


def test_the_queue_is_counted_by_reason_and_infeasible_tasks_apart() -> None:
    verdicts = Verdicts()
    verdicts.record(
        outcome(
            waiting("a", {Cause.SHORT: 1}),
            waiting("b", {Cause.SHORT: 1}),
            waiting("c", {Cause.SHORT: 1}, feasible=False),
        )
    )
    assert verdicts.counts(["a", "b", "c", "unknown"]) == {"Short": 2, "Infeasible": 1}
