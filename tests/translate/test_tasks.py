"""GpuTasks as the planner sees them."""

from typing import Any

import pytest

from gputask.planner import model
from gputask.planner.model import DeviceDemand
from gputask.resources.amounts import SCALE
from gputask.translate.tasks import ClassTable, TaskError, planner_task, read_task
from support.tasks import gputask, template, variant


def planned(manifest: dict[str, Any], classes: ClassTable | None = None, **options: Any) -> model.Task:
    return planner_task(read_task(manifest), classes or ClassTable(), **options)


def amounts(task: model.Task, position: int = 0) -> dict[str, float]:
    return {name: units / SCALE for name, units in task.request.variants[position].amounts}


def lines(manifest: dict[str, Any]) -> list[str]:
    try:
        planned(manifest)
    except TaskError as error:
        return list(error.lines)
    return []


def test_a_variant_asks_its_pools_and_a_place_among_the_pods():
    task = planned(gputask(variant(cpu="0.5", lic="0.125", memory="384Mi", **{"gpuSlot/0": 1})))
    assert amounts(task) == {"cpu": 0.5, "lic": 0.125, "memory": 384, "gpuSlot/0": 1, "pods": 1}


def test_devices_are_a_demand_of_their_own():
    task = planned(gputask(variant(devices={"count": 2, "resources": {"gpuSlot": 1, "gpuMemoryMB": "14000"}}, cpu=1)))
    (found,) = task.request.variants
    assert found.devices == DeviceDemand(2, (("gpuMemoryMB", 14000 * SCALE), ("gpuSlot", SCALE)))
    assert amounts(task) == {"cpu": 1, "pods": 1}


def test_b112_an_explicit_zero_is_absent():
    zeros = {"gpuSlot/0": 0, "gpuMemoryMB/0": "0"}
    assert amounts(planned(gputask(variant(cpu=1, **zeros)))) == {"cpu": 1, "pods": 1}
    none = planned(gputask(variant(cpu=1, devices={"count": 0, "resources": {"gpuSlot": 1}})))
    nothing = planned(gputask(variant(cpu=1, devices={"count": 1, "resources": {"gpuSlot": 0}})))
    assert none.request == nothing.request == planned(gputask(variant(cpu=1))).request


def test_b09_tenths_as_text_ask_the_same_in_every_spelling():
    same = {planned(gputask(variant(lic=text))).request for text in ("0.1", "0.10", "0.1000")}
    assert len(same) == 1


def test_what_the_template_asks_besides_counts():
    manifest = gputask(
        variant(cpu=4, lic=1),
        template=template(
            {"name": "main", "ports": [{"containerPort": 1, "hostPort": 8080}]},
            {"name": "side", "resources": {"requests": {"memory": "1Gi", "cpu": "1"}}},
            initContainers=[{"name": "setup", "resources": {"requests": {"cpu": "6"}}}],
            overhead={"cpu": "250m"},
        ),
    )
    expected = {"cpu": 6.25, "memory": 1024, "lic": 1, "pods": 1, "hostPort:TCP:8080": 1}
    assert amounts(planned(manifest)) == expected


def test_rank_is_priority_then_creation_then_uid():
    manifest = gputask(priority=4, metadata={"uid": "u-1", "creationTimestamp": "1970-01-01T00:01:00Z"})
    task = planned(manifest)
    assert (task.key, task.rank) == ("default/t1", (-4, 60.0, "u-1"))
    assert planned(manifest, created=12.5).created == 12.5
    assert planned(gputask()).rank == (0, 0.0, "default/t1")


def test_times_and_weights_are_the_variants():
    found = planned(gputask({**variant(), "minTimeSeconds": 600, "weight": 3}, variant("b"), timeLimitSeconds=3600))
    assert [(v.min_time, v.weight) for v in found.request.variants] == [(600.0, 3.0), (0.0, 1.0)]
    assert found.time_limit == 3600.0


def test_tasks_that_differ_only_in_what_they_do_share_one_class():
    classes = ClassTable()
    first = gputask(variant(cpu=1), template=template({"name": "main", "args": ["--seed", "1"], "image": "a"}))
    other = gputask(variant(cpu="1"), name="t2", template=template({"name": "main", "env": [{"name": "A"}]}))
    assert planned(first, classes).request is planned(other, classes).request


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"zone": "a"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"overhead": {"cpu": "1"}},
        {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
        {"containers": [{"name": "main", "resources": {"requests": {"memory": "1Gi"}}}]},
        {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3"}}}]},
        {"resources": {"requests": {"memory": "3Gi"}}},
    ],
)
def test_tasks_that_could_go_elsewhere_are_of_another_class(spec):
    classes = ClassTable()
    plain = {"containers": [{"name": "main"}]}
    first, other = (gputask(template={"spec": given}) for given in (plain, {**plain, **spec}))
    assert planned(first, classes).request is not planned(other, classes).request


def test_b48_a_fraction_of_an_extended_resource_in_the_template_is_refused_by_field():
    half = {"example.com/gpu": "0.5"}
    manifest = gputask(
        variant(gpu="0.5"), template=template({"name": "main", "resources": {"requests": half, "limits": half}})
    )
    assert lines(manifest)[0] == (
        "spec.template.spec.containers[0].resources.requests[example.com/gpu]: '0.5' is not whole, as extended "
        "resources are; ask fractions in a variant"
    )


def test_b48_with_the_fraction_only_in_the_variant_it_is_a_pool_of_ours():
    assert amounts(planned(gputask(variant(gpu="0.5", **{"example.com/gpu": "0.5"})))) == {
        "gpu": 0.5,
        "example.com/gpu": 0.5,
        "pods": 1,
    }


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        (
            gputask(
                variant(cpu=1), template=template({"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": 2}}})
            ),
            "spec.variants[0].resources.cpu: the template's other containers ask 2, more than the variant's 1; raise",
        ),
        (
            gputask(deviceContainers=["gone"]),
            "spec.deviceContainers: the template has no container 'gone'; it has main",
        ),
        (
            gputask(template=template({"name": "main", "resources": {"requests": {"cpu": "lots"}}})),
            "spec.template.spec.containers[0].resources.requests[cpu]: 'lots' is not a Kubernetes quantity like 8",
        ),
        (
            gputask(metadata={"creationTimestamp": "yesterday"}),
            "metadata.creationTimestamp: 'yesterday' is not a time; write it like",
        ),
        (
            gputask(template=template({"name": "main", "resources": "many"})),
            "spec.template: it cannot be read as a pod template: ",
        ),
        (
            gputask(template=template(tolerations=[3])),
            "spec.template: it cannot be read as a pod template: ",
        ),
        (gputask(variant(cpu="-1")), "spec.variants[0].resources.cpu: '-1' is negative"),
    ],
)
def test_a_task_that_cannot_be_understood_is_one_line_with_its_field(manifest, line):
    (found,) = lines(manifest)
    assert found.startswith(line)


def test_each_variant_that_does_not_go_with_the_template_has_its_line():
    manifest = gputask(
        variant("a", cpu=1),
        variant("b", cpu=4),
        variant("c", cpu=2),
        template=template({"name": "main"}, {"name": "side", "resources": {"requests": {"cpu": "3"}}}),
    )
    assert [line.split(":")[0] for line in lines(manifest)] == [
        "spec.variants[0].resources.cpu",
        "spec.variants[2].resources.cpu",
    ]


def test_a_resolved_priority_counts_where_the_task_has_none_of_its_own():
    resolved = {**gputask(), "status": {"priority": 7}}
    assert planned(resolved).priority == 7
    assert planned({**gputask(priority=3), "status": {"priority": 7}}).priority == 3


def test_sixty_four_written_out_cards_are_sixty_four_variants():
    cards = [variant(f"gpu{i}", **{f"gpuSlot/{i}": 1, f"gpuMemoryMB/{i}": 20000}) for i in range(64)]
    task = planned(gputask(*cards, variant("cpu", cpu=4)))
    assert len(task.request.variants) == 65
    assert amounts(task, 63) == {"gpuSlot/63": 1, "gpuMemoryMB/63": 20000, "pods": 1}
