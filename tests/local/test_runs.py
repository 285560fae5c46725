"""How a simulated pod ends: pure, with times given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputask.local.containers import environment, field_value
from gputask.local.runs import End, Run, ended_status, next_end, number, restarts, running_status
from support.local import pod

AT_TEN = Run(pod_started=10, started=10)


def deleted(body: dict, grace: int) -> dict:
    body["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    return body


def ends(body: dict, stopping: float | None = None) -> tuple[float, int] | None:
    end = next_end(body, AT_TEN, stopping)
    return (end.at, end.exit_code) if end else None


def test_without_an_annotation_a_pod_runs_for_ever():
    assert ends(pod()) is None


def test_a_pod_runs_its_time_and_ends_with_its_exit_code():
    assert ends(pod(sim={"runs": "5"})) == (15, 0)
    assert ends(pod(sim={"runs": "2.5", "exit-code": "3"})) == (12.5, 3)


def test_a_deadline_ends_it_and_says_so():
    end = next_end(pod(sim={"runs": "50"}, activeDeadlineSeconds=20), AT_TEN, None)
    assert (end.at, end.reason) == (30, "DeadlineExceeded")
    assert ended_status(pod(), "now", AT_TEN, end)["phase"] == "Failed"


def test_the_deadline_counts_from_the_start_of_the_pod_and_not_of_the_container():
    end = next_end(pod(activeDeadlineSeconds=20), Run(pod_started=10, started=25, restarts=1), None)
    assert end.at == 30


@pytest.mark.parametrize(
    ("stops", "grace", "expected"),
    [
        (None, 30, (130, 137)),  # a process that ignores SIGTERM is killed at the end of its grace
        ("4", 30, (104, 143)),
        ("0", 30, (100, 143)),
        ("60", 30, (130, 137)),
        (None, 0, (100, 137)),
    ],
)
def test_on_a_deletion_a_container_takes_its_time_but_at_most_its_grace(stops, grace, expected):
    body = deleted(pod(sim={"stops": stops} if stops else {}), grace)
    assert ends(body, stopping=100) == expected


def test_a_container_that_ends_during_its_grace_ends_with_its_own_exit_code():
    assert ends(deleted(pod(sim={"runs": "95", "exit-code": "0"}), 30), stopping=100) == (105, 0)


@pytest.mark.parametrize(
    ("policy", "exit_code", "expected"),
    [("Always", 0, True), ("Always", 1, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_the_restart_policy_decides_whether_it_starts_again(policy, exit_code, expected):
    body = pod(restartPolicy=policy)
    assert restarts(body, End(15, exit_code), None) is expected
    assert not restarts(body, End(15, exit_code), stopping=12)
    assert not restarts(body, End(15, exit_code, "DeadlineExceeded"), None)


def test_statuses_tell_phase_exit_code_and_restarts():
    running = running_status(pod(), "now", Run(10, 12, restarts=2), last=End(12, 1))
    [container] = running["containerStatuses"]
    assert (running["phase"], container["ready"], container["restartCount"]) == ("Running", True, 2)
    assert container["lastState"]["terminated"]["exitCode"] == 1
    ended = ended_status(pod(), "now", AT_TEN, End(15, 3))
    assert (ended["phase"], ended["containerStatuses"][0]["state"]["terminated"]["exitCode"]) == ("Failed", 3)
    assert ended_status(pod(), "now", AT_TEN, End(15, 0))["phase"] == "Succeeded"


@given(st.sampled_from(["runs", "stops", "exit-code"]), st.text(max_size=6))
def test_an_annotation_that_is_no_number_counts_as_absent(key, text):
    value = number(pod(sim={key: text}), f"sim.gputask.dev/{key}")
    assert value is None or 0 <= value < 1e9


def test_the_environment_is_resolved_as_the_kubelet_does():
    body = pod(meta={"uid": "u-1", "annotations": {"alloc.gputask.dev/variant": "gpu"}, "labels": {"x": "y"}})
    body["spec"] |= {"nodeName": "n1"}
    container = {
        "name": "main",
        "resources": {"limits": {"cpu": "4"}},
        "env": [
            {"name": "PLAIN", "value": "a"},
            {"name": "BOTH", "value": "$(PLAIN)-$(LATER)-$$(PLAIN)"},
            {"name": "LATER", "value": "b"},
            *(
                {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                for name, path in (
                    ("VARIANT", "metadata.annotations['alloc.gputask.dev/variant']"),
                    ("LABEL", "metadata.labels['x']"),
                    ("NODE", "spec.nodeName"),
                    ("UID", "metadata.uid"),
                    ("NONE", "metadata.annotations['none']"),
                )
            ),
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "EMPTY"},
        ],
    }
    body["spec"]["containers"] = [container]
    assert environment(body, container) == {
        "PLAIN": "a",
        "BOTH": "a-$(LATER)-$(PLAIN)",
        "LATER": "b",
        "VARIANT": "gpu",
        "LABEL": "y",
        "NODE": "n1",
        "UID": "u-1",
        "NONE": "",
        "CPU": "4",
        "EMPTY": "",
    }


def test_a_field_that_is_not_set_is_empty():
    assert field_value(pod(), "status.podIP") == ""
