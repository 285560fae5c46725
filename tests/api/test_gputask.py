"""GpuTask manifests: what is accepted, and one clear line for each thing that is not."""

from typing import Any

import pytest

from gputask.api.gputask import GpuTask
from gputask.api.problems import ManifestError, read
from support.tasks import gputask, template, variant


def lines(manifest: dict[str, Any]) -> list[str]:
    try:
        read(GpuTask, manifest)
    except ManifestError as error:
        return list(error.lines)
    return []


def test_the_task_of_the_design_is_accepted():
    gpu = variant("gpu", {"count": 1, "resources": {"gpuSlot": 1, "gpuMemoryMB": 20000}}, cpu=4, **{"runtime/aaa": 1})
    gpu["minTimeSeconds"] = 600
    fallback = {**variant("cpu", cpu=4, memory="12Gi"), "weight": 1}
    found = read(
        GpuTask,
        gputask(
            gpu,
            fallback,
            priority=4,
            preemptionPolicy="Never",
            preemptible=False,
            timeLimitSeconds=3600,
            reservationTTLSeconds=60,
            restartPolicy={"limit": 2, "backoffSeconds": 10},
            deviceContainers=["main"],
        ),
    )
    assert [v.name for v in found.spec.variants] == ["gpu", "cpu"]
    assert found.spec.restart_policy.limit == 2
    assert found.spec.reservation_ttl_seconds == 60


def test_what_is_left_out_has_the_defaults_of_the_crd():
    spec = read(GpuTask, gputask()).spec
    assert (spec.priority, spec.binding, spec.variant_policy, spec.preemptible) == (None, "Direct", "Ordered", True)
    assert (spec.restart_policy.limit, spec.restart_policy.backoff_seconds) == (0, 10)
    assert (spec.start_timeout_seconds, spec.placement_failure_limit, spec.suspend) == (600, 3, False)


def test_what_the_api_server_adds_is_read_over():
    manifest = gputask(metadata={"managedFields": [{}], "ownerReferences": [], "generation": 3})
    manifest["status"] = {"phase": "Running", "replicas": 1, "newer": {"field": 1}}
    found = read(GpuTask, manifest)
    assert found.metadata.generation == 3
    assert found.status.phase == "Running"


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        (gputask(prioritty=3), "spec.prioritty: unknown field; did you mean priority?"),
        (gputask(zzz=3), "spec.zzz: unknown field; known are binding, deviceContainers, lease, minRuntimeSeconds, "),
        (gputask(priority="4"), "spec.priority: '4' is not a whole number"),
        (gputask(priority=1.5), "spec.priority: 1.5 is not a whole number"),
        (gputask(priority=True), "spec.priority: True is not a whole number"),
        (gputask(suspend="no"), "spec.suspend: 'no' is not true or false"),
        (gputask(binding="direct"), "spec.binding: 'direct' is unknown; write 'Direct' or 'Pinned'"),
        (gputask(timeLimitSeconds=0), "spec.timeLimitSeconds: 0 is too small; the smallest is 1"),
        (gputask(priority=1, priorityClassName="x"), "spec.priorityClassName: stands beside priority; give at most"),
        (gputask(variants=[]), "spec.variants: has 0 entries; write at least 1"),
        (gputask(variants=None), "spec.variants: None is not a list"),
        (gputask(replicas=2), "spec.replicas: 2 is unknown; write 1"),
        (gputask(variant(cpu="-1")), "spec.variants[0].resources.cpu: '-1' is negative; the smallest amount is 0"),
        (gputask(variant(cpu=-1)), "spec.variants[0].resources.cpu: -1 is negative; the smallest amount is 0"),
        (
            gputask(variant(), variant("b", cpu="0.00001")),
            "spec.variants[1].resources.cpu: '0.00001' has more than 4 decimals; round it to 4",
        ),
        (gputask(variant(cpu=0.125)), "spec.variants[0].resources.cpu: 0.125 is a bare fraction; quote it: '0.125'"),
        (gputask(variant(memory="1E")), "spec.variants[0].resources.memory: '1E' is out of bounds; the largest amount"),
        (gputask(variant(cpu="8Gi")), "spec.variants[0].resources.cpu: unit 'Gi' of '8Gi' makes no sense for cpu"),
        (gputask(variant(cpu=None)), "spec.variants[0].resources.cpu: None is not an amount"),
        (gputask(variant(**{"a b": 1})), "spec.variants[0].resources[a b]: 'a b' cannot be a resource name: use"),
        (gputask(variant(variant=1)), "spec.variants[0].resources.variant: resource name 'variant' would overwrite"),
        (gputask(variant(), variant()), "spec.variants[1].name: 'v0' is the name of variant 0 too; names are unique"),
        (
            gputask(variant("a", **{"a-b": 1}), variant("b", a_b=1)),
            "spec.variants: resources 'a-b' and 'a_b' would both be GPUTASK_A_B; rename one of them",
        ),
        (
            gputask(variant(gpuSlot=1, devices={"resources": {"gpuSlot": 1}})),
            "spec.variants[0].devices.resources.gpuSlot: is asked of the node too",
        ),
        (
            gputask(variant(devices={"count": 2, "resources": {"gpuSlot/0": 1}})),
            "spec.variants[0].devices.resources[gpuSlot/0]: names the device itself; write 'gpuSlot'",
        ),
        (gputask(variant(devices={"count": 2})), "spec.variants[0].devices.resources: missing"),
        (gputask(template=None), "spec.template: missing; write a pod template (or a lease"),
        (gputask(lease={}), "spec.lease: stands beside template; give exactly one of them"),
        (gputask(template=None, lease={"ttlSeconds": 0}), "spec.lease.ttlSeconds: 0 is too small; the smallest is 1"),
        (gputask(template=None, lease={"ttlSeconds": 10**9 + 1}), "spec.lease.ttlSeconds: 1000000001 is too large"),
        (
            gputask(template=None, lease={"renewTime": "now"}),
            "spec.lease.renewTime: 'now' is not a time; write it like",
        ),
        (gputask(template=None, lease={}, binding="Pinned"), "spec.binding: Pinned binds a pod, and a lease has none"),
        (gputask(template={}), "spec.template.spec: missing; write a pod spec with containers"),
        (gputask(template={"spec": {"containers": []}}), "spec.template.spec.containers: missing; write at least one"),
        (
            gputask(template=template(restartPolicy="Always")),
            "spec.template.spec.restartPolicy: 'Always' lets no task end; write Never or OnFailure",
        ),
        (
            gputask(template=template({"image": "x"})),
            "spec.template.spec.containers[0].name: missing; every container has a name",
        ),
        (
            gputask(template=template({"name": "a"}, {"name": "a"})),
            "spec.template.spec.containers[1].name: 'a' is the name of another container too",
        ),
        ({**gputask(), "spec": None}, "spec: None is not a mapping"),
        ({**gputask(), "metadata": {}}, "metadata.name: missing"),
    ],
)
def test_a_mistake_is_one_line_with_its_field(manifest, line):
    (found,) = lines(manifest)
    assert found.startswith(line)
    assert "\n" not in found


def test_each_mistake_has_its_line_and_none_hides_another():
    found = lines(gputask(variant(cpu="-1", lic="0.00001"), variant("b", memory="1E"), suspend=3))
    assert [line.split(":")[0] for line in found] == [
        "spec.variants[0].resources.cpu",
        "spec.variants[0].resources.lic",
        "spec.variants[1].resources.memory",
        "spec.suspend",
    ]


@pytest.mark.parametrize("value", [8000, "8000", "8000Mi", "8Gi"])
def test_b50_a_value_with_a_unit_is_understood(value):
    assert lines(gputask(variant(**{"gpuMemoryMB/0": value}))) == []


@pytest.mark.parametrize("value", ["-1", "", "eight"])
def test_b50_what_is_no_amount_is_refused_at_admission(value):
    (found,) = lines(gputask(variant(**{"gpuMemoryMB/0": value})))
    assert found.startswith("spec.variants[0].resources[gpuMemoryMB/0]: ")


def test_sixty_five_written_out_variants_are_accepted():
    cards = [variant(f"gpu{i}", **{f"gpuSlot/{i}": 1, f"gpuMemoryMB/{i}": 20000}) for i in range(64)]
    assert lines(gputask(*cards, variant("cpu", cpu=4))) == []


def test_129_variants_are_too_many():
    assert lines(gputask(*(variant(f"v{i}") for i in range(129)))) == [
        "spec.variants: has more than 128 entries; the most is 128"
    ]
