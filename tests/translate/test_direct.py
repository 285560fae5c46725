"""What Direct binding cannot honour is refused with the field and the remedy."""

from typing import Any

import pytest

from gputask.api.gputask import GpuTask
from gputask.api.problems import read
from gputask.translate.direct import refusals
from support.tasks import gputask, template

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def refused(*, metadata: dict[str, Any] | None = None, task: dict[str, Any] | None = None, **spec: Any) -> list[str]:
    given = template(**spec)
    if metadata:
        given["metadata"] = metadata
    return refusals(read(GpuTask, gputask(template=given, **(task or {}))))


def with_env(name: str) -> list[dict[str, Any]]:
    return [{"name": "main", "env": [{"name": "HOME", "value": "/"}, {"name": name, "value": "0"}]}]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"schedulerName": "default-scheduler"}, "spec.template.spec.schedulerName"),
        ({"nodeName": "n1"}, "spec.template.spec.nodeName"),
        ({"schedulingGates": [{"name": "x"}]}, "spec.template.spec.schedulingGates"),
        ({"resourceClaims": [{"name": "x"}]}, "spec.template.spec.resourceClaims"),
        (
            {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "persistentVolumeClaim": {"claimName": "c"}}]},
            "spec.template.spec.volumes[1].persistentVolumeClaim",
        ),
        ({"volumes": [{"name": "a", "ephemeral": {}}]}, "spec.template.spec.volumes[0].ephemeral"),
        ({"affinity": {"podAffinity": {REQUIRED: [{}]}}}, "spec.template.spec.affinity.podAffinity"),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}}, "spec.template.spec.affinity.podAntiAffinity"),
        (
            {
                "topologySpreadConstraints": [
                    {"whenUnsatisfiable": "ScheduleAnyway"},
                    {"whenUnsatisfiable": "DoNotSchedule"},
                ]
            },
            "spec.template.spec.topologySpreadConstraints[1]",
        ),
        ({"containers": with_env("GPUTASK_DEVICES")}, "spec.template.spec.containers[0].env[1]"),
        ({"containers": with_env("NVIDIA_VISIBLE_DEVICES")}, "spec.template.spec.containers[0].env[1]"),
        (
            {"initContainers": [{"name": "i", "env": [{"name": "GPUTASK_X"}]}]},
            "spec.template.spec.initContainers[0].env[0]",
        ),
        ({"metadata": {"annotations": {"alloc.gputask.dev/node": "n1"}}}, "spec.template.metadata"),
        ({"metadata": {"labels": {"gputask.dev/task-uid": "u"}}}, "spec.template.metadata"),
        ({"task": {"binding": "Pinned"}}, "spec.binding"),
        ({"task": {"variantPolicy": "Throughput"}}, "spec.variantPolicy"),
        ({"task": {"priorityClassName": "high"}}, "spec.priorityClassName"),
    ],
)
def test_it_is_refused_with_its_field_and_a_remedy(spec, field):
    (line,) = refused(**spec)
    assert line.startswith(f"{field}: ")
    assert any(remedy in line for remedy in ("use ", "remove ", "write "))


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"nodeSelector": {"zone": "a"}, "tolerations": [{"operator": "Exists"}], "restartPolicy": "OnFailure"},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
        {"affinity": {"podAffinity": {PREFERRED: [{}]}, "podAntiAffinity": {PREFERRED: [{}]}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"volumes": [{"name": "a", "configMap": {"name": "b"}}, {"name": "c", "hostPath": {"path": "/d"}}]},
        {"hostNetwork": True, "overhead": {"cpu": "1"}, "priorityClassName": "high"},
        {"metadata": {"annotations": {"sim.gputask.dev/runs": "8"}, "labels": {"app": "x"}}},
    ],
)
def test_what_the_planner_honours_or_anybody_may_prefer_is_accepted(spec):
    assert refused(**spec) == []


def test_each_thing_has_its_line():
    lines = refused(schedulerName="x", nodeName="n1", containers=with_env("GPUTASK_CPU"))
    assert [line.split(":")[0].rpartition(".")[2] for line in lines] == ["schedulerName", "nodeName", "env[1]"]
