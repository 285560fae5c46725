"""The pod of an attempt: what it asks for and what its containers are told."""

from __future__ import annotations

from typing import Any

from gputask.controller import pods
from gputask.ledger.pods import Literals, literals_of
from gputask.resources.amounts import SCALE
from gputask.resources.pools import Allocation
from gputask.translate.tasks import read_task
from support.controller import task, variant


def told(allocation: Allocation) -> dict[str, str]:
    found = pods.environment(Literals("n1", "v", 0, allocation))
    return {entry["name"]: entry["value"] for entry in found}


def made(manifest: dict[str, Any], allocation: Allocation, extended: frozenset[str] = frozenset()) -> dict[str, Any]:
    literals = Literals("n1", "v", 0, allocation)
    return pods.manifest(read_task(manifest), attempt=3, literals=literals, extended=extended)


def test_pools_of_several_devices_are_told_in_the_order_of_the_devices() -> None:
    amounts = {f"gpuMemoryMB/{device}": 13_000 * SCALE for device in "ab"} | {"gpuSlot/a": SCALE, "gpuSlot/b": 5000}
    labels = {"gpuSlot/a": ("x",), "gpuSlot/b": ("y",)}
    environment = told(Allocation(amounts, labels, devices=("b", "a")))
    assert environment["GPUTASK_DEVICES"] == environment["NVIDIA_VISIBLE_DEVICES"] == "b,a"
    assert environment["GPUTASK_GPUMEMORYMB"] == "13000,13000"
    assert environment["GPUTASK_GPUSLOT"] == "0.5,1"
    assert environment["GPUTASK_GPUSLOT_LABELS"] == "y,x"


def test_a_task_without_devices_is_told_void_and_implicit_pools_are_not_told() -> None:
    environment = told(Allocation({"cpu": SCALE, "pods": SCALE, "hostPort:TCP:80": SCALE, "runtime/aaa": SCALE}))
    assert environment["GPUTASK_DEVICES"] == environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert {name for name in environment if name.startswith("GPUTASK_")} == {
        "GPUTASK_VARIANT",
        "GPUTASK_DEVICES",
        "GPUTASK_CPU",
        "GPUTASK_RUNTIME_AAA",
    }


def test_the_pod_is_named_by_task_and_attempt_owned_by_the_task_and_carries_its_decision() -> None:
    allocation = Allocation({"cpu": 4 * SCALE})
    pod = made(task("t", uid="u1", timeLimitSeconds=60, sim={"runs": "8"}, variants=[variant(cpu=4)]), allocation)
    assert pod["metadata"]["name"] == "u1-3"
    assert pod["metadata"]["labels"] == {"gputask.dev/task": "t", "gputask.dev/task-uid": "u1"}
    assert pod["metadata"]["annotations"]["sim.gputask.dev/runs"] == "8"
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("u1", True)
    assert (pod["spec"]["schedulerName"], pod["spec"]["activeDeadlineSeconds"]) == ("gputask-direct", 60)
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "4"}
    found = literals_of(pod)
    assert found is not None
    assert (found.node, found.variant, found.allocation) == ("n1", "v", allocation)


def test_only_what_the_node_has_in_allocatable_becomes_a_request() -> None:
    wants = task("t", uid="u1", variants=[variant(cpu=1, lic=1, **{"example.com__fpga": 2})])
    pod = made(wants, Allocation({"cpu": SCALE}), frozenset({"example.com/fpga"}))
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "example.com/fpga": "2"}


def test_the_template_itself_is_never_changed() -> None:
    wants = read_task(task("t", uid="u1"))
    before = str(wants.spec.template)
    pods.manifest(wants, attempt=1, literals=Literals("n1", "v", 0, Allocation({"cpu": SCALE})), extended=())
    assert str(wants.spec.template) == before
