"""Garbage collection, namespaces and CRDs that empty before they go, pods of lost nodes, taints of nodes."""

import asyncio

import pytest

from gputask.local import controllers, pod_gc
from gputask.local.controllers import Controllers
from support.local import Direct, crd, node, pod, widget

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
WIDGETS = "/apis/example.dev/v1/namespaces/default/widgets"


@pytest.fixture
async def direct():
    server = Direct()
    Controllers(server.api.objects)
    server.ok("POST", CRDS, crd({"type": "object"}))
    return server


async def settled() -> None:
    """The controllers have nothing left to do: each of their steps is one turn of the event loop."""
    for _ in range(20):
        await asyncio.sleep(0)


def names(direct: Direct, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in direct.ok("GET", path)["items"]]


def owner(of: dict, **more) -> dict:
    meta = of["metadata"]
    return {"apiVersion": of["apiVersion"], "kind": of["kind"], "name": meta["name"], "uid": meta["uid"], **more}


class TestOwners:
    async def test_dependents_go_with_their_last_owner(self, direct):
        one, two = (direct.ok("POST", WIDGETS, widget(name)) for name in ("one", "two"))
        direct.ok("POST", PODS, pod("single", meta={"ownerReferences": [owner(one)]}))
        direct.ok("POST", PODS, pod("shared", meta={"ownerReferences": [owner(one), owner(two)]}))
        direct.ok("POST", PODS, pod("free"))
        direct.ok("DELETE", f"{WIDGETS}/one")
        await settled()
        assert names(direct, PODS) == ["free", "shared"]
        assert direct.ok("GET", f"{PODS}/shared")["metadata"]["ownerReferences"] == [owner(two)]
        direct.ok("DELETE", f"{WIDGETS}/two")
        await settled()
        assert names(direct, PODS) == ["free"]

    async def test_a_bound_dependent_keeps_its_grace(self, direct):
        parent = direct.ok("POST", WIDGETS, widget())
        direct.ok("POST", NODES, node())
        direct.ok("POST", PODS, pod(nodeName="n1", meta={"ownerReferences": [owner(parent)]}))
        direct.ok("DELETE", f"{WIDGETS}/w1")
        await settled()
        assert direct.ok("GET", f"{PODS}/p1")["metadata"]["deletionGracePeriodSeconds"] == 30

    async def test_a_namesake_of_the_owner_is_no_owner(self, direct):
        parent = direct.ok("POST", WIDGETS, widget())
        direct.ok("POST", PODS, pod(meta={"ownerReferences": [owner(parent)]}))
        direct.ok("DELETE", f"{WIDGETS}/w1")
        direct.ok("POST", WIDGETS, widget())
        await settled()
        assert names(direct, PODS) == []

    async def test_a_dependent_that_comes_after_its_owner_went_goes_too(self, direct):
        parent = direct.ok("POST", WIDGETS, widget())
        direct.ok("DELETE", f"{WIDGETS}/w1")
        await settled()
        direct.ok("POST", PODS, pod(meta={"ownerReferences": [owner(parent)]}))
        await settled()
        assert names(direct, PODS) == []

    async def test_dependents_of_dependents_go_in_turn(self, direct):
        first = direct.ok("POST", WIDGETS, widget("first"))
        second = direct.ok("POST", WIDGETS, widget("second", meta={"ownerReferences": [owner(first)]}))
        direct.ok("POST", PODS, pod(meta={"ownerReferences": [owner(second)]}))
        direct.ok("DELETE", f"{WIDGETS}/first")
        await settled()
        assert names(direct, WIDGETS) + names(direct, PODS) == []

    async def test_a_foreground_deletion_waits_for_dependents(self, direct):
        parent = direct.ok("POST", WIDGETS, widget())
        blocking = owner(parent, blockOwnerDeletion=True)
        direct.ok("POST", PODS, pod(meta={"ownerReferences": [blocking], "finalizers": ["example.dev/a"]}))
        direct.ok("DELETE", f"{WIDGETS}/w1", {"propagationPolicy": "Foreground"})
        await settled()
        assert direct.ok("GET", f"{PODS}/p1")["metadata"]["deletionTimestamp"]
        assert direct.ok("GET", f"{WIDGETS}/w1")["metadata"]["finalizers"] == ["foregroundDeletion"]
        direct.ok("PATCH", f"{PODS}/p1", {"metadata": {"finalizers": None}}, type="merge")
        await settled()
        assert names(direct, PODS) + names(direct, WIDGETS) == []

    async def test_orphans_stay_and_forget_their_owner(self, direct):
        parent = direct.ok("POST", WIDGETS, widget())
        direct.ok("POST", PODS, pod(meta={"ownerReferences": [owner(parent)]}))
        direct.ok("DELETE", f"{WIDGETS}/w1", {"propagationPolicy": "Orphan"})
        await settled()
        assert names(direct, WIDGETS) == []
        assert not direct.ok("GET", f"{PODS}/p1")["metadata"].get("ownerReferences")


class TestNamespaces:
    async def test_empty_before_they_go(self, direct):
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        direct.ok("POST", "/api/v1/namespaces", space)
        here = "/api/v1/namespaces/team/pods"
        direct.ok("POST", here, pod("held", meta={"namespace": "team", "finalizers": ["example.dev/a"]}))
        direct.ok("POST", here, pod("plain", meta={"namespace": "team"}))
        assert direct.ok("DELETE", "/api/v1/namespaces/team")["status"]["phase"] == "Terminating"
        await settled()
        assert names(direct, here) == ["held"]
        late = direct.fails("POST", here, pod("late", meta={"namespace": "team"}))
        assert (late["code"], late["message"].endswith("because it is being terminated")) == (403, True)
        direct.ok("PATCH", f"{here}/held", {"metadata": {"finalizers": None}}, type="merge")
        await settled()
        assert direct.fails("GET", "/api/v1/namespaces/team")["code"] == 404


async def test_a_crd_goes_after_its_objects(direct):
    direct.ok("POST", WIDGETS, widget(meta={"finalizers": ["example.dev/a"]}))
    direct.ok("POST", WIDGETS, widget("w2"))
    direct.ok("DELETE", f"{CRDS}/widgets.example.dev")
    await settled()
    assert names(direct, WIDGETS) == ["w1"]
    direct.ok("PATCH", f"{WIDGETS}/w1", {"metadata": {"finalizers": None}}, type="merge")
    await settled()
    assert direct.fails("GET", WIDGETS)["code"] == 404
    assert direct.fails("GET", f"{CRDS}/widgets.example.dev")["code"] == 404


class TestLostNodes:
    async def test_pods_of_a_deleted_node_fail_and_go(self, direct):
        for name in ("n1", "n2"):
            direct.ok("POST", NODES, node(name))
            direct.ok("POST", PODS, pod(f"on-{name}", nodeName=name))
        direct.ok("DELETE", f"{NODES}/n1")
        await settled()
        assert names(direct, PODS) == ["on-n2"]
        phases = [o["status"]["phase"] for *_, kind, o in direct.api.store.history if o["metadata"]["name"] == "on-n1"]
        assert phases == ["Pending", "Failed", "Failed"]

    async def test_pods_bound_to_a_node_that_never_comes_go_later(self, direct, monkeypatch):
        monkeypatch.setattr(pod_gc, "LOST_NODE_SECONDS", 0.0)
        direct.ok("POST", PODS, pod(nodeName="nowhere"))
        assert names(direct, PODS) == ["p1"]
        await settled()
        assert names(direct, PODS) == []


class TestOutOfService:
    """A node that is not Ready and has the taint: its pods cannot run any more, whatever its kubelet would say."""

    def out(self, direct, effect: str, ready: str = "Unknown") -> None:
        condition = {"conditions": [{"type": "Ready", "status": ready}]}
        direct.ok("PATCH", f"{NODES}/n1/status", {"status": condition}, type="strategic-merge")
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": effect}
        direct.ok("PATCH", f"{NODES}/n1", {"spec": {"taints": [taint]}}, type="strategic-merge")

    def said(self, direct, name: str = "p1") -> list[tuple]:
        """Phase and disruption reason of the pod in all its versions, without repetitions."""
        found = []
        for _, verb, kind, obj in direct.api.store.history:
            if (kind, obj["metadata"]["name"]) == ("Pod", name):
                reasons = [
                    c["reason"] for c in obj["status"].get("conditions") or () if c["type"] == "DisruptionTarget"
                ]
                found.append((verb if verb == "DELETED" else obj["status"]["phase"], *reasons))
        return list(dict.fromkeys(found))

    async def test_with_no_execute_fails_and_removes_the_pods(self, direct):
        direct.ok("POST", NODES, node())
        direct.ok("POST", PODS, pod(nodeName="n1"))
        self.out(direct, "NoExecute")
        await settled()
        by = "DeletionByTaintManager"
        assert self.said(direct) == [("Pending",), ("Pending", by), ("Failed", by), ("DELETED", by)]

    async def test_removes_only_what_is_being_deleted_otherwise(self, direct):
        direct.ok("POST", NODES, node())
        for name in ("p1", "p2"):
            direct.ok("POST", PODS, pod(name, nodeName="n1"))
        self.out(direct, "NoSchedule")
        direct.ok("DELETE", f"{PODS}/p1")
        await settled()
        assert names(direct, PODS) == ["p2"]
        assert self.said(direct) == [("Pending",), ("Failed",), ("DELETED",)]

    async def test_leaves_it_to_the_kubelet_of_a_node_that_is_ready(self, direct):
        direct.ok("POST", NODES, node())
        direct.ok("POST", PODS, pod(nodeName="n1"))
        self.out(direct, "NoExecute", ready="True")
        await settled()
        assert direct.ok("GET", f"{PODS}/p1")["metadata"]["deletionGracePeriodSeconds"] == 30

    async def test_leaves_pods_that_tolerate_it(self, direct):
        direct.ok("POST", NODES, node())
        tolerant = {"key": "node.kubernetes.io/out-of-service", "operator": "Exists"}
        direct.ok("POST", PODS, pod(nodeName="n1", tolerations=[tolerant]))
        self.out(direct, "NoExecute")
        await settled()
        assert "deletionTimestamp" not in direct.ok("GET", f"{PODS}/p1")["metadata"]


class TestTaints:
    def ready(self, direct, status: str) -> None:
        condition = {"conditions": [{"type": "Ready", "status": status}]}
        direct.ok("PATCH", f"{NODES}/n1/status", {"status": condition}, type="strategic-merge")

    def keys(self, direct) -> list[str]:
        taints = direct.ok("GET", f"{NODES}/n1")["spec"].get("taints") or []
        return [taint["key"].removeprefix("node.kubernetes.io/") for taint in taints]

    async def test_follow_the_ready_condition(self, direct):
        direct.ok("POST", NODES, node())
        await settled()
        seen = [self.keys(direct)]
        for status in ("True", "False", "Unknown", "True"):
            self.ready(direct, status)
            await settled()
            seen.append(self.keys(direct))
        assert seen == [["not-ready"], [], ["not-ready"], ["unreachable"], []]

    async def test_follow_a_cordon_and_leave_other_taints_alone(self, direct):
        body = node()
        body["spec"] = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
        direct.ok("POST", NODES, body)
        self.ready(direct, "True")
        for cordoned, expected in ((True, ["gpu", "unschedulable"]), (False, ["gpu"])):
            direct.ok("PATCH", f"{NODES}/n1", {"spec": {"unschedulable": cordoned}}, type="merge")
            await settled()
            assert self.keys(direct) == expected


async def test_a_step_of_the_controllers_leaves_turns_for_requests(direct):
    parent = direct.ok("POST", WIDGETS, widget())
    for i in range(5 * controllers.STEP):
        direct.ok("POST", PODS, pod(f"p{i}", meta={"ownerReferences": [owner(parent)]}))
    direct.ok("DELETE", f"{WIDGETS}/w1")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert names(direct, PODS) != []
    await settled()
    assert names(direct, PODS) == []
