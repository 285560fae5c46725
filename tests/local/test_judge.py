"""The judge of histories finds each thing that must never be stored, and nothing in a right history."""

import copy

import pytest

from gputask.local.judge import declared, judge

NODE = {
    "metadata": {
        "name": "n1",
        "annotations": {
            "gputask.dev/resources": "{lic: 'sum(1.5)', seats: '[a,b]', gpuMemoryMB/1: 8Gi}",
            "gputask.dev/devices": '[{"id": "GPU-a", "index": 0, "resources": {"gpuMemoryMB": 24000}},'
            ' {"id": "GPU-b", "index": 1, "resources": {"gpuSlot": "range(0-1)"}}]',
        },
    },
    "status": {"allocatable": {"cpu": "8", "memory": "16Gi"}},
}
ENTRY = {"amounts": {"gpuMemoryMB/GPU-a": "16000", "seats": "1"}, "labels": {"seats": ["a"]}, "devices": ["GPU-a"]}


def pod(uid="p1", task="t1", node="n1", phase="Pending", devices="GPU-a"):
    return {
        "metadata": {"name": uid, "uid": uid, "labels": {"gputask.dev/task-uid": task}},
        "spec": {"nodeName": node, "containers": [{"env": [{"name": "GPUTASK_DEVICES", "value": devices}]}]},
        "status": {"phase": phase},
    }


def ledger(**entries):
    return {"metadata": {"name": "n1"}, "status": {"reservations": entries}}


def task(phase, uid="t1"):
    return {"metadata": {"name": uid, "uid": uid}, "status": {"phase": phase}}


RIGHT = [
    ("ADDED", "Node", NODE),
    ("ADDED", "GpuTask", task("Pending")),
    ("ADDED", "Pod", pod(node=None)),
    ("MODIFIED", "GpuNode", ledger(p1=ENTRY)),
    ("MODIFIED", "Pod", pod()),
    ("MODIFIED", "Pod", pod(phase="Running")),
    ("MODIFIED", "GpuTask", task("Running")),
    ("MODIFIED", "Pod", pod(phase="Succeeded")),
    ("MODIFIED", "GpuNode", ledger()),
    ("MODIFIED", "GpuTask", task("Succeeded")),
]


def rules(changes):
    return [finding.rule for finding in judge((i, *change) for i, change in enumerate(changes))]


def test_a_right_history_has_no_finding():
    assert rules(RIGHT) == []


@pytest.mark.parametrize(
    ("rule", "position", "change"),
    [
        ("booked over capacity", 4, ("MODIFIED", "GpuNode", ledger(p1=ENTRY, p2=ENTRY))),
        ("booked over capacity", 4, ("MODIFIED", "GpuNode", ledger(p1=ENTRY, p2={"amounts": {"nosuch": "1"}}))),
        ("released while alive", 6, ("MODIFIED", "GpuNode", ledger())),
        ("task twice", 6, ("MODIFIED", "Pod", pod("p2"))),
        ("ran again", 10, ("MODIFIED", "Pod", pod("p2"))),
        ("terminal changed", 10, ("MODIFIED", "GpuTask", task("Failed"))),
        ("bound without entry", 3, ("MODIFIED", "Pod", pod())),
        ("other devices", 4, ("MODIFIED", "Pod", pod(devices="GPU-b"))),
    ],
)
def test_each_wrong_step_is_found(rule, position, change):
    changes = copy.deepcopy(RIGHT)
    changes.insert(position, change)
    assert rule in rules(changes)


def test_one_label_twice_is_found_though_the_sum_fits():
    other = {"amounts": {"seats": "1"}, "labels": {"seats": ["a"]}, "devices": []}
    assert "booked over capacity" in rules([RIGHT[0], ("ADDED", "GpuNode", ledger(p1=ENTRY, p2=other))])


def test_declarations_are_read_by_the_judge_itself():
    pools = {key: str(capacity) for key, (capacity, _) in declared(NODE).items()}
    assert pools == {
        "cpu": "8",
        "memory": "16384",
        "lic": "1.5",
        "seats": "2",
        "gpuMemoryMB/GPU-a": "24000",
        "gpuSlot/GPU-b": "2",
        "gpuMemoryMB/GPU-b": "8192",
    }
