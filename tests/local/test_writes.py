"""Create, update, patch and delete over the API, and what they refuse."""

import pytest

from support.local import Direct, crd, node, pod, widget

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.dev/v1/namespaces/default/widgets"
SIZED = {"type": "object", "properties": {"size": {"type": "integer"}}}


@pytest.fixture
def direct():
    server = Direct()
    server.ok("POST", CRDS, crd(SIZED))
    return server


def test_a_created_object_gets_uid_version_time_and_generation(direct):
    meta = direct.ok("POST", PODS, pod())["metadata"]
    assert meta["uid"]
    assert int(meta["resourceVersion"]) == direct.api.store.number
    assert meta["creationTimestamp"].endswith("Z")
    assert meta["generation"] == 1


def test_a_second_object_of_the_name_is_refused_as_existing(direct):
    direct.ok("POST", PODS, pod())
    status = direct.fails("POST", PODS, pod())
    assert (status["code"], status["reason"]) == (409, "AlreadyExists")
    assert status["message"] == 'pods "p1" already exists'
    assert status["details"] == {"name": "p1", "kind": "pods"}


def test_a_missing_object_is_not_found(direct):
    status = direct.fails("GET", f"{WIDGETS}/nobody")
    assert (status["code"], status["reason"]) == (404, "NotFound")
    assert status["message"] == 'widgets.example.dev "nobody" not found'
    assert status["details"] == {"name": "nobody", "group": "example.dev", "kind": "widgets"}


def test_nothing_is_created_in_a_namespace_that_is_not_there(direct):
    status = direct.fails("POST", "/api/v1/namespaces/nowhere/pods", pod(meta={"namespace": "nowhere"}))
    assert (status["code"], status["message"]) == (404, 'namespaces "nowhere" not found')


def test_generate_name_makes_different_names(direct):
    bodies = [pod(meta={"name": "", "generateName": "job-"}) for _ in range(20)]
    names = {direct.ok("POST", PODS, body)["metadata"]["name"] for body in bodies}
    assert len(names) == 20
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


def test_a_name_that_is_no_dns_name_is_one_cause(direct):
    status = direct.fails("POST", PODS, pod("Under_Score"))
    assert (status["code"], status["reason"]) == (422, "Invalid")
    [cause] = status["details"]["causes"]
    assert cause["field"] == "metadata.name"
    assert "RFC 1123 subdomain" in cause["message"]


def test_a_put_under_an_old_version_conflicts_and_changes_nothing(direct):
    old = direct.ok("POST", WIDGETS, widget(size=1))
    new = direct.ok("PUT", f"{WIDGETS}/w1", {**old, "spec": {"size": 2}})
    status = direct.fails("PUT", f"{WIDGETS}/w1", {**old, "spec": {"size": 3}})
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on widgets.example.dev "w1": the object has been modified; please apply your '
        "changes to the latest version and try again"
    )
    assert direct.ok("GET", f"{WIDGETS}/w1") == new


def test_a_put_of_a_custom_object_needs_the_version(direct):
    direct.ok("POST", WIDGETS, widget(size=1))
    status = direct.fails("PUT", f"{WIDGETS}/w1", widget(size=2))
    assert status["message"].endswith("metadata.resourceVersion: Invalid value: 0: must be specified for an update")


def test_a_put_of_a_node_does_not_need_the_version(direct):
    direct.ok("POST", NODES, node())
    changed = node()
    changed["metadata"]["labels"] = {"zone": "a"}
    assert direct.ok("PUT", f"{NODES}/n1", changed)["metadata"]["labels"] == {"zone": "a"}


def test_a_put_for_another_uid_conflicts(direct):
    direct.ok("POST", NODES, node())
    other = node()
    other["metadata"]["uid"] = "another"
    status = direct.fails("PUT", f"{NODES}/n1", other)
    assert status["code"] == 409
    assert "Precondition failed: UID in precondition: another, UID in object meta: " in status["message"]


@pytest.mark.parametrize("subresource", ["", "/status"])
@pytest.mark.parametrize("field", ["resourceVersion", "uid"])
def test_a_version_or_uid_in_a_patch_is_a_precondition(direct, field, subresource):
    meta = direct.ok("POST", WIDGETS, widget(size=1))["metadata"]
    path = f"{WIDGETS}/w1{subresource}"
    right = {"metadata": {field: meta[field]}, "spec": {"size": 2}, "status": {"seen": True}}
    direct.ok("PATCH", path, right, type="merge")
    wrong = {"metadata": {field: "1"}, "spec": {"size": 3}, "status": {"seen": False}}
    assert direct.fails("PATCH", path, wrong, type="merge")["code"] == 409


def test_the_status_is_written_apart_from_the_rest(direct):
    created = direct.ok("POST", WIDGETS, widget(size=1) | {"status": {"forged": True}})
    assert "status" not in created
    said = direct.ok("PUT", f"{WIDGETS}/w1/status", {**created, "spec": {"size": 9}, "status": {"phase": "Up"}})
    assert (said["spec"], said["status"], said["metadata"]["generation"]) == ({"size": 1}, {"phase": "Up"}, 1)
    told = direct.ok("PUT", f"{WIDGETS}/w1", {**said, "spec": {"size": 9}, "status": {"phase": "Forged"}})
    assert (told["spec"], told["status"], told["metadata"]["generation"]) == ({"size": 9}, {"phase": "Up"}, 2)


def test_labels_change_with_the_status_of_a_node_and_not_with_that_of_a_custom_object(direct):
    direct.ok("POST", WIDGETS, widget(size=1))
    direct.ok("POST", NODES, node())
    patch = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Up"}}
    assert "labels" not in direct.ok("PATCH", f"{WIDGETS}/w1/status", patch, type="merge")["metadata"]
    assert direct.ok("PATCH", f"{NODES}/n1/status", patch, type="merge")["metadata"]["labels"] == {"a": "b"}


def test_a_write_that_changes_nothing_makes_no_version(direct):
    direct.ok("POST", WIDGETS, widget(size=1))
    before = direct.api.store.number
    direct.ok("PATCH", f"{WIDGETS}/w1", {"spec": {"size": 1}}, type="merge")
    assert direct.api.store.number == before


def test_what_the_server_sets_cannot_be_set_by_others(direct):
    created = direct.ok("POST", WIDGETS, widget(size=1))
    forged = {
        "creationTimestamp": "2000-01-01T00:00:00Z",
        "generation": 77,
        "deletionTimestamp": "2000-01-01T00:00:00Z",
    }
    patched = direct.ok("PATCH", f"{WIDGETS}/w1", {"metadata": forged, "spec": {"size": 2}}, type="merge")["metadata"]
    assert patched["creationTimestamp"] == created["metadata"]["creationTimestamp"]
    assert patched["generation"] == 2
    assert "deletionTimestamp" not in patched


def test_a_new_node_keeps_the_status_of_its_manifest_and_is_tainted_until_it_reports(direct):
    created = direct.ok("POST", NODES, node())
    assert created["status"]["allocatable"]["cpu"] == "8"
    assert created["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", WIDGETS), ("PATCH", f"{WIDGETS}/w1"), ("DELETE", f"{WIDGETS}/w1")]
)
def test_a_dry_run_answers_and_stores_nothing(direct, method, path):
    if method != "POST":
        direct.ok("POST", WIDGETS, widget(size=1))
    before = direct.api.store.number
    body = {"POST": widget(size=1), "PATCH": {"spec": {"size": 2}}, "DELETE": None}[method]
    direct.ok(method, path, body, dryRun="All", **({"type": "merge"} if method == "PATCH" else {}))
    assert direct.api.store.number == before


@pytest.mark.parametrize("size", ["large", True, None, 1.5])
def test_a_dry_run_refuses_what_the_write_would(direct, size):
    assert direct.fails("POST", WIDGETS, widget(size=size), dryRun="All")["code"] == 422


class TestUnknownFields:
    strange = pod(containers=[{"name": "main", "image": "busybox", "imagee": "x"}], nodeSelectorr={})

    def test_strict_refuses_and_names_each(self, direct):
        status = direct.fails("POST", PODS, self.strange, fieldValidation="Strict")
        assert (status["code"], status["reason"]) == (400, "BadRequest")
        assert status["message"] == (
            'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field '
            '"spec.containers[0].imagee", unknown field "spec.nodeSelectorr"'
        )

    def test_warn_drops_and_says_so(self, direct):
        reply = direct.reply("POST", PODS, self.strange)
        assert reply.status == 201
        assert reply.warnings == ('unknown field "spec.containers[0].imagee"', 'unknown field "spec.nodeSelectorr"')
        assert b"imagee" not in reply.body

    def test_ignore_drops(self, direct):
        assert direct.reply("POST", PODS, self.strange, fieldValidation="Ignore").warnings == ()

    def test_a_typo_in_metadata_of_a_custom_object_is_found_too(self, direct):
        body = widget(meta={"label": {"a": "b"}}, size=1)
        assert "metadata.label" in direct.fails("POST", WIDGETS, body, fieldValidation="Strict")["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "unrecognized"),
        (b"[]", "must be one object"),
        (b'"text"', "must be one object"),
        (b'{"kind":"Node","apiVersion":"v1"}', "do not match the expected (v1, Pod)"),
        (
            b'{"spec":{"containers":{}}}',
            "cannot unmarshal object into Go struct field Pod.spec.containers of type array",
        ),
        (b'{"spec":{"terminationGracePeriodSeconds":"5"}}', "cannot unmarshal string"),
        (b'{"metadata":[]}', "cannot unmarshal array into Go struct field Pod.metadata"),
        (b'{"metadata":{"labels":{"a":1}}}', "cannot unmarshal number into Go struct field Pod.metadata.labels.a"),
        (b'{"spec":{"containers":[{"resources":{"requests":{"cpu":"4 cores"}}}]}}', "quantities must match"),
    ],
)
def test_a_body_that_is_no_pod_is_a_bad_request(direct, body, said):
    status = direct.fails("POST", PODS, body)
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert said in status["message"]


def test_a_body_of_another_name_or_namespace_than_the_path_is_refused(direct):
    created = direct.ok("POST", PODS, pod())
    assert "does not match the name on the URL" in direct.fails("PUT", f"{PODS}/p2", created)["message"]
    elsewhere = pod(meta={"namespace": "kube-system"})
    assert "namespace of the provided object" in direct.fails("POST", PODS, elsewhere)["message"]


def test_yaml_bodies_are_read(direct):
    text = b"apiVersion: example.dev/v1\nkind: Widget\nmetadata: {name: w1}\nspec: {size: 4}\n"
    assert direct.ok("POST", WIDGETS, text, type="yaml")["spec"] == {"size": 4}


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/apis/nobody.dev/v1/things", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", f"{PODS}/p1/exec", 404),
        ("POST", f"{PODS}/p1", 405),
        ("PUT", PODS, 405),
        ("OPTIONS", PODS, 405),
        ("POST", "/api/v1/pods", 400),
    ],
)
def test_paths_and_methods_that_nobody_serves(direct, method, path, code):
    assert direct.fails(method, path, pod())["code"] == code


def test_a_patch_of_an_unknown_kind_is_refused_with_the_known_ones(direct):
    direct.ok("POST", WIDGETS, widget(size=1))
    status = direct.fails("PATCH", f"{WIDGETS}/w1", {}, type="strategic-merge")
    assert status["code"] == 415
    assert status["message"].endswith("application/json-patch+json, application/merge-patch+json")


class TestDelete:
    def test_of_a_plain_object_takes_effect_at_once(self, direct):
        uid = direct.ok("POST", WIDGETS, widget(size=1))["metadata"]["uid"]
        answer = direct.ok("DELETE", f"{WIDGETS}/w1")
        assert (answer["status"], answer["details"]["uid"]) == ("Success", uid)
        assert direct.fails("DELETE", f"{WIDGETS}/w1")["code"] == 404

    @pytest.mark.parametrize("field", ["uid", "resourceVersion"])
    def test_under_a_precondition_that_does_not_hold_conflicts(self, direct, field):
        meta = direct.ok("POST", WIDGETS, widget(size=1))["metadata"]
        status = direct.fails("DELETE", f"{WIDGETS}/w1", {"preconditions": {field: "wrong"}})
        assert (status["code"], status["reason"]) == (409, "Conflict")
        assert f"precondition (wrong) does not match the {field[0].upper()}".lower() in status["message"].lower()
        direct.ok("DELETE", f"{WIDGETS}/w1", {"preconditions": {field: meta[field]}})

    def test_waits_for_finalizers_and_allows_no_new_ones(self, direct):
        direct.ok("POST", WIDGETS, widget(meta={"finalizers": ["example.dev/a", "example.dev/b"]}, size=1))
        marked = direct.ok("DELETE", f"{WIDGETS}/w1")["metadata"]
        assert marked["deletionTimestamp"]
        assert marked["deletionGracePeriodSeconds"] == 0
        more = {"metadata": {"finalizers": ["example.dev/a", "example.dev/c"]}}
        assert direct.fails("PATCH", f"{WIDGETS}/w1", more, type="merge")["code"] == 422
        direct.ok("PATCH", f"{WIDGETS}/w1", {"metadata": {"finalizers": ["example.dev/b"]}}, type="merge")
        direct.ok("GET", f"{WIDGETS}/w1")
        direct.ok("PATCH", f"{WIDGETS}/w1", {"metadata": {"finalizers": None}}, type="merge")
        assert direct.fails("GET", f"{WIDGETS}/w1")["code"] == 404

    def test_of_a_collection_goes_by_selector(self, direct):
        for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
            direct.ok("POST", WIDGETS, widget(name, meta={"labels": {"color": color}}, size=1))
        direct.ok("DELETE", WIDGETS, labelSelector="color=red")
        assert [item["metadata"]["name"] for item in direct.ok("GET", WIDGETS)["items"]] == ["b"]


def test_the_history_has_every_version_once_and_in_order(direct):
    direct.api.store.history.clear()
    direct.ok("POST", WIDGETS, widget(size=1))
    direct.ok("PATCH", f"{WIDGETS}/w1", {"spec": {"size": 2}}, type="merge")
    direct.ok("DELETE", f"{WIDGETS}/w1")
    history = direct.api.store.history
    assert [(verb, kind, obj["spec"]["size"]) for _, verb, kind, obj in history] == [
        ("ADDED", "Widget", 1),
        ("MODIFIED", "Widget", 2),
        ("DELETED", "Widget", 2),
    ]
    numbers = [number for number, *_ in history]
    assert numbers == sorted(set(numbers))
    assert [obj["metadata"]["resourceVersion"] for *_, obj in history] == [str(number) for number in numbers]


def test_the_scale_subresource_shows_and_sets_replicas():
    direct = Direct()
    schema = {"type": "object", "properties": {"replicas": {"type": "integer", "maximum": 1}}}
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    direct.ok("POST", CRDS, crd(schema, subresources={"status": {}, "scale": paths}))
    direct.ok("POST", WIDGETS, widget(replicas=1))
    scale = direct.ok("GET", f"{WIDGETS}/w1/scale")
    assert (scale["kind"], scale["spec"], scale["status"]) == ("Scale", {"replicas": 1}, {"replicas": 0})
    scale["spec"]["replicas"] = 0
    assert direct.ok("PUT", f"{WIDGETS}/w1/scale", scale)["spec"] == {"replicas": 0}
    assert direct.fails("PUT", f"{WIDGETS}/w1/scale", scale)["code"] == 409
    assert direct.fails("PATCH", f"{WIDGETS}/w1/scale", {"spec": {"replicas": 2}}, type="merge")["code"] == 422
