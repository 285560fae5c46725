"""Evictions and the budgets that refuse them, as the real API server and its disruption controller do it."""

import asyncio
import json

import pytest

from gputask.local.cluster import LocalCluster
from gputask.local.controllers import Controllers
from support.kubectl import Kubectl, needs_kubectl
from support.local import Direct, crd, eventually, node, pod, widget

PODS = "/api/v1/namespaces/default/pods"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.dev/v1/namespaces/default/widgets"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
async def direct():
    server = Direct()
    Controllers(server.api.objects)
    server.ok("POST", "/api/v1/nodes", node())
    return server


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def running(direct: Direct, name: str, *, ready: str = "True", owner: dict | None = None, **labels: str) -> None:
    meta: dict = {"labels": labels}
    if owner is not None:
        head = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        named = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        meta["ownerReferences"] = [{**head, **named, "controller": True}]
    direct.ok("POST", PODS, pod(name, meta=meta, nodeName="n1"))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    direct.ok("PATCH", f"{PODS}/{name}/status", {"status": status}, type="merge")


def budget(name: str = "b1", selector: dict | None = None, **spec) -> dict:
    selector = {"matchLabels": {"app": "a"}} if selector is None else selector
    head = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}}
    return head | {"spec": {"selector": selector, **spec}}


def eviction(name: str, **options) -> dict:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}


def evict(direct: Direct, name: str, **options) -> tuple[int, dict]:
    return direct.ask("POST", f"{PODS}/{name}/eviction", eviction(name, **options))


def allowed(direct: Direct, name: str = "b1") -> int:
    return direct.ok("GET", f"{BUDGETS}/{name}")["status"]["disruptionsAllowed"]


def disruption_allowed(direct: Direct) -> tuple[str, str]:
    """Reason and message of the budget's only condition."""
    [condition] = direct.ok("GET", f"{BUDGETS}/b1")["status"]["conditions"]
    assert condition["type"] == "DisruptionAllowed"
    return condition["reason"], condition["message"]


class TestEviction:
    async def test_marks_the_pod_and_deletes_it_with_its_grace(self, direct):
        running(direct, "p1")
        assert evict(direct, "p1")[0] == 201
        going = direct.ok("GET", f"{PODS}/p1")
        assert going["metadata"]["deletionGracePeriodSeconds"] == 30
        [target] = [c for c in going["status"]["conditions"] if c["type"] == "DisruptionTarget"]
        assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")

    async def test_of_nothing_or_of_another_pod_is_refused(self, direct):
        running(direct, "p1")
        assert evict(direct, "p2")[0] == 404
        status, answer = evict(direct, "p1", preconditions={"uid": "other"})
        assert (status, answer["reason"]) == (409, "Conflict")
        assert "deletionTimestamp" not in direct.ok("GET", f"{PODS}/p1")["metadata"]

    async def test_as_a_dry_run_changes_nothing(self, direct):
        running(direct, "p1", app="a")
        direct.ok("POST", BUDGETS, budget(minAvailable=0))
        await settled()
        assert evict(direct, "p1", dryRun=["All"])[0] == 201
        assert "deletionTimestamp" not in direct.ok("GET", f"{PODS}/p1")["metadata"]
        assert allowed(direct) == 1


class TestBudgets:
    async def test_count_healthy_pods(self, direct):
        for name in ("p1", "p2", "p3"):
            running(direct, name, app="a")
        direct.ok("POST", BUDGETS, budget(minAvailable=2))
        await settled()
        status = direct.ok("GET", f"{BUDGETS}/b1")["status"]
        assert {k: status[k] for k in ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")} == {
            "expectedPods": 3,
            "currentHealthy": 3,
            "desiredHealthy": 2,
            "disruptionsAllowed": 1,
        }

    async def test_allow_so_many_and_refuse_the_next(self, direct):
        for name in ("p1", "p2"):
            running(direct, name, app="a")
        direct.ok("POST", BUDGETS, budget(minAvailable=1))
        await settled()
        assert evict(direct, "p1")[0] == 201
        status, answer = evict(direct, "p2")  # before any controller had its turn
        assert (status, answer["reason"]) == (429, "TooManyRequests")
        assert answer["details"]["causes"][0]["reason"] == "DisruptionBudget"
        await settled()
        assert evict(direct, "p2")[0] == 429

    async def test_that_are_not_processed_yet_refuse_all(self, direct):
        running(direct, "p1", app="a")
        direct.ok("POST", BUDGETS, budget(minAvailable=0))
        status, answer = evict(direct, "p1")
        assert status == 429
        assert direct.reply("POST", f"{PODS}/p1/eviction", eviction("p1")).retry_after == 10
        assert "still being processed" in answer["details"]["causes"][0]["message"]

    async def test_two_of_them_are_an_error(self, direct):
        running(direct, "p1", app="a")
        for name in ("b1", "b2"):
            direct.ok("POST", BUDGETS, budget(name, minAvailable=0))
        await settled()
        status, answer = evict(direct, "p1")
        assert (status, answer.get("reason")) == (500, None)
        assert answer["message"] == (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )

    async def test_do_not_keep_what_has_ended(self, direct):
        running(direct, "p1", app="a")
        direct.ok("POST", BUDGETS, budget(minAvailable=1))
        direct.ok("PATCH", f"{PODS}/p1/status", {"status": {"phase": "Succeeded"}}, type="merge")
        await settled()
        assert evict(direct, "p1")[0] == 201

    async def test_in_percent_refuse_pods_without_a_scale(self, direct):
        running(direct, "p1", app="a")
        direct.ok("POST", BUDGETS, budget(maxUnavailable="100%"))
        await settled()
        assert allowed(direct) == 0

    async def test_in_percent_say_why_they_cannot_be_calculated(self, direct):
        direct.ok("POST", CRDS, crd({"type": "object"}))
        owner = direct.ok("POST", WIDGETS, widget())
        running(direct, "p1", app="a", owner=owner)
        direct.ok("POST", BUDGETS, budget(minAvailable="50%"))
        await settled()
        assert disruption_allowed(direct) == (
            "SyncFailed",
            "widgets.example.dev does not implement the scale subresource",
        )
        assert evict(direct, "p1")[0] == 429

    @pytest.mark.parametrize(
        ("limit", "expected"),
        [({"minAvailable": "50%"}, 2), ({"maxUnavailable": "50%"}, 1), ({"maxUnavailable": 1}, 2), ({}, 0)],
    )
    async def test_ask_for_a_share_of_the_scale_of_the_controllers(self, direct, limit, expected):
        scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        schema = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
        direct.ok("POST", CRDS, crd(schema, subresources={"status": {}, "scale": scale}))
        owner = direct.ok("POST", WIDGETS, widget(replicas=3))
        running(direct, "p1", app="a", owner=owner)
        direct.ok("POST", BUDGETS, budget(**limit))
        await settled()
        assert direct.ok("GET", f"{BUDGETS}/b1")["status"]["desiredHealthy"] == expected

    async def test_say_whether_they_allow_a_disruption(self, direct):
        running(direct, "p1", app="a")
        direct.ok("POST", BUDGETS, budget(minAvailable=0))
        await settled()
        assert disruption_allowed(direct) == ("SufficientPods", "")
        evict(direct, "p1")
        assert disruption_allowed(direct) == ("InsufficientPods", "")

    async def test_guard_a_dry_run_as_well(self, direct):
        running(direct, "p1", app="a")
        direct.ok("POST", BUDGETS, budget(minAvailable=1))
        await settled()
        assert evict(direct, "p1", dryRun=["All"])[0] == 429

    @pytest.mark.parametrize(("policy", "code"), [(None, 429), ("IfHealthyBudget", 429), ("AlwaysAllow", 201)])
    async def test_let_unhealthy_pods_go_if_they_say_so(self, direct, policy, code):
        running(direct, "p1", app="a", ready="False")
        direct.ok("POST", BUDGETS, budget(minAvailable=1, **({"unhealthyPodEvictionPolicy": policy} if policy else {})))
        await settled()
        assert evict(direct, "p1")[0] == code

    @pytest.mark.parametrize(
        ("spec", "said"),
        [
            ({"minAvailable": 1, "maxUnavailable": 1}, "cannot be both set"),
            ({"minAvailable": -1}, "must be greater than or equal to 0"),
            ({"maxUnavailable": "half"}, "a valid percent string must be a numeric string"),
            ({"maxUnavailable": "101%"}, "must not be greater than 100%"),
            ({"unhealthyPodEvictionPolicy": "Never"}, 'supported values: "AlwaysAllow", "IfHealthyBudget"'),
        ],
    )
    async def test_that_make_no_sense_are_refused(self, direct, spec, said):
        status = direct.fails("POST", BUDGETS, budget(**spec))
        assert (status["code"], status["reason"]) == (422, "Invalid")
        assert said in status["message"]

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ({}, 1),
            ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, 1),
            ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, 0),
            ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, 0),
        ],
    )
    async def test_select_by_labels_and_expressions(self, direct, selector, expected):
        running(direct, "p1", app="a")
        direct.ok("POST", BUDGETS, budget(selector=selector, minAvailable=0))
        await settled()
        assert direct.ok("GET", f"{BUDGETS}/b1")["status"]["expectedPods"] == expected


@needs_kubectl
async def test_kubectl_drains_a_node(tmp_path):
    async with LocalCluster(nodes=[node()], speed=20) as cluster:
        kubectl = Kubectl(cluster, tmp_path)
        cluster.create(pod("p1") | {"metadata": {"name": "p1", "namespace": "default"}})
        await kubectl("apply", "-f", "-", stdin=json.dumps(budget(minAvailable=1)))
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p1"}}
        await kubectl("create", "-f", "-", "--raw", f"{PODS}/p1/binding", stdin=_text(binding))
        await eventually(lambda: _phase(cluster) == "Running")
        said = await kubectl("drain", "n1", "--force", "--timeout=20s")
        assert "pod/p1 evicted" in said
        assert "node/n1 drained" in said


def _text(binding: dict) -> str:
    return json.dumps(binding | {"target": {"kind": "Node", "name": "n1"}})


def _phase(cluster: LocalCluster) -> str | None:
    pods = cluster.api.kinds.by_key("pods")
    assert pods is not None
    row = cluster.api.kinds.table(pods).rows.get(("default", "p1"))
    return row.obj["status"].get("phase") if row else None
