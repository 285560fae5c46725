"""Nodes as the planner sees them."""

from typing import Any

import pytest

from gputask.planner.model import Taint
from gputask.resources.amounts import SCALE
from gputask.resources.pools import NodeResources, SumPool
from gputask.translate.nodes import declared, extended_resources, planner_node


def node(*, annotations: dict[str, str] | None = None, spec: Any = None, status: Any = None, **metadata: Any) -> Any:
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", **metadata}}
    if annotations:
        manifest["metadata"]["annotations"] = annotations
    return manifest | ({"spec": spec} if spec else {}) | ({"status": status} if status else {})


def ready(status: str) -> Any:
    return {"conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": status}]}


def test_a_bare_node_of_a_file_is_ready_and_offers_nothing():
    found = planner_node(node())
    assert (found.name, found.ready, found.unschedulable, found.lives_until) == ("n1", True, False, None)
    assert found.resources == NodeResources()


def test_labels_taints_and_cordon_are_taken_over():
    spec = {"unschedulable": True, "taints": [{"key": "a", "value": "b", "effect": "NoExecute"}, {"key": "c"}]}
    found = planner_node(node(labels={"zone": "a"}, spec=spec))
    assert (found.labels, found.unschedulable) == ({"zone": "a"}, True)
    assert found.taints == (Taint("a", "b", "NoExecute"), Taint("c", "", ""))


@pytest.mark.parametrize(("status", "is_ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_a_node_is_ready_if_its_condition_says_so(status, is_ready):
    assert planner_node(node(status=ready(status))).ready is is_ready


def test_allocatable_and_annotations_are_what_it_offers():
    manifest = node(
        annotations={"gputask.dev/resources": "lic: 2"}, status={"allocatable": {"cpu": "8", "pods": "110"}}
    )
    assert declared(manifest).pools == {
        "cpu": SumPool(8 * SCALE),
        "pods": SumPool(110 * SCALE),
        "lic": SumPool(2 * SCALE),
    }
    assert planner_node(manifest).resources == declared(manifest)


def test_resources_that_are_known_already_are_not_read_again():
    known = NodeResources({"lic": SumPool(SCALE)})
    assert planner_node(node(annotations={"gputask.dev/resources": "lic: 2"}), resources=known).resources is known


def test_a_node_lives_until_its_annotation_says():
    found = planner_node(node(annotations={"gputask.dev/lives-until": "1970-01-01T00:02:00Z"}))
    assert found.lives_until == 120.0


def test_an_end_that_cannot_be_read_is_a_problem_of_the_node():
    manifest = node(annotations={"gputask.dev/lives-until": "friday", "gputask.dev/resources": "lic: 1"})
    (problem,) = declared(manifest).problems
    assert str(problem).startswith("gputask.dev/lives-until: 'friday' is not a time; write it like")
    assert declared(manifest).pools == {"lic": SumPool(SCALE)}


def test_extended_resources_are_those_beyond_kubernetes_own():
    allocatable = {"cpu": "8", "memory": "1Gi", "pods": "110", "hugepages-2Mi": "0", "nvidia.com/gpu": "4"}
    assert extended_resources(node(status={"allocatable": allocatable})) == {"nvidia.com/gpu"}
