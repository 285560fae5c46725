"""What the end of a pod means for its task."""

from __future__ import annotations

import pytest

from gputask.controller.lifecycle import End, end_of, end_status
from support.controller import pod, task

DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("dead", "end"),
    [
        (pod(phase="Succeeded"), End.SUCCEEDED),
        (pod(phase="Failed"), End.FAILED),
        (pod(phase="Failed", reason="DeadlineExceeded"), End.DEADLINE_EXCEEDED),
        (pod(phase="Failed", reason="OutOfcpu", node="n1"), End.REFUSED),
        (pod(phase="Failed", reason="UnexpectedAdmissionError", node="n1"), End.REFUSED),
        (pod(phase="Failed", reason="Evicted"), End.STOPPED),
        (pod(phase="Failed", conditions=[DISRUPTED]), End.STOPPED),
        (pod(phase="Failed", conditions=[{**DISRUPTED, "reason": "DeletionByPodGC"}]), End.NODE_LOST),
        (pod(phase="Running"), End.STOPPED),
        (None, End.STOPPED),
    ],
)
def test_each_way_to_end_is_told_apart(dead: dict | None, end: End) -> None:
    assert end_of(dead).end is end


def test_a_pod_that_fails_because_it_is_being_deleted_is_no_failure_of_its_task() -> None:
    stopped = pod(phase="Failed")
    stopped["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert end_of(stopped).end is End.STOPPED


def test_a_pod_that_ended_well_while_it_was_being_deleted_has_done_its_work() -> None:
    ended = pod(phase="Succeeded")
    ended["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert end_of(ended).end is End.SUCCEEDED


def test_the_exit_code_is_in_the_message() -> None:
    failed = pod(phase="Failed", containerStatuses=[{"name": "main", "state": {"terminated": {"exitCode": 7}}}])
    assert end_of(failed).message == "container main exited with 7"


def test_a_final_end_says_so_in_phase_and_condition() -> None:
    status = end_status(task(uid="u1"), end_of(pod(phase="Succeeded")), now=NOW)
    assert status["phase"] == "Succeeded"
    finished = next(c for c in status["conditions"] if c["type"] == "Finished")
    assert (finished["status"], finished["reason"]) == ("True", "Succeeded")


def test_an_end_that_is_not_final_lets_the_task_wait_again() -> None:
    status = end_status(task(uid="u1"), end_of(None), now=NOW)
    assert status["phase"] == "Pending"
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Reserved": "False",
        "Bound": "False",
        "Ready": "False",
    }


FAILED = pod(phase="Failed", containerStatuses=[{"name": "main", "state": {"terminated": {"exitCode": 7}}}])
REFUSED = pod(phase="Failed", reason="OutOfcpu", node="n1")


def test_a_task_starts_again_after_a_pause_until_it_crashed_once_more_than_its_limit() -> None:
    policy = {"limit": 2, "backoffSeconds": 10}
    crashed = task(uid="u1", restartPolicy=policy, status={"crashes": 1})
    again = end_status(crashed, end_of(FAILED), now=NOW)
    assert (again["phase"], again["crashes"], again["retryTime"]) == ("Pending", 2, "2026-01-01T00:00:10Z")
    crashed = task(uid="u1", restartPolicy=policy, status={"crashes": 2})
    over = end_status(crashed, end_of(FAILED), now=NOW)
    assert (over["phase"], over["crashes"], over["finishTime"]) == ("Failed", 3, "2026-01-01T00:00:00Z")


def test_refusals_by_a_kubelet_are_no_crashes_and_have_their_own_limit() -> None:
    first = end_status(task(uid="u1"), end_of(REFUSED), now=NOW)
    assert (first["phase"], first["placementFailures"]) == ("Pending", 1)
    assert "crashes" not in first
    third = end_status(task(uid="u1", status={"placementFailures": 2}), end_of(REFUSED), now=NOW)
    assert (third["phase"], third["placementFailures"]) == ("Failed", 3)


def test_a_running_task_that_is_stopped_from_outside_was_evicted_and_has_not_crashed() -> None:
    status = end_status(task(uid="u1", status={"phase": "Running", "evictions": 1}), end_of(None), now=NOW)
    evicted = next(c for c in status["conditions"] if c["type"] == "Evicted")
    assert (status["phase"], status["evictions"], evicted["reason"]) == ("Pending", 2, "Disrupted")
    assert "crashes" not in status


def test_a_task_that_its_user_suspends_was_not_evicted() -> None:
    status = end_status(task(uid="u1", suspend=True, status={"phase": "Running"}), end_of(None), now=NOW)
    assert "evictions" not in status
