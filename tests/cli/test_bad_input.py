"""What cannot be understood is one line each: file and line, object, field, what is wrong, what would be right. Exit
code 2, and nothing runs."""

from pathlib import Path
from typing import Any

import pytest

from gputask.cli.main import run
from support.manifests import annotated, gputask, meta, node, pod, reserved, variant, write

Manifest = dict[str, Any]


@pytest.fixture
def complaints(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The lines that plan and simulate both say about some manifests, without the file's name."""

    def complain(*manifests: Manifest) -> list[str]:
        path = write(tmp_path, *manifests)
        said = []
        for command in ("plan", "simulate"):
            assert run([command, "-f", path, "-o", "json"]) == 2
            captured = capsys.readouterr()
            assert captured.out == ""
            said.append(captured.err.replace(f"{path}:", "").splitlines())
        assert said[0] == said[1]
        return said[0]

    return complain


def task(**resources: Any) -> Manifest:
    return gputask("a", variant(**resources))


@pytest.mark.parametrize(
    ("resources", "field", "right"),
    [
        ({"cpu": -1}, "spec.variants[0].resources.cpu", "negative"),
        ({"cpu": "0.00001"}, "spec.variants[0].resources.cpu", "more than 4 decimals"),
        ({"cpu": 0.125}, "spec.variants[0].resources.cpu", "quote it"),
        ({"memory": "1E"}, "spec.variants[0].resources.memory", ""),
        ({"cpu": "1Gi"}, "spec.variants[0].resources.cpu", "makes no sense"),
        ({"memory": "100m"}, "spec.variants[0].resources.memory", "makes no sense"),
        ({"cpu": "eight"}, "spec.variants[0].resources.cpu", "is not an amount"),
        ({"cpu": ""}, "spec.variants[0].resources.cpu", "is not an amount"),
        ({"cpu": True}, "spec.variants[0].resources.cpu", "is not an amount"),
        ({"cpu": 10**11}, "spec.variants[0].resources.cpu", "out of bounds"),
        ({"a b": 1}, "spec.variants[0].resources[a b]", "letters, digits"),
        ({"VARIANT": 1}, "spec.variants[0].resources.VARIANT", "choose another name"),
        ({"x" * 64: 1}, f"spec.variants[0].resources.{'x' * 64}", "at most 63"),
        ({"a.b": 1, "a-b": 1}, "spec.variants", "GPUTASK_A_B"),
    ],
)
def test_amounts_and_names_that_cannot_be(complaints, resources: Manifest, field: str, right: str):
    (line,) = complaints(task(**resources))
    assert line.startswith(f"1 GpuTask default/a: {field}")
    assert right in line


def test_every_problem_of_every_object_has_its_line(complaints):
    lines = complaints(task(cpu=-1, memory="x"), gputask("b"), node("n1", cpu=1))
    assert [line.split(": ")[0] for line in lines] == [
        "1 GpuTask default/a",
        "1 GpuTask default/a",
        "18 GpuTask default/b",
    ]
    assert "spec.variants" in lines[2]


def test_an_unknown_field_names_the_one_that_was_meant(complaints):
    (line,) = complaints(gputask("a", variant(cpu=1), prioritty=3))
    assert line == "1 GpuTask default/a: spec.prioritty: unknown field; did you mean priority?"


def test_fields_of_the_wrong_type(complaints):
    assert complaints(gputask("a", variant(cpu=1), priority="high"))[0].startswith(
        "1 GpuTask default/a: spec.priority: 'high' is not a whole number"
    )
    assert complaints({**gputask("a"), "spec": None})[0].startswith("1 GpuTask default/a: spec: ")


def test_an_object_that_stands_twice(complaints):
    assert complaints(gputask("a", variant(cpu=1)), gputask("a", variant(cpu=2))) == [
        "17 GpuTask default/a: stands twice, first at 1; remove one"
    ]
    assert complaints(node("n1", cpu=1), node("n1", cpu=2))[0].endswith("Node n1: stands twice, first at 1; remove one")
    twins = [meta(gputask(name, variant(cpu=1)), uid="u-1") for name in ("a", "b")]
    (line,) = complaints(*twins)
    assert line.endswith("GpuTask default/b: metadata.uid: default/a at 1 has it too; remove it")


def test_names_are_kubernetes_names(complaints):
    for name in ("Upper", "a_b", "-a", "a" * 64, "", 7, None):
        (line,) = complaints(meta(gputask("a", variant(cpu=1)), name=name))
        assert "metadata.name: " in line


def test_a_namespace_is_a_name_and_none_is_the_default_one(complaints):
    for namespace in ("A/B", "a.b", "a" * 64, "a\nb", 7):
        (line,) = complaints(meta(gputask("a", variant(cpu=1)), namespace=namespace))
        assert "metadata.namespace: " in line
    (line,) = complaints(meta(gputask("a", variant(cpu=-1)), namespace=None))
    assert line.startswith("1 GpuTask default/a: ")


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31m", "\ud800", "a" * 5000])
def test_whatever_a_name_holds_a_problem_stays_one_short_line(complaints, name: str):
    for manifest in (task(**{name: 1}), meta(node("n1"), name=name), meta(node("n1"), labels={name: 5})):
        (line,) = complaints(manifest)
        assert line.isprintable()
        assert len(line) < 400


def test_annotations_are_texts(complaints):
    (line,) = complaints(meta(gputask("a", variant(cpu=1)), annotations={"sim.gputask.dev/runs": 8}))
    assert line == "1 GpuTask a: metadata.annotations[sim.gputask.dev/runs]: 8 is not text; quote it"


@pytest.mark.parametrize("seconds", ["-1", "1.2345", "soon", "", "1e3", "NaN"])
@pytest.mark.parametrize("key", ["at", "until", "runs"])
def test_sim_times_are_seconds_with_at_most_3_decimals(complaints, key: str, seconds: str):
    (line,) = complaints(annotated(gputask("a", variant(cpu=1)), **{key: seconds}))
    assert line.startswith(
        f"1 GpuTask default/a: metadata.annotations[sim.gputask.dev/{key}]: {seconds!r} is not a number"
    )


def test_nothing_disappears_before_it_appears(complaints):
    for manifest in (gputask("a", variant(cpu=1)), node("a", cpu=1), pod("a", on="n1")):
        (line,) = complaints(annotated(manifest, at=5, until="4.5"))
        assert line.endswith("metadata.annotations[sim.gputask.dev/until]: '4.5' is before its sim.gputask.dev/at, '5'")


def test_an_exit_code_is_0_to_255(complaints):
    for code in (256, "-1", "9" * 5000, "²"):
        assert "write '0' to '255'" in complaints(annotated(gputask("a", variant(cpu=1)), exit_code=code))[0]


def test_a_creation_that_is_no_time_names_its_field(complaints):
    (line,) = complaints(meta(gputask("a", variant(cpu=1)), creationTimestamp="yesterday"))
    assert line.startswith("1 GpuTask default/a: metadata.creationTimestamp: 'yesterday' is not a time")


def test_drain_is_true_or_false(complaints):
    assert "write 'true' or 'false'" in complaints(annotated(node("n1", cpu=1), drain="yes"))[0]


def test_the_templates_containers_may_not_ask_more_than_the_variant(complaints):
    asks = gputask("a", variant(cpu=1))
    asks["spec"]["template"]["spec"]["containers"].append({"name": "side", "resources": {"requests": {"cpu": "2"}}})
    (line,) = complaints(asks)
    assert line.startswith("1 GpuTask default/a: spec.variants[0].resources.cpu: ")
    assert "other containers ask 2" in line


def test_records_of_running_work_must_be_whole_and_right(complaints):
    assert "status.reservation" in complaints(reserved(gputask("a", variant(cpu=1)), variant="v0"))[0]
    assert complaints(reserved(gputask("a", variant(cpu=1)), node="n1", variant="gone")) == [
        "1 GpuTask default/a: status.reservation.variant: 'gone' is unknown; known are v0"
    ]
    (line,) = complaints(reserved(gputask("a", variant(cpu=1)), node="n1", variant="v0", amounts={"cpu": "much"}))
    assert "status.reservation.amounts: 'much'" in line
    (line,) = complaints(reserved(gputask("a", variant(cpu=1)), node="n1", variant="v0", startTime="noon"))
    assert "status.reservation: startTime: 'noon' is not a time" in line


def test_a_ledger_entry_without_its_task(complaints):
    entry = {"node": "n1", "variant": "v0"}
    ledger = {"apiVersion": "gputask.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "n1"}}
    (line,) = complaints({**ledger, "status": {"reservations": {"p-1": entry}}})
    assert line == "1 GpuNode n1: status.reservations[p-1].task: missing; write namespace/name"


def test_a_pod_or_a_node_that_is_none(complaints):
    assert complaints(pod("p", on="n1", cpu="lots"))[0].startswith("1 Pod default/p: cannot be read as a Pod: ")
    broken = node("n1", cpu=1)
    broken["spec"] = {"taints": [{"value": "x"}]}
    assert complaints(broken)[0].startswith("1 Node n1: cannot be read as a Node: ")


def test_what_is_no_object_at_all(complaints):
    assert complaints(["a"]) == ["1: is no Kubernetes object; write a mapping with apiVersion, kind and metadata"]  # type: ignore[arg-type]
    assert complaints({"metadata": {}})[0].startswith("1: kind: missing")
    assert complaints({"kind": "GpuTask"})[0].startswith("1: apiVersion: missing")
    assert complaints({**gputask("a", variant(cpu=1)), "apiVersion": "gputask.dev/v1"}) == [
        "1 GpuTask a: apiVersion: 'gputask.dev/v1' is unknown; write gputask.dev/v1alpha1"
    ]


def test_other_kinds_are_ignored(tmp_path: Path):
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}}
    namesake = {"apiVersion": "example.com/v1", "kind": "Node", "metadata": {}}
    assert run(["plan", "-f", write(tmp_path, other, namesake), "-o", "json"]) == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["plan"], "no files: name some with -f FILE"),
        (["simulate"], "no files: name some with -f FILE"),
        (["plan", "-f", "{path}", "--now", "noon"], "--now: 'noon' is not a time; write it like 2026-01-31T12:00:00Z"),
        (
            ["simulate", "-f", "{path}", "--until", "x"],
            "--until: 'x' is not a number of seconds; write 0 or more, like 12.5",
        ),
        (
            ["simulate", "-f", "{path}", "--node-order", "n1,n2"],
            "--node-order: 'n1,n2' is no order of the nodes; write given, reverse, shuffle or n1",
        ),
        (["plan", "-f", "{path}", "-o", "xml"], "gputask: Invalid value for '--output'"),
        (["plan", "--frobnicate"], "gputask: No such option: --frobnicate"),
        (["frobnicate"], "gputask: No such command 'frobnicate'"),
        (["simulate", "--seed", "x"], "gputask: Invalid value for '--seed'"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str):
    path = write(tmp_path, node("n1", cpu=1))
    assert run([argument.format(path=path) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(line)
    assert captured.err.count("\n") == 1
