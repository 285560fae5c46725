"""The judge of histories finds each thing that must never be stored, and nothing in a right history."""

import copy

import pytest

from gputask.local.judge import declared, judge, leftovers

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


def rules(changes, **how):
    return [finding.rule for finding in judge(((i, *change) for i, change in enumerate(changes)), **how)]


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
        ("ran again", 9, ("MODIFIED", "Pod", pod("p2"))),
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


def test_b34_who_is_on_a_label_that_was_lost_takes_none_of_the_others_and_nobody_else_gets_it():
    small = copy.deepcopy(NODE)
    small["metadata"]["annotations"]["gputask.dev/resources"] = "{seats: '[a]'}"
    on_b = {"amounts": {"seats": "1"}, "labels": {"seats": ["b"]}, "devices": []}
    on_a = {**on_b, "labels": {"seats": ["a"]}}
    before = [RIGHT[0], ("ADDED", "GpuNode", ledger(p1=on_b)), ("MODIFIED", "Node", small)]
    assert rules([*before, ("MODIFIED", "GpuNode", ledger(p1=on_b, p2=on_a))]) == []
    assert rules([*before, ("MODIFIED", "GpuNode", ledger(p2=on_b))]) == ["booked over capacity"]


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


# --- ends and their counters ---


def claimed(pod="p1", phase="Running", finished=None, **counters):
    """A task whose claim is a pod, with its counters."""
    status = {"phase": phase, "reservation": {"podUID": pod}, **counters}
    if finished:
        status["conditions"] = [{"type": "Finished", "status": "True", "reason": finished}]
    return "MODIFIED", "GpuTask", {"metadata": {"name": "t1", "uid": "t1"}, "status": status}


def alive(uid="p1", node=None):
    return "MODIFIED", "Pod", pod(uid, node=node)


def dead(uid="p1"):
    return "DELETED", "Pod", pod(uid, node=None)


ENDS = [
    alive(),
    claimed(),
    dead(),
    claimed(phase="Pending", evictions=1),
    alive("p2"),
    claimed("p2", evictions=1),
    dead("p2"),
    claimed("p2", phase="Pending", evictions=1, crashes=1),
    claimed("p2", phase="Failed", evictions=1, crashes=1, finished="Failed"),
]


class TestEnds:
    def test_that_count_once_are_right(self):
        assert rules(ENDS) == []

    def test_that_count_in_the_write_that_finishes_are_right(self):
        last = claimed("p2", phase="Failed", evictions=1, crashes=1, finished="Failed")
        assert rules([*ENDS[:7], last, claimed("p2", "Failed", "Failed", evictions=1, crashes=1)]) == []

    def test_in_a_row_may_be_forgotten(self):
        failed = [alive(), claimed(), dead(), claimed(phase="Pending", placementFailures=1)]
        assert (
            rules([*failed, alive("p2"), claimed("p2", placementFailures=1), claimed("p2", placementFailures=0)]) == []
        )

    @pytest.mark.parametrize(
        ("rule", "position", "change"),
        [
            ("evicted twice", 4, claimed(phase="Pending", evictions=2)),
            ("evicted twice", 3, claimed(phase="Pending", evictions=2)),
            ("ended twice", 4, claimed(phase="Pending", evictions=1, crashes=1)),
            ("ended twice", 8, claimed("p2", phase="Pending", evictions=1, crashes=1, placementFailures=1)),
            ("ended twice", 2, claimed(phase="Pending", crashes=1)),
            ("ended twice", 9, claimed("p2", "Failed", "DeadlineExceeded", evictions=1, crashes=1)),
            ("ended twice", 9, claimed("p2", "Failed", evictions=1, crashes=1)),
        ],
    )
    def test_that_count_again_or_too_early_are_found(self, rule, position, change):
        assert rules([*ENDS[:position], change])[0] == rule

    def test_of_a_task_without_a_claim_are_found(self):
        unclaimed = "MODIFIED", "GpuTask", {"metadata": {"name": "t1", "uid": "t1"}, "status": {"crashes": 1}}
        assert rules([unclaimed]) == ["ended twice"]


# --- room that is kept for a task ---

OLD, YOUNG = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
HOLDERS_ENTRY = {"taskUID": "high", "amounts": {"lic": "1"}}


def ranked(uid, priority=0, created=YOUNG, **spec):
    meta = {"name": uid, "uid": uid, "creationTimestamp": created}
    return "MODIFIED", "GpuTask", {"metadata": meta, "spec": {"priority": priority, **spec}, "status": {}}


def room(victims=("p1",), amounts=None, **more):
    """Room on n1 for the task *high*, of priority 5."""
    leaving = [{"task": "ns/low", "pod": uid, "podUID": uid} for uid in victims]
    head = {"task": "ns/high", "taskUID": "high", "priority": 5, "created": OLD}
    return {"high": {**head, "amounts": amounts or {"lic": "1"}, "victims": leaving, **more}}


def booked(holds=None, **entries):
    """The ledger of n1: pod and how much of ``lic`` (of 1.5) its task, named like it, has."""
    of = {uid: {"taskUID": f"of-{uid}", "amounts": {"lic": amount}} for uid, amount in entries.items()}
    return "MODIFIED", "GpuNode", {"metadata": {"name": "n1"}, "status": {"reservations": of, "holds": holds or {}}}


def evicted(uid="p1", reason="EvictionByEvictionAPI"):
    body = pod(uid, task=f"of-{uid}", node="n1", devices="")
    body["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
    return "MODIFIED", "Pod", body


KEPT = [
    ("ADDED", "Node", NODE),
    ranked("high", 5, OLD),
    ranked("of-p1"),
    booked(p1="1"),
    ("MODIFIED", "Pod", pod("p1", task="of-p1", node="n1", devices="")),
    booked(room(), p1="1"),
]


class TestKeptRoom:
    def test_that_is_made_and_used_is_right(self):
        pod_gone = "DELETED", "Pod", pod("p1", task="of-p1", node="n1", devices="")
        used = "MODIFIED", "GpuNode", {"metadata": {"name": "n1"}, "status": {"reservations": {"p9": HOLDERS_ENTRY}}}
        assert rules([*KEPT, evicted(), pod_gone, booked(room()), used], only_operator_evicts=True) == []

    def test_may_not_be_taken_by_lower_rank(self):
        assert rules([*KEPT, ranked("of-p2"), booked(room(), p1="1", p2="0.5")]) == []
        assert rules([*KEPT, ranked("of-p2"), booked(room(), p1="0.6", p2="0.6")]) == ["kept room taken"]

    @pytest.mark.parametrize(
        ("priority", "created", "found"), [(6, YOUNG, 0), (5, "2025-12-31T00:00:00Z", 0), (5, YOUNG, 1)]
    )
    def test_may_be_taken_by_higher_rank(self, priority, created, found):
        changes = [*KEPT, ranked("of-p2", priority, created), booked(room(), p1="0.6", p2="0.6")]
        assert rules(changes) == ["kept room taken"] * found

    def test_is_short_by_labels_too(self):
        seats = {"amounts": {"seats": "1"}, "labels": {"seats": ["a"]}}
        holds = room(**seats)
        entry = {"taskUID": "of-p2", **seats}
        status = {"reservations": {"p2": entry}, "holds": holds}
        taken = "MODIFIED", "GpuNode", {"metadata": {"name": "n1"}, "status": status}
        assert rules([*KEPT[:2], ranked("of-p2"), taken]) == ["kept room taken"]

    def test_that_is_short_without_the_newcomer_too_is_not_taken_by_it(self):
        others = {"p1": "0.5", "p3": "0.9"}
        before = [*KEPT[:3], ranked("of-p3"), booked(**others), KEPT[4], booked(room(), **others)]
        assert rules([*before, ranked("of-p2"), booked(room(), **others, p2="0.1")]) == []

    def test_does_not_bind_who_asks_for_something_else(self):
        entry = {"taskUID": "of-p2", "amounts": {"cpu": "1"}}
        status = {"reservations": {"p1": {"taskUID": "of-p1", "amounts": {"lic": "1"}}, "p2": entry}}
        other = "MODIFIED", "GpuNode", {"metadata": {"name": "n1"}, "status": {**status, "holds": room(victims=())}}
        assert rules([*KEPT[:5], ranked("of-p2"), other]) == []

    @pytest.mark.parametrize(
        ("victim", "found"),
        [
            (ranked("of-p1", 4), 0),
            (ranked("of-p1", 5), 1),
            (ranked("of-p1", 6), 1),
            (ranked("of-p1", preemptible=False), 1),
            (ranked("of-p1", preemptible=True), 0),
        ],
    )
    def test_is_left_by_lower_preemptible_work_only(self, victim, found):
        changes = [*KEPT[:2], victim, *KEPT[3:]]
        assert rules([*changes, booked(room(), p1="1")]) == ["higher victim"] * found

    def test_counts_the_priority_that_was_resolved(self):
        kind = ranked("of-p1")
        kind[2]["status"]["priority"] = 7
        assert rules([*KEPT[:2], kind, *KEPT[3:]]) == ["higher victim"]


class TestEvictions:
    def test_without_kept_room_are_found_if_only_the_operator_evicts(self):
        assert rules([*KEPT[:5], evicted()], only_operator_evicts=True) == ["evicted without hold"]
        assert rules([*KEPT[:5], evicted()]) == []

    def test_of_others_than_the_victims_are_found(self):
        holds = room(victims=("p7",))
        assert rules([*KEPT[:5], booked(holds, p1="0.5"), evicted()], only_operator_evicts=True) == [
            "evicted without hold"
        ]

    def test_are_found_once_and_other_disruptions_are_none(self):
        again = [*KEPT[:5], evicted(), booked(p1="1"), evicted()]
        assert rules(again, only_operator_evicts=True) == ["evicted without hold"]
        assert rules([*KEPT[:5], evicted(reason="DeletionByTaintManager")], only_operator_evicts=True) == []


# --- leases ---


def lease(phase="Bound", state="Claimed", grant="g1"):
    claim = {"podUID": grant, "node": "n1", "devices": ["GPU-a"], "state": state}
    spec = {"lease": {"ttlSeconds": 300}}
    return {"metadata": {"name": "l", "uid": "l"}, "spec": spec, "status": {"phase": phase, "reservation": claim}}


def leased(rebuilt="n1", **states):
    entries = {
        grant: {**ENTRY, "task": "ns/l", "taskUID": "l", "pod": "", "state": state} for grant, state in states.items()
    }
    return "MODIFIED", "GpuNode", {**ledger(**entries), "status": {"rebuilt": rebuilt, "reservations": entries}}


LEASED = [
    ("ADDED", "Node", NODE),
    ("ADDED", "GpuTask", lease("Pending")),
    leased(g1="Bound"),
    ("MODIFIED", "GpuTask", lease()),
    leased(g1="Quarantined"),
    ("MODIFIED", "GpuTask", lease("Failed", "Quarantined")),
    ("DELETED", "GpuTask", lease("Failed", "Quarantined")),
    leased(),
]


class TestLeases:
    def test_that_are_held_expire_and_are_deleted_are_right(self):
        assert rules(LEASED) == []

    def test_that_are_given_back_are_right(self):
        again = ("MODIFIED", "GpuTask", lease("Bound", grant="g2"))
        ended = ("MODIFIED", "GpuTask", lease("Pending", "Ended"))
        assert rules([*LEASED[:4], ended, leased(), leased(g2="Bound"), again]) == []

    @pytest.mark.parametrize(
        ("rule", "position", "change"),
        [
            ("lease taken away", 4, leased()),
            ("lease taken away", 5, leased()),
            ("lease taken away", 6, leased()),
            ("lease not booked", 4, leased()),
            ("told without entry", 3, ("MODIFIED", "GpuTask", lease(grant="g2"))),
            ("booked over capacity", 5, leased(g1="Quarantined", p9="Bound")),
        ],
    )
    def test_that_are_not_their_holders_are_found(self, rule, position, change):
        assert rule in rules([*LEASED[:position], change])

    def test_of_a_ledger_that_is_not_rebuilt_are_not_missed(self):
        assert rules([*LEASED[:4], ("DELETED", "GpuNode", ledger()), leased("")]) == []
        assert "lease not booked" in rules([*LEASED[:4], ("DELETED", "GpuNode", ledger()), leased()])

    def test_that_nobody_claims_are_left(self):
        node = kind("GpuNode", leased(g1="Bound")[2])
        assert leftovers([node, kind("GpuTask", lease())]) == []
        assert leftovers([node]) == ["entry on n1 of a lease that is not claimed: ns/l"]
        assert leftovers([node, kind("GpuTask", lease(grant="g2"))]) == leftovers([node])


# --- what is left at the end ---


def kind(name, obj):
    return {**obj, "kind": name}


def test_nothing_is_left_of_a_cluster_that_works():
    waiting = kind("GpuTask", {**task("Pending", "high")})
    node = kind("GpuNode", booked(room(), p1="1")[2])
    running = kind("Pod", pod("p1", task="of-p1"))
    ended = kind("Pod", pod("p2", task="of-p1", phase="Succeeded"))
    assert leftovers([waiting, node, running, ended, kind("GpuTask", task("Running", "of-p1"))]) == []


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([kind("GpuNode", booked(p1="1")[2])], "entry on n1 without a live pod: p1"),
        (
            [kind("GpuNode", booked(p1="1")[2]), kind("Pod", pod("p1", phase="Failed"))],
            "entry on n1 without a live pod: p1",
        ),
        ([kind("GpuNode", booked(room())[2])], "room on n1 for a task that does not wait: ns/high"),
        (
            [kind("GpuNode", booked(room())[2]), kind("GpuTask", task("Running", "high"))],
            "room on n1 for a task that does not wait: ns/high",
        ),
        (
            [kind("GpuTask", task("Succeeded")), kind("Pod", pod("p1", node=None))],
            "unbound pod of a task that is finished or gone: p1",
        ),
        ([kind("Pod", pod("p1", node=None))], "unbound pod of a task that is finished or gone: p1"),
        (
            [kind("GpuTask", task("Running")), kind("Pod", pod("p1")), kind("Pod", pod("p2", node=None))],
            "pods of one task t1: p1, p2",
        ),
    ],
)
def test_each_thing_that_nobody_needs_is_left(objects, said):
    assert leftovers(objects) == [said]
