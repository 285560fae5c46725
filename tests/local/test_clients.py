"""The embedded server with the clients that people use, none of them changed: kubectl, the kubernetes package, Kopf."""

import asyncio
import re

import kopf
import pytest

from gputask.local.cluster import LocalCluster
from support.kubectl import Kubectl, needs_kubectl
from support.local import crd, eventually, node, pod

SCHEMA = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "description": "How large it is."},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
    },
    "x-kubernetes-validations": [{"rule": "self.size == oldSelf.size", "message": "size is fixed"}],
}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Up", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Up")].status'},
    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
]
WIDGET = "apiVersion: example.dev/v1\nkind: Widget\nmetadata: {name: w1, labels: {a: b}}\nspec: {size: 3}\n"


@pytest.fixture
async def cluster():
    widgets = crd(SCHEMA, additionalPrinterColumns=COLUMNS)
    widgets["spec"]["names"]["shortNames"] = ["wg"]
    async with LocalCluster(nodes=[node()], crds=[widgets], history=True, speed=20) as running:
        yield running


@pytest.fixture
def kubectl(cluster, tmp_path):
    return Kubectl(cluster, tmp_path)


def rows(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]


@needs_kubectl
class TestKubectl:
    async def test_applies_changes_and_deletes(self, kubectl):
        assert "w1 created" in await kubectl("apply", "-f", "-", stdin=WIDGET)
        assert "w1 unchanged" in await kubectl("apply", "-f", "-", stdin=WIDGET)
        blue = WIDGET.replace("size: 3", "size: 3, color: blue")
        assert "w1 configured" in await kubectl("apply", "-f", "-", stdin=blue)
        assert await kubectl("get", "wg", "w1", "-o", "jsonpath={.spec.color}") == "blue"
        assert "w1 configured" in await kubectl("apply", "-f", "-", stdin=WIDGET)
        assert await kubectl("get", "wg", "w1", "-o", "jsonpath={.spec.color}") == "red"
        assert "deleted" in await kubectl("delete", "wg", "w1")
        assert "NotFound" in await kubectl("get", "wg", "w1", code=1)

    async def test_says_what_is_wrong_with_a_manifest(self, kubectl):
        wrong = WIDGET.replace("size: 3", "size: 0, color: green")
        said = await kubectl("apply", "-f", "-", stdin=wrong, code=1)
        assert 'spec.color: Unsupported value: "green": supported values: "red", "blue"' in said
        assert "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1" in said
        typo = WIDGET.replace("size: 3", "size: 3, colour: red")
        said = await kubectl("apply", "-f", "-", stdin=typo, code=1)
        assert 'strict decoding error: unknown field "spec.colour"' in said
        await kubectl("apply", "-f", "-", stdin=WIDGET)
        larger = WIDGET.replace("size: 3", "size: 4")
        assert "size is fixed" in await kubectl("apply", "-f", "-", stdin=larger, code=1)

    async def test_prints_the_columns_of_the_server(self, kubectl, cluster):
        await kubectl("apply", "-f", "-", stdin=WIDGET)
        assert [row[:3] for row in rows(await kubectl("get", "wg"))] == [["NAME", "SIZE", "UP"], ["w1", "3"]]
        assert rows(await kubectl("get", "wg", "-o", "wide"))[0] == ["NAME", "SIZE", "UP", "COLOR"]
        await eventually(lambda: cluster.api.kinds and _tainted(cluster) is False)
        [_, row] = rows(await kubectl("get", "nodes"))
        assert row[:3] == ["n1", "Ready", "<none>"]
        both = await kubectl("get", "wg,nodes")
        assert "widget.example.dev/w1" in both
        assert "node/n1" in both

    async def test_watches(self, kubectl):
        process = await kubectl.start("get", "wg", "-w", "--output-watch-events")

        async def next_line() -> str:
            return (await asyncio.wait_for(process.stdout.readline(), 20)).decode()

        await kubectl("apply", "-f", "-", stdin=WIDGET)
        assert (await next_line()).split()[:2] == ["EVENT", "NAME"]
        assert (await next_line()).split()[:2] == ["ADDED", "w1"]
        await kubectl("label", "wg", "w1", "more=labels")
        assert (await next_line()).split()[:2] == ["MODIFIED", "w1"]
        await kubectl("delete", "wg", "w1")
        assert (await next_line()).split()[:2] == ["DELETED", "w1"]
        process.kill()
        await process.wait()

    async def test_runs_a_pod_and_reads_its_log(self, kubectl, cluster):
        container = {"name": "main", "image": "busybox", "env": [{"name": "A", "value": "x"}]}
        cluster.create(pod(nodeName="n1", containers=[container], terminationGracePeriodSeconds=5))
        await kubectl("wait", "pod/p1", "--for=jsonpath={.status.phase}=Running", "--timeout=20s")
        assert await kubectl("logs", "p1") == "A=x\n"
        assert rows(await kubectl("get", "pods", "-o", "wide"))[1][:3] == ["p1", "1/1", "Running"]
        assert "deleted" in await kubectl("delete", "pod", "p1")
        assert "No resources found" in await kubectl("get", "pods")

    async def test_labels_cordons_describes_and_explains(self, kubectl):
        assert "labeled" in await kubectl("label", "node", "n1", "zone=a")
        assert "cordoned" in await kubectl("cordon", "n1")
        assert "SchedulingDisabled" in await kubectl("get", "node", "n1")
        described = await kubectl("describe", "node", "n1")
        assert "zone=a" in described
        assert "Unschedulable:      true" in described
        assert "How large it is." in await kubectl("explain", "wg.spec.size")
        assert "nodeSelector" in await kubectl("explain", "pod.spec")

    async def test_makes_and_removes_namespaces(self, kubectl):
        await kubectl("create", "namespace", "team")
        await kubectl("apply", "-n", "team", "-f", "-", stdin=WIDGET)
        await kubectl("delete", "namespace", "team")
        assert "team" not in await kubectl("get", "ns")

    async def test_lists_in_pages_and_by_selector(self, kubectl):
        for i in range(5):
            await kubectl("apply", "-f", "-", stdin=WIDGET.replace("w1", f"w{i}"))
        assert len(rows(await kubectl("get", "wg", "--chunk-size=2", "--no-headers"))) == 5
        assert len(rows(await kubectl("get", "wg", "-l", "a=b", "--no-headers"))) == 5
        assert "No resources found" in await kubectl("get", "wg", "-l", "a!=b")

    async def test_a_dry_run_on_the_server_stores_nothing(self, kubectl):
        said = await kubectl("apply", "--dry-run=server", "-f", "-", stdin=WIDGET)
        assert "created (server dry run)" in said
        assert "No resources found" in await kubectl("get", "wg")


def _tainted(cluster: LocalCluster) -> bool:
    nodes = cluster.api.kinds.find("", "v1", "nodes")
    return bool(cluster.api.objects.get(nodes, "", "n1").obj["spec"].get("taints"))


async def test_the_kubernetes_package_lists_watches_and_binds(cluster, tmp_path):
    def work() -> list[str]:
        from kubernetes import client, config, watch

        config.load_kube_config(str(cluster.write_kubeconfig(tmp_path / "kubeconfig")))
        core = client.CoreV1Api()
        assert [item.metadata.name for item in core.list_node().items] == ["n1"]
        created = core.create_namespaced_pod("default", pod(sim={"runs": "1"}))
        target = client.V1ObjectReference(api_version="v1", kind="Node", name="n1")
        meta = client.V1ObjectMeta(name="p1", uid=created.metadata.uid, annotations={"a": "b"})
        body = client.V1Binding(metadata=meta, target=target)
        core.create_namespaced_pod_binding("p1", "default", body, _preload_content=False)
        phases = []
        start = created.metadata.resource_version
        for event in watch.Watch().stream(
            core.list_namespaced_pod, "default", resource_version=start, timeout_seconds=20
        ):
            assert event["object"].metadata.annotations["a"] == "b"
            phases.append(event["object"].status.phase)
            if phases[-1] == "Succeeded":
                break
        with pytest.raises(client.ApiException) as caught:
            core.create_namespaced_pod("default", pod())
        assert (caught.value.status, caught.value.reason) == (409, "Conflict")
        return phases

    assert list(dict.fromkeys(await asyncio.to_thread(work))) == ["Pending", "Running", "Succeeded"]


async def test_kopf_handles_patches_and_reports(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(cluster.write_kubeconfig(tmp_path / "kubeconfig")))
    registry = kopf.OperatorRegistry()
    seen: list[str] = []

    @kopf.on.login(registry=registry)
    def login(**arguments):
        return kopf.login_with_kubeconfig(**arguments)

    @kopf.on.event("widgets", registry=registry)
    def tell(event, **_):
        seen.append(event["type"])

    @kopf.on.create("widgets", registry=registry)
    def create(body, spec, patch, **_):
        patch.status["seen"] = spec["size"]
        kopf.event(body, type="Normal", reason="Made", message="made")

    @kopf.on.delete("widgets", registry=registry)
    def delete(**_):
        seen.append("finalized")

    ready, stop = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(
        kopf.operator(registry=registry, standalone=True, namespaces=["default"], ready_flag=ready, stop_flag=stop)
    )
    await asyncio.wait_for(ready.wait(), 20)
    widgets = cluster.api.kinds.find("example.dev", "v1", "widgets")
    events = cluster.api.kinds.find("", "v1", "events")
    cluster.create({"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"name": "w1"}, "spec": {"size": 3}})
    await eventually(lambda: cluster.api.objects.get(widgets, "default", "w1").obj.get("status", {}).get("seen") == 3)
    await eventually(lambda: [v.obj["reason"] for v in cluster.api.kinds.table(events).rows.values()] == ["Made"])
    cluster.api.objects.delete(widgets, ("default", "w1"))
    await eventually(lambda: ("default", "w1") not in cluster.api.kinds.table(widgets).rows)
    await eventually(lambda: seen[-1] == "DELETED")
    assert "finalized" in seen
    stop.set()
    await asyncio.wait_for(running, 20)


async def test_a_fault_can_lose_the_answer_of_a_write_that_took_effect(tmp_path):
    from gputask.kube.client import Client
    from gputask.kube.errors import AlreadyExists, OutcomeUnknown
    from gputask.kube.resources import PODS

    lost = []

    async def fault(request, answer):
        reply = answer()
        if request.method == "POST" and not lost:
            lost.append(request.path)
            return None
        return reply

    async with LocalCluster(crds=[], fault=fault) as cluster, Client(cluster.connection) as client:
        with pytest.raises(OutcomeUnknown):
            await client.create(PODS, pod(), "default")
        with pytest.raises(AlreadyExists):
            await client.create(PODS, pod(), "default")
