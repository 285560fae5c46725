"""``gputask plan -f``: the shapes that scripts read, and cases through files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputask.cli.main import run
from support.manifests import annotated, gputask, meta, node, pod, reserved, variant, write

NOW = "2026-01-31T12:00:00Z"
Planned = Callable[..., dict[str, Any]]


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Planned:
    """Plan some manifests; what JSON says."""

    def plan(*manifests: dict[str, Any], now: str = NOW) -> dict[str, Any]:
        assert run(["plan", "-f", write(tmp_path, *manifests), "--now", now, "-o", "json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return plan


def placed(outcome: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {
        d["task"].removeprefix("default/"): (d["node"], d["variant"])
        for d in outcome["decisions"]
        if d["action"] == "place"
    }


def waiting(outcome: dict[str, Any]) -> list[str]:
    return [entry["task"].removeprefix("default/") for entry in outcome["waiting"]]


def causes(outcome: dict[str, Any], task: str) -> set[tuple[str, str | None, str | None]]:
    (entry,) = (entry for entry in outcome["waiting"] if entry["task"] == f"default/{task}")
    return {(reason["cause"], reason["node"], reason["resource"]) for reason in entry["reasons"]}


# --- the shapes -------------------------------------------------------------------------------------


def test_the_whole_shape_of_a_plan(planned: Planned):
    card = {"gpuSlot/0": ["a", "b"], "gpuMemoryMB/0": 24000}
    asked = variant("gpu", cpu=2, memory="1Gi", devices={"count": 1, "resources": {"gpuSlot": 1, "gpuMemoryMB": 20000}})
    outcome = planned(
        node("n1", cpu=8, memory="16Gi", declares=card),
        gputask("first", asked, priority=2),
        gputask("second", asked, priority=1),
    )
    passed = outcome["stats"].pop("passSeconds")
    assert 0 < passed < 10
    assert outcome == {
        "schemaVersion": 1,
        "now": NOW,
        "decisions": [
            {
                "action": "place",
                "task": "default/first",
                "node": "n1",
                "variant": "gpu",
                "variantIndex": 0,
                "devices": ["0"],
                "amounts": {"cpu": "2", "gpuMemoryMB/0": "20000", "gpuSlot/0": "1", "memory": "1024"},
                "labels": {"gpuSlot/0": ["a"]},
                "startsBy": None,
                "victims": [],
            },
            {
                "action": "hold",
                "task": "default/second",
                "node": "n1",
                "variant": "gpu",
                "variantIndex": 0,
                "devices": ["0"],
                "amounts": {"cpu": "2", "gpuMemoryMB/0": "20000", "gpuSlot/0": "1", "memory": "1024"},
                "labels": {"gpuSlot/0": ["b"]},
                "startsBy": None,
                "victims": [],
            },
        ],
        "waiting": [
            {
                "task": "default/second",
                "feasible": True,
                "reasons": [
                    {
                        "cause": "Short",
                        "node": "n1",
                        "variant": "gpu",
                        "variantIndex": 0,
                        "resource": "gpuMemoryMB/0",
                        "device": "0",
                        "asked": "20000",
                        "free": "4000",
                        "capacity": "24000",
                        "short": "16000",
                        "heldBy": ["default/first"],
                        "message": "n1: asks 20000 gpuMemoryMB/0, 4000 free of 24000",
                    }
                ],
            }
        ],
        "nodes": [
            {
                "node": "n1",
                "conditions": [{"type": "Declared", "status": "True", "reason": "Understood", "message": ""}],
            }
        ],
        "stats": {"nodes": 1, "classes": 1, "tasks": 2},
    }


def test_a_start_that_time_limits_guarantee_is_a_time(planned: Planned):
    outcome = planned(
        node("n1", cpu=4),
        reserved(gputask("runs", variant(cpu=4), timeLimitSeconds=60), node="n1", variant="v0", startTime=NOW),
        gputask("waits", variant(cpu=4)),
        now="2026-01-31T12:00:20Z",
    )
    assert [(d["action"], d["startsBy"]) for d in outcome["decisions"]] == [("hold", "2026-01-31T12:01:00Z")]


def test_yaml_says_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    import yaml

    path = write(tmp_path, node("n1", cpu=4), gputask("a", variant(cpu=1)), gputask("b", variant(cpu=9)))
    outcomes = []
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        assert run(["plan", "-f", path, "--now", NOW, "-o", output]) == 0
        outcomes.append(read(capsys.readouterr().out))
        outcomes[-1]["stats"].pop("passSeconds")
    assert outcomes[0] == outcomes[1]


def test_the_table_names_who_starts_and_why_the_others_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write(tmp_path, node("n1", cpu=4), gputask("a", variant(cpu=3)), gputask("b", variant(cpu=9)))
    assert run(["plan", "-f", path]) == 0
    out = capsys.readouterr().out
    assert "place" in out
    assert "default/a" in out
    assert "asks 9 cpu" in out


def test_files_by_option_by_argument_and_by_folder_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    nodes = write(tmp_path, node("n1", cpu=4), name="nodes.yaml")
    tasks = write(tmp_path, gputask("a", variant(cpu=1)), name="tasks.yaml")
    for arguments in (["-f", nodes, "-f", tasks], ["-f", nodes, tasks], ["-f", str(tmp_path)]):
        assert run(["plan", *arguments, "-o", "json"]) == 0
        assert placed(json.loads(capsys.readouterr().out)) == {"a": ("n1", "v0")}


# --- running work -----------------------------------------------------------------------------------


def test_work_of_a_status_a_ledger_and_a_pod_takes_its_room(planned: Planned):
    by_pod = meta(gputask("by-pod", variant(cpu=1)), uid="u-1")
    bound = meta(pod("p", on="n1", cpu=1), uid="p-1", labels={"gputask.dev/task-uid": "u-1"})
    ledger = {
        "apiVersion": "gputask.dev/v1alpha1",
        "kind": "GpuNode",
        "metadata": {"name": "n1"},
        "status": {"reservations": {"p-2": {"task": "default/by-ledger", "node": "n1", "variant": "v0"}}},
    }
    outcome = planned(
        node("n1", cpu=4),
        by_pod,
        bound,
        ledger,
        gputask("by-ledger", variant(cpu=1)),
        reserved(gputask("by-status", variant(cpu=1)), node="n1", variant="v0"),
        gputask("wants-one", variant(cpu=1), priority=2),
        gputask("wants-two", variant(cpu=2), priority=1),
    )
    assert placed(outcome) == {"wants-one": ("n1", "v0")}
    assert waiting(outcome) == ["wants-two"]


def test_the_pod_says_where_before_the_status_does(planned: Planned):
    task = reserved(meta(gputask("a", variant(cpu=2)), uid="u-1"), node="n1", variant="v0")
    bound = meta(pod("p", on="n2"), labels={"gputask.dev/task-uid": "u-1"})
    outcome = planned(node("n1", cpu=2), node("n2", cpu=2), task, bound, gputask("b", variant(cpu=2)))
    assert placed(outcome) == {"b": ("n1", "v0")}


def test_running_work_keeps_the_labels_and_devices_of_its_record(planned: Planned):
    record = {
        "node": "n1",
        "variant": "v0",
        "devices": ["1"],
        "amounts": {"gpuSlot/1": "1"},
        "labels": {"gpuSlot/1": ["c"]},
    }
    cards = {"gpuSlot/0": ["a"], "gpuSlot/1": ["c", "d"]}
    asked = variant(devices={"resources": {"gpuSlot": 1}})
    outcome = planned(
        node("n1", cpu=8, declares=cards),
        reserved(gputask("runs", asked), **record),
        gputask("t1", asked),
        gputask("t2", asked),
        gputask("t3", asked),
    )
    given = [d["labels"] for d in outcome["decisions"] if d["action"] == "place"]
    assert sorted(map(str, given)) == sorted(map(str, [{"gpuSlot/0": ["a"]}, {"gpuSlot/1": ["d"]}]))
    assert waiting(outcome) == ["t3"]


def test_finished_work_and_ended_pods_take_nothing(planned: Planned):
    done = reserved(gputask("done", variant(cpu=2)), phase="Succeeded", node="n1", variant="v0")
    ended = [pod(f"p{i}", on="n1", phase=phase, cpu=1) for i, phase in enumerate(["Succeeded", "Failed"])]
    outcome = planned(node("n1", cpu=2), done, *ended, gputask("a", variant(cpu=2)))
    assert placed(outcome) == {"a": ("n1", "v0")}
    assert waiting(outcome) == []


def test_b32_pods_that_have_ended_do_not_count_and_terminating_ones_do(planned: Planned):
    leaving = meta(pod("leaving", on="n1", cpu=1), deletionTimestamp=NOW)
    pods = [pod("s", on="n1", phase="Succeeded", cpu=1), pod("f", on="n1", phase="Failed", cpu=1)]
    pods += [pod("r", on="n1", cpu=1), leaving]
    outcome = planned(
        node("n1", cpu=4), *pods, gputask("two", variant(cpu=2), priority=1), gputask("one", variant(cpu=1))
    )
    assert placed(outcome) == {"two": ("n1", "v0")}
    (reason,) = outcome["waiting"][0]["reasons"]
    assert set(reason["heldBy"]) == {"default/two", "pod:default/leaving", "pod:default/r"}


def test_a_ledger_entry_whose_task_is_in_no_file_keeps_its_room(planned: Planned):
    record = {"task": "default/lost", "node": "n1", "variant": "v0", "amounts": {"cpu": "3"}}
    ledger = {
        "apiVersion": "gputask.dev/v1alpha1",
        "kind": "GpuNode",
        "metadata": {"name": "n1"},
        "status": {"reservations": {"p-9": record}},
    }
    outcome = planned(node("n1", cpu=4), ledger, gputask("a", variant(cpu=2)))
    assert outcome["waiting"][0]["reasons"][0]["heldBy"] == ["default/lost"]


def test_running_work_that_does_not_fit_its_node_is_a_warning_and_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    over = reserved(gputask("over", variant(cpu=9)), node="n1", variant="v0")
    path = write(tmp_path, node("n1", cpu=4), over, gputask("a", variant(cpu=1)))
    assert run(["plan", "-f", path, "-o", "json"]) == 0
    captured = capsys.readouterr()
    assert "node n1 has no room for it" in captured.err
    assert captured.err.count("\n") == 1
    assert json.loads(captured.out)["decisions"][0]["action"] == "hold"


# --- rank -------------------------------------------------------------------------------------------


def test_rank_is_priority_then_creation_then_name(planned: Planned):
    asked = variant(cpu=1)
    older = meta(gputask("z-older", asked), creationTimestamp="2026-01-01T00:00:00Z")
    newer = meta(gputask("a-newer", asked), creationTimestamp="2026-01-02T00:00:00Z")
    new = [gputask("n2", asked), gputask("n1", asked)]
    outcome = planned(node("n1", cpu=5), newer, *new, older, gputask("top", asked, priority=1))
    assert list(placed(outcome)) == ["top", "z-older", "a-newer", "n1", "n2"]


def test_a_suspended_task_waits_and_says_so_and_blocks_nobody(planned: Planned):
    outcome = planned(
        node("n1", cpu=1), gputask("a", variant(cpu=1), suspend=True, priority=9), gputask("b", variant(cpu=1))
    )
    assert placed(outcome) == {"b": ("n1", "v0")}
    (entry,) = outcome["waiting"]
    assert [reason["cause"] for reason in entry["reasons"]] == ["Unsupported"]
    assert "suspend" in entry["reasons"][0]["message"]


def test_a_task_that_is_being_deleted_is_not_started(planned: Planned):
    leaving = meta(gputask("a", variant(cpu=1)), deletionTimestamp=NOW)
    outcome = planned(node("n1", cpu=1), leaving)
    assert (outcome["decisions"], outcome["waiting"]) == ([], [])


def test_sim_annotations_mean_nothing_to_a_plan(planned: Planned):
    outcome = planned(annotated(node("n1", cpu=1), at=50), annotated(gputask("a", variant(cpu=1)), at=70, until=80))
    assert placed(outcome) == {"a": ("n1", "v0")}


# --- bad declarations -------------------------------------------------------------------------------


def test_a_bad_annotation_is_one_warning_and_a_condition_and_the_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    bad = node("n1", cpu=4, declares={"lic": "sum(-1)", "gpuSlot/0": ["a"], "cpu": 3})
    path = write(tmp_path, bad, gputask("a", variant(cpu=1, gpuSlot__0=1)))
    assert run(["plan", "-f", path, "-o", "json"]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.startswith(f"warning: {path}:1 Node n1: gputask.dev/resources: cpu: ")
    outcome = json.loads(captured.out)
    assert placed(outcome) == {"a": ("n1", "v0")}
    (condition,) = outcome["nodes"][0]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Declared", "False", "NameTaken")
    assert "lic" in condition["message"]


@pytest.mark.parametrize(
    ("value", "free"),
    [("8000", 8000), ('"8000"', 8000), ("8000Mi", 8000), ("8Gi", 8192), ("-1", None), ('""', None), ("eight", None)],
)
def test_b50_a_value_with_a_unit_is_understood_or_refused_but_never_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str, free: int | None
):
    path = write(
        tmp_path,
        node("n1", cpu=4, declares=f"gpuMemoryMB/0: {value}\n"),
        gputask("a", variant(cpu=1, gpuMemoryMB__0=9000)),
    )
    assert run(["plan", "-f", path, "-o", "json"]) == 0
    captured = capsys.readouterr()
    (reason,) = json.loads(captured.out)["waiting"][0]["reasons"]
    assert reason["resource"] == "gpuMemoryMB/0"
    assert reason["capacity"] == str(free or 0)
    assert (captured.err == "") == (free is not None)


# --- cases ------------------------------------------------------------------------------------------


def test_v01_variant_order(planned: Planned):
    tasks = [gputask(f"t{i}", variant("gpu", cpu=1, g=1), variant("cpu", cpu=4)) for i in range(10)]
    outcome = planned(node("n1", cpu=16, declares={"g": 4}), *tasks)
    used = [name for _, name in placed(outcome).values()]
    assert (used.count("gpu"), used.count("cpu"), len(waiting(outcome))) == (4, 3, 3)


def test_v03_unlike_nodes(planned: Planned):
    tasks = [gputask(f"g{i}", variant(cpu=2, g=1)) for i in range(3)] + [
        gputask(f"w{i}", variant(cpu=4)) for i in range(3)
    ]
    outcome = planned(node("a", cpu=8), node("b", cpu=8, declares={"g": 2}), *tasks)
    assert sorted((task[0], on) for task, (on, _) in placed(outcome).items()) == [
        ("g", "b"),
        ("g", "b"),
        ("w", "a"),
        ("w", "a"),
        ("w", "b"),
    ]
    assert waiting(outcome) == ["g2"]


def test_v08_gap(planned: Planned):
    tasks = [gputask(f"w{i}", variant(cpu=7), priority=5) for i in range(3)] + [
        gputask(f"n{i}", variant(cpu=2), priority=1) for i in range(5)
    ]
    outcome = planned(node("n1", cpu=20), *tasks)
    assert sorted(placed(outcome)) == ["n0", "n1", "n2", "w0", "w1"]
    assert causes(outcome, "n3") == {("Short", "n1", "cpu")}


def test_b36_a_node_with_no_card_left_still_takes_tasks_that_need_none(planned: Planned):
    outcome = planned(node("n1", cpu=4, declares={"gpuSlot/0": [], "gpuMemoryMB/0": 0}), gputask("t", variant(cpu=1)))
    assert placed(outcome) == {"t": ("n1", "v0")}


@pytest.mark.parametrize("form", ["devices", "written-out"])
def test_b38_memory_of_several_cards_is_not_one_sum(planned: Planned, form: str):
    cards = {"gpuSlot/0": list("abc"), "gpuMemoryMB/0": 23000, "gpuSlot/1": list("def"), "gpuMemoryMB/1": 23000}
    asked = {
        "devices": [variant(devices={"resources": {"gpuMemoryMB": 10000}})],
        "written-out": [variant("c0", gpuMemoryMB__0=10000), variant("c1", gpuMemoryMB__1=10000)],
    }[form]
    outcome = planned(node("n1", declares=cards), *(gputask(f"t{i}", *asked) for i in range(5)))
    assert len(placed(outcome)) == 4
    short = [r for r in outcome["waiting"][0]["reasons"] if r["cause"] == "Short"]
    assert {(r["device"], r["free"], r["short"]) for r in short} == {("0", "3000", "7000"), ("1", "3000", "7000")}


@pytest.mark.parametrize("names", [("t1", "t2"), ("t2", "t1")])
def test_b44_a_slot_without_memory_promises_no_memory(planned: Planned, names: tuple[str, str]):
    asked = {"t1": variant(gpuSlot__0=1), "t2": variant(gpuSlot__0=1, gpuMemoryMB__0=6000)}
    tasks = [gputask(name, asked[name], priority=9 - i) for i, name in enumerate(names)]
    outcome = planned(node("n1", declares={"gpuSlot/0": ["a", "b"], "gpuMemoryMB/0": 8000}), *tasks)
    assert sorted(placed(outcome)) == ["t1", "t2"]


def test_b88_hundreds_of_tasks_that_cannot_run_hide_nobody(planned: Planned):
    blocked = [gputask(f"b{i:03}", variant(gpuSlot__7=1), priority=100) for i in range(500)]
    outcome = planned(node("n1", cpu=4), *blocked, *(gputask(f"t{i}", variant(cpu=1)) for i in range(4)))
    assert sorted(placed(outcome)) == ["t0", "t1", "t2", "t3"]
    assert len(outcome["waiting"]) == 500
    assert not any(entry["feasible"] for entry in outcome["waiting"])


def test_b96_cordon_readiness_taints_selectors_and_pod_count(planned: Planned):
    nodes = {name: node(name, cpu=4, pods=1) for name in ("n1", "n2", "n3", "n4", "n5", "n6")}
    nodes["n1"]["spec"] = {"unschedulable": True}
    nodes["n2"]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    nodes["n3"]["spec"] = {"taints": [{"key": "only", "value": "a", "effect": "NoSchedule"}]}
    for name in ("n1", "n2", "n3", "n5", "n6"):
        nodes[name]["metadata"]["labels"] = {"pool": "x"}
    task = gputask("t", variant(cpu=1))
    task["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "x"}
    outcome = planned(
        *nodes.values(), pod("other", on="n5"), task, {**gputask("u", variant(cpu=1)), "spec": task["spec"]}
    )
    assert placed(outcome) == {"t": ("n6", "v0")}
    assert causes(outcome, "u") == {
        ("NodeOut", "n1", None),
        ("NodeOut", "n2", None),
        ("NodeOut", "n3", None),
        ("NodeOut", "n4", None),
        ("Short", "n5", "pods"),
        ("Short", "n6", "pods"),
    }


def test_b112_an_explicit_zero_is_absent(planned: Planned):
    outcome = planned(node("n1", cpu=4), gputask("t", variant(cpu=1, gpuSlot__0=0, gpuMemoryMB__0=0)))
    assert outcome["decisions"][0]["amounts"] == {"cpu": "1"}


def test_v11_node_life_against_the_present(planned: Planned):
    nodes = [node(name, cpu=1) for name in "abc"]
    for found, life in zip(nodes, ("12:01:00", "12:03:20", "12:02:00"), strict=True):
        found["metadata"]["annotations"]["gputask.dev/lives-until"] = f"2026-01-31T{life}Z"
    tasks = [
        gputask("t1", {**variant(cpu=1), "minTimeSeconds": 150}),
        gputask("t2", variant(cpu=1)),
        gputask("t3", {**variant(cpu=1), "minTimeSeconds": 110}),
    ]
    assert placed(planned(*nodes, *tasks)) == {"t1": ("b", "v0"), "t2": ("a", "v0"), "t3": ("c", "v0")}
