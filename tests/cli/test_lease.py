"""What ``gputask lease claim`` refuses before it asks any cluster: one line each, exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gputask.cli.main import run
from support.manifests import gputask, node, variant, write


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["lease", *arguments, "--kubeconfig", "nowhere"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return str(line)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "gputask lease claim: give either NAME with --resources or --devices, or -f FILE"),
        (("l", "-f", "x"), "gputask lease claim: give either NAME"),
        (("l",), "gputask lease claim: asks for nothing; give --resources or --devices, or -f FILE"),
        (("l", "--resources", "cpu"), "--resources: 'cpu' is no NAME=AMOUNT; write them like cpu=4"),
        (("l", "--resources", "cpu=1,cpu=2"), "--resources: 'cpu' stands twice; remove one"),
        (("l", "--devices", "=1"), "--devices: '=1' is no NAME=AMOUNT"),
        (("l", "--resources", "cpu=lots"), "gputask lease claim: spec.variants[0].resources.cpu: "),
        (("l", "--resources", "cpu=1", "--ttl", "0"), "gputask lease claim: spec.lease.ttlSeconds: 0 is too small"),
        (("l", "--devices", "gpuSlot=1", "--count", "99"), "gputask lease claim: spec.variants[0].devices.count: 99"),
        (("-f", "x.yaml", "--ttl", "9"), "gputask lease claim: -f FILE says all; leave --resources, --devices, --ttl"),
        (("-f", "nosuch.yaml"), "nosuch.yaml: cannot be read"),
        (("l", "--resources", "cpu=1", "--wait", "-1"), "gputask: Invalid value for '--wait'"),
    ],
)
def test_a_claim_that_cannot_be_is_one_line(
    arguments: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "claim", *arguments).startswith(line)


def test_a_file_that_is_no_one_lease_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pod_task = write(tmp_path, gputask("a", variant(cpu=1)))
    assert "GpuTask default/a: spec.lease: missing; write lease:" in refused(capsys, "claim", "-f", pod_task)
    none = write(tmp_path, node("n1", cpu=1))
    assert refused(capsys, "claim", "-f", none).endswith("holds 0 GpuTasks; a claim is one, with spec.lease")
    bad = gputask("a", variant(cpu=1), lease={"ttlSeconds": "5"})
    del bad["spec"]["template"]
    line = refused(capsys, "claim", "-f", write(tmp_path, bad))
    assert "GpuTask default/a: spec.lease.ttlSeconds: '5' is not a whole number" in line
    bad["spec"]["lease"] = {}
    bad["metadata"]["namespace"] = "here"
    line = refused(capsys, "claim", "-f", write(tmp_path, bad), "-n", "there")
    assert "metadata.namespace: is not the 'there' of --namespace; leave one out" in line


def test_an_expired_lease_in_a_file_still_has_its_room_and_a_held_one_is_no_victim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lease(name: str, phase: str, state: str) -> dict[str, object]:
        found = gputask(name, variant(cpu=4), lease={})
        del found["spec"]["template"]
        claim = {"attempt": 1, "pod": "", "podUID": name, "node": "n1", "variant": "v0", "amounts": {"cpu": "4"}}
        found["status"] = {"phase": phase, "reservation": {**claim, "state": state}}
        return dict(found)

    urgent = gputask("urgent", variant(cpu=1), priority=9)
    leases = (lease("held", "Bound", "Claimed"), lease("over", "Failed", "Quarantined"))
    path = write(tmp_path, node("n1", cpu=8), *leases, urgent)
    assert run(["plan", "-f", path, "-o", "json"]) == 0
    shape = json.loads(capsys.readouterr().out)
    assert [decision["action"] for decision in shape["decisions"]] == ["hold"]
    (reason,) = shape["waiting"][0]["reasons"]
    assert (reason["resource"], reason["asked"], reason["free"]) == ("cpu", "1", "0")
    assert sorted(reason["heldBy"]) == ["default/held", "default/over"]
