"""What cannot be understood gets one clear line, and disturbs nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gputask.controller.app import operating
from gputask.controller.preflight import ClusterUnusableError
from gputask.kube.client import Client
from gputask.kube.config import Connection
from gputask.kube.errors import Unreachable
from gputask.kube.resources import GPUNODES, GPUTASKS, NODES, PRIORITY_CLASSES
from gputask.local.cluster import LocalCluster
from support.controller import task, variant
from support.operator import gpu_node, operated


async def test_a_task_that_is_not_understood_is_refused_with_field_and_remedy_and_others_run() -> None:
    async with operated(gpu_node(pools={"lic.a": 1, "lic-a": 1})) as world:
        bad = task("bad", variants=[{"name": "v", "resources": {"cpu": 1, "lic.a": 1, "lic-a": 1}}])
        await world.apply(bad, task("good"))
        said = await world.says("bad", "Accepted", "False")
        assert said["reason"] == "Invalid"
        assert "spec.variants" in said["message"]
        assert "GPUTASK_LIC_A" in said["message"]
        await world.reaches("good", "Running")
        assert (await world.status("bad"))["phase"] == "Pending"


async def test_a_task_that_direct_binding_cannot_honour_is_refused_with_the_remedy() -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    container = {"name": "main", "image": "busybox"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    async with operated(gpu_node()) as world:
        await world.apply(
            task("apart", template={"spec": {"containers": [container], "affinity": affinity}}),
            task("mounted", template={"spec": {"containers": [container], "volumes": [volume]}}),
            task("good"),
        )
        said = await world.says("apart", "Accepted", "False")
        assert said["reason"] == "Unsupported"
        assert "podAntiAffinity" in said["message"]
        assert "Pinned" in said["message"]
        await world.reaches("good", "Running")


async def test_a_task_that_no_node_can_ever_run_names_the_resource_and_the_largest_value() -> None:
    async with operated(gpu_node(cards={"GPU-a": {"gpuMemoryMB": 24000}})) as world:
        huge = {"name": "v", "resources": {"cpu": 1}, "devices": {"count": 1, "resources": {"gpuMemoryMB": 30000}}}
        await world.apply(task("huge", variants=[huge]))
        said = await world.says("huge", "Feasible", "False")
        assert "gpuMemoryMB" in said["message"]
        assert "24000" in said["message"]


async def test_a_priority_class_counts_once_it_exists_and_is_resolved_once() -> None:
    async with operated(gpu_node()) as world:
        await world.apply(task("t", priorityClassName="urgent"))
        assert "urgent" in (await world.says("t", "Accepted", "False"))["message"]
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
        await world.client.create(PRIORITY_CLASSES, {**head, "value": 7})
        assert (await world.reaches("t", "Running"))["priority"] == 7


async def test_a_corrected_task_is_tried_at_once() -> None:
    async with operated(gpu_node(cpu=2)) as world:
        await world.apply(task("t", variants=[variant(cpu=3)]))
        await world.says("t", "Feasible", "False")
        await world.patch(GPUTASKS, "t", {"spec": {"variants": [variant(cpu=1)]}})
        await world.reaches("t", "Running")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{not json", "Malformed"),
        ('{"gpuSlot/0": -1, "lic": 2}', "BadValue"),
        ('{"cpu": 3, "lic": 2}', "NameTaken"),
    ],
)
async def test_a_malformed_declaration_is_one_condition_and_takes_nothing_else_down(text: str, reason: str) -> None:
    async with operated(gpu_node(annotations={"gputask.dev/resources": text})) as world:
        await world.apply(task("t"))
        await world.reaches("t", "Running")
        conditions = (await world.get(GPUNODES, "n1"))["status"]["conditions"]
        (declared,) = (c for c in conditions if c["type"] == "Declared")
        assert (declared["status"], declared["reason"]) == ("False", reason)
        assert "gputask.dev/resources" in declared["message"]
        await world.patch(NODES, "n1", {"metadata": {"annotations": {"gputask.dev/resources": '{"lic": 2}'}}})
        await world.apply(task("u", variants=[variant(lic=2)]))
        await world.reaches("u", "Running")


async def test_a_cluster_without_our_resources_is_one_line_with_the_remedy() -> None:
    async with LocalCluster(crds=[]) as cluster, Client(cluster.connection):
        with pytest.raises(ClusterUnusableError, match=r"gpunodes.*, gputasks.*kubectl apply"):
            async with operating(cluster.connection, host="127.0.0.1", port=0):
                pass


async def test_a_cluster_that_does_not_answer_is_told_apart() -> None:
    async with LocalCluster(crds=[]) as cluster:
        url = cluster.url
    with pytest.raises(Unreachable):
        async with operating(Connection(url), host="127.0.0.1", port=0):
            pass


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: dead
clusters: [{name: dead, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: dead, user: {}}]
contexts: [{name: dead, context: {cluster: dead, user: dead}}]
"""


@pytest.mark.parametrize(("text", "code"), [(KUBECONFIG, 3), (None, 2), ("nonsense: [", 2)])
def test_the_command_ends_with_one_line_and_a_code_that_scripts_can_use(
    tmp_path: Path, text: str | None, code: int
) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    ended = subprocess.run(
        [sys.executable, "-m", "gputask.cli.main", "operator", "--kubeconfig", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == code
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
