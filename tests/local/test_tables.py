"""Columns of ``kubectl get``: how values are found and how ages are written."""

from datetime import UTC, datetime, timedelta

import pytest

from gputask.local.tables import age, json_path
from support.local import Direct, crd, node, pod, widget

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.dev/v1/namespaces/default/widgets"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
OBJECT = {
    "a": {"b.c": "dotted", "list": [{"type": "X", "n": 1}, {"type": "Y", "n": 2}], "zero": 0, "off": False},
    "map": {"x/y": "slash"},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".a.zero", 0),
        (".a.off", False),
        (".a.none", None),
        (".a.list[0].n", 1),
        (".a.list[-1].n", 2),
        (".a.list[9].n", None),
        (".a.list[*].n", "1,2"),
        ('.a.list[?(@.type=="Y")].n', 2),
        (".a.list[?(@.type=='Z')].n", None),
        (r".a.b\.c", "dotted"),
        (".map['x/y']", "slash"),
        (".a.list.n", None),
    ],
)
def test_a_path_reads_a_value_or_nothing(path, value):
    assert json_path(path)(OBJECT) == value


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600 + 60, "9h"),
        (49 * 3600, "2d1h"),
        (10 * 86400 + 3600, "10d"),
        (-5, "0s"),
    ],
)
def test_ages_are_short(seconds, text):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert age((now - timedelta(seconds=seconds)).isoformat(), now) == text


def cells(direct: Direct, path: str, **query: str) -> list[list]:
    table = direct.ok("GET", path, accept=TABLE, **query)
    assert table["kind"] == "Table"
    return [row["cells"] for row in table["rows"]]


def test_a_custom_table_has_the_columns_of_its_crd_or_name_and_age():
    direct = Direct()
    direct.ok("POST", CRDS, crd({"type": "object", "properties": {"n": {"type": "integer"}}}))
    direct.ok("POST", WIDGETS, widget(n=3))
    assert cells(direct, WIDGETS) == [["w1", "0s"]]
    stored = direct.ok("GET", f"{CRDS}/widgets.example.dev")
    stored["spec"]["versions"][0]["additionalPrinterColumns"] = [
        {"name": "N", "type": "integer", "jsonPath": ".spec.n"}
    ]
    direct.ok("PUT", f"{CRDS}/widgets.example.dev", stored)
    assert cells(direct, f"{WIDGETS}/w1") == [["w1", 3]]


@pytest.mark.parametrize(
    ("include", "kind"), [("Metadata", "PartialObjectMetadata"), ("Object", "Widget"), ("None", None)]
)
def test_a_row_carries_as_much_of_its_object_as_asked(include, kind):
    direct = Direct()
    direct.ok("POST", CRDS, crd({"type": "object"}))
    direct.ok("POST", WIDGETS, widget())
    [row] = direct.ok("GET", WIDGETS, accept=TABLE, includeObject=include)["rows"]
    assert row.get("object", {}).get("kind") == kind


def test_pods_and_nodes_say_how_they_are():
    direct = Direct()
    direct.ok("POST", "/api/v1/nodes", node())
    assert cells(direct, "/api/v1/nodes")[0][:2] == ["n1", "Unknown"]
    pods = "/api/v1/namespaces/default/pods"
    direct.ok("POST", pods, pod(nodeName="n1"))
    assert cells(direct, pods)[0][:3] == ["p1", "0/1", "Pending"]
    ended = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": {"reason": "Error"}}}]}
    direct.ok("PATCH", f"{pods}/p1/status", {"status": ended}, type="merge")
    assert cells(direct, pods)[0][2] == "Error"
    direct.ok("POST", pods, pod("p2", nodeName="n1"))
    direct.ok("DELETE", f"{pods}/p2")
    assert cells(direct, f"{pods}/p2")[0][2] == "Terminating"


def test_a_form_that_nobody_writes_is_not_acceptable():
    status = Direct().fails("GET", "/api/v1/nodes", accept="application/vnd.kubernetes.protobuf")
    assert (status["code"], status["reason"]) == (406, "NotAcceptable")
