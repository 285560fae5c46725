"""Pods on the server's side: what they get, what may change, how they are bound and how they go."""

import pytest

from support.local import Direct, node, pod

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def direct():
    server = Direct()
    server.ok("POST", "/api/v1/nodes", node())
    return server


def binding(name: str = "p1", target: str = "n1", **meta) -> dict:
    reference = {"apiVersion": "v1", "kind": "Node", "name": target}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **meta}, "target": reference}


class TestCreation:
    def test_gives_the_defaults_that_readers_rely_on(self, direct):
        body = pod(containers=[{"name": "main", "image": "busybox", "resources": {"limits": {"cpu": 2}}}])
        del body["spec"]["restartPolicy"]
        created = direct.ok("POST", PODS, body | {"status": {"phase": "Running"}})
        spec = created["spec"]
        assert created["status"] == {"phase": "Pending"}
        assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
        assert (spec["schedulerName"], spec["priority"]) == ("default-scheduler", 0)
        assert spec["containers"][0]["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}
        assert [t["key"].partition("/")[2] for t in spec["tolerations"]] == ["not-ready", "unreachable"]

    def test_takes_the_number_of_its_priority_class(self, direct):
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
        direct.ok("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", head | {"value": 1000})
        assert direct.ok("POST", PODS, pod(priorityClassName="high"))["spec"]["priority"] == 1000
        status = direct.fails("POST", PODS, pod("p2", priorityClassName="higher"))
        assert (status["code"], status["reason"]) == (403, "Forbidden")
        assert status["message"] == 'pods "p2" is forbidden: no PriorityClass with name higher was found'

    @pytest.mark.parametrize(
        ("spec", "field", "reason"),
        [
            ({"containers": []}, "spec.containers", "Required"),
            ({"containers": [{"name": "a"}]}, "spec.containers[0].image", "Required"),
            ({"containers": [{"image": "x"}]}, "spec.containers[0].name", "Required"),
            ({"containers": [{"name": "A", "image": "x"}]}, "spec.containers[0].name", "Invalid"),
            ({"containers": [{"name": "a", "image": "x"}] * 2}, "spec.containers[1].name", "Duplicate"),
            ({"restartPolicy": "Sometimes"}, "spec.restartPolicy", "NotSupported"),
            ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "Invalid"),
            ({"terminationGracePeriodSeconds": -1}, "spec.terminationGracePeriodSeconds", "Invalid"),
        ],
    )
    def test_refuses_a_spec_that_cannot_run(self, direct, spec, field, reason):
        status = direct.fails("POST", PODS, pod(**spec))
        assert [(c["field"], c["reason"]) for c in status["details"]["causes"]] == [(field, f"FieldValue{reason}")]

    def test_refuses_annotations_that_are_too_large_together(self, direct):
        status = direct.fails("POST", PODS, pod(meta={"annotations": {"a": "x" * 262_144}}))
        assert status["details"]["causes"][0]["message"] == "Too long: may not be more than 262144 bytes"


class TestChanges:
    def patch(self, direct, spec, **more):
        return direct.ask("PATCH", f"{PODS}/p1", {"spec": spec}, type="strategic-merge", **more)

    @pytest.mark.parametrize(
        "spec",
        [
            {"containers": [{"name": "main", "env": [{"name": "A", "value": "forged"}]}]},
            {"nodeName": "n1"},
            {"nodeSelector": {"a": "b"}},
            {"terminationGracePeriodSeconds": 5},
            {"tolerations": [{"key": "other", "operator": "Exists"}]},
            {"schedulingGates": [{"name": "example.dev/gate"}]},
        ],
    )
    def test_the_spec_is_fixed(self, direct, spec):
        before = direct.ok("POST", PODS, pod(tolerations=[{"key": "gpu", "operator": "Exists"}]))
        code, status = self.patch(direct, spec)
        assert (code, status["reason"]) == (422, "Invalid")
        assert direct.ok("GET", f"{PODS}/p1") == before

    def test_image_deadline_and_more_tolerations_may_change(self, direct):
        old = direct.ok("POST", PODS, pod())
        tolerations = [*old["spec"]["tolerations"], {"key": "gpu", "operator": "Exists"}]
        spec = {
            "containers": [{"name": "main", "image": "other"}],
            "activeDeadlineSeconds": 5,
            "tolerations": tolerations,
        }
        code, new = self.patch(direct, spec)
        assert code == 200
        assert new["metadata"]["generation"] == 2

    def test_a_whole_pod_can_be_put_back_without_its_defaults(self, direct):
        direct.ok("POST", PODS, pod())
        labelled = pod(meta={"labels": {"a": "b"}})
        assert direct.ok("PUT", f"{PODS}/p1", labelled)["metadata"]["labels"] == {"a": "b"}

    def test_gates_are_lifted_and_narrow_the_nodes_while_they_hold(self, direct):
        created = direct.ok("POST", PODS, pod(schedulingGates=[{"name": "example.dev/gate"}]))
        assert created["status"]["conditions"][0]["reason"] == "SchedulingGated"
        lifted = {"spec": {"schedulingGates": None, "nodeSelector": {"a": "b"}}}
        assert "schedulingGates" not in direct.ok("PATCH", f"{PODS}/p1", lifted, type="merge")["spec"]
        assert self.patch(direct, {"nodeSelector": {"a": "c"}})[0] == 422


class TestBinding:
    def test_sets_node_annotations_and_labels_in_one_write(self, direct):
        created = direct.ok("POST", PODS, pod(meta={"annotations": {"a": "1", "b": "1"}}))
        before = direct.api.store.number
        extra = {"annotations": {"b": "2", "alloc.gputask.dev/variant": "gpu"}, "labels": {"c": "3"}}
        answer = direct.ok("POST", f"{PODS}/p1/binding", binding(uid=created["metadata"]["uid"], **extra))
        assert answer["status"] == "Success"
        bound = direct.ok("GET", f"{PODS}/p1")
        assert direct.api.store.number == before + 1
        assert bound["spec"]["nodeName"] == "n1"
        assert bound["metadata"]["annotations"] == {"a": "1", "b": "2", "alloc.gputask.dev/variant": "gpu"}
        assert bound["metadata"]["labels"] == {"c": "3"}
        assert bound["status"]["conditions"][0]["type"] == "PodScheduled"

    @pytest.mark.parametrize(("field", "what"), [("uid", "UID"), ("resourceVersion", "ResourceVersion")])
    def test_holds_only_under_its_preconditions(self, direct, field, what):
        found = direct.ok("POST", PODS, pod())["metadata"][field]
        status = direct.fails("POST", f"{PODS}/p1/binding", binding(**{field: "7"}))
        assert (status["code"], status["reason"]) == (409, "Conflict")
        assert f"Precondition failed: {what} in precondition: 7, {what} in object meta: {found}" in status["message"]
        direct.ok("POST", f"{PODS}/p1/binding", binding(**{field: found}))

    def test_under_the_version_before_a_bump_conflicts(self, direct):
        meta = direct.ok("POST", PODS, pod())["metadata"]
        direct.ok("PATCH", f"{PODS}/p1", {"metadata": {"annotations": {"bump": "1"}}}, type="merge")
        stale = binding(uid=meta["uid"], resourceVersion=meta["resourceVersion"])
        assert direct.fails("POST", f"{PODS}/p1/binding", stale)["code"] == 409
        assert "nodeName" not in direct.ok("GET", f"{PODS}/p1")["spec"]

    def test_happens_once(self, direct):
        direct.ok("POST", PODS, pod())
        direct.ok("POST", f"{PODS}/p1/binding", binding())
        status = direct.fails("POST", f"{PODS}/p1/binding", binding(target="n2"))
        assert status["code"] == 409
        assert status["message"] == (
            'Operation cannot be fulfilled on pods/binding "p1": pod p1 is already assigned to node "n1"'
        )
        assert status["details"] == {"name": "p1", "kind": "pods/binding"}

    def test_of_a_terminating_or_gated_pod_is_refused(self, direct):
        direct.ok("POST", PODS, pod(meta={"finalizers": ["example.dev/a"]}))
        direct.ok("DELETE", f"{PODS}/p1")
        assert "is being deleted" in direct.fails("POST", f"{PODS}/p1/binding", binding())["message"]
        direct.ok("POST", PODS, pod("p2", schedulingGates=[{"name": "example.dev/gate"}]))
        assert "schedulingGates" in direct.fails("POST", f"{PODS}/p2/binding", binding("p2"))["message"]

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (binding("other"), 400),
            (binding(namespace="kube-system"), 400),
            (binding(target=""), 422),
            (binding() | {"target": {"kind": "Pod", "name": "n1"}}, 422),
            (pod(), 400),
        ],
    )
    def test_that_makes_no_sense_is_refused(self, direct, body, code):
        direct.ok("POST", PODS, pod())
        assert direct.fails("POST", f"{PODS}/p1/binding", body)["code"] == code

    def test_of_a_missing_pod_is_not_found(self, direct):
        assert direct.fails("POST", f"{PODS}/p1/binding", binding())["code"] == 404

    def test_through_the_collection_of_bindings_is_the_same(self, direct):
        direct.ok("POST", PODS, pod())
        direct.ok("POST", "/api/v1/namespaces/default/bindings", binding())
        assert direct.ok("GET", f"{PODS}/p1")["spec"]["nodeName"] == "n1"


class TestDeletion:
    def test_of_an_unbound_pod_takes_effect_at_once(self, direct):
        direct.ok("POST", PODS, pod())
        assert direct.ok("DELETE", f"{PODS}/p1")["kind"] == "Pod"
        assert direct.fails("GET", f"{PODS}/p1")["code"] == 404

    def test_of_a_bound_pod_gives_it_its_grace(self, direct):
        direct.ok("POST", PODS, pod(nodeName="n1", terminationGracePeriodSeconds=7))
        meta = direct.ok("DELETE", f"{PODS}/p1")["metadata"]
        assert meta["deletionGracePeriodSeconds"] == 7
        assert meta["deletionTimestamp"] > meta["creationTimestamp"]
        for grace in (7, 60):
            assert direct.ok("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": grace})["metadata"] == meta
        sooner = direct.ok("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 2})["metadata"]
        assert sooner["deletionGracePeriodSeconds"] == 2
        direct.ok("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 0})
        assert direct.fails("GET", f"{PODS}/p1")["code"] == 404

    def test_of_a_finished_pod_needs_no_grace(self, direct):
        direct.ok("POST", PODS, pod(nodeName="n1"))
        direct.ok("PATCH", f"{PODS}/p1/status", {"status": {"phase": "Succeeded"}}, type="merge")
        direct.ok("DELETE", f"{PODS}/p1")
        assert direct.fails("GET", f"{PODS}/p1")["code"] == 404

    def test_waits_for_grace_and_for_finalizers(self, direct):
        direct.ok("POST", PODS, pod(nodeName="n1", meta={"finalizers": ["example.dev/a"]}))
        direct.ok("DELETE", f"{PODS}/p1")
        direct.ok("PATCH", f"{PODS}/p1", {"metadata": {"finalizers": None}}, type="merge")
        direct.ok("GET", f"{PODS}/p1")
        direct.ok("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 0})
        assert direct.fails("GET", f"{PODS}/p1")["code"] == 404
