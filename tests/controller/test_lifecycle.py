"""What the end of a pod means for its task."""

from __future__ import annotations

import pytest

from gputask.controller.lifecycle import End, end_of, end_status
from support.controller import pod, task


@pytest.mark.parametrize(
    ("dead", "end"),
    [
        (pod(phase="Succeeded"), End.SUCCEEDED),
        (pod(phase="Failed"), End.FAILED),
        (pod(phase="Failed", reason="DeadlineExceeded"), End.DEADLINE_EXCEEDED),
        (pod(phase="Failed", reason="OutOfcpu", node="n1"), End.REFUSED),
        (pod(phase="Failed", reason="UnexpectedAdmissionError", node="n1"), End.REFUSED),
        (pod(phase="Failed", reason="Evicted"), End.STOPPED),
        (pod(phase="Failed", conditions=[{"type": "DisruptionTarget", "status": "True"}]), End.STOPPED),
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
    status = end_status(task(uid="u1"), end_of(pod(phase="Succeeded")), now="2026-01-01T00:00:00Z")
    assert status["phase"] == "Succeeded"
    finished = next(c for c in status["conditions"] if c["type"] == "Finished")
    assert (finished["status"], finished["reason"]) == ("True", "Succeeded")


def test_an_end_that_is_not_final_lets_the_task_wait_again() -> None:
    status = end_status(task(uid="u1"), end_of(None), now="2026-01-01T00:00:00Z")
    assert status["phase"] == "Pending"
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Reserved": "False",
        "Bound": "False",
        "Ready": "False",
    }
