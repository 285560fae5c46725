"""CRD schemas: pruning, defaults, what is refused and in which words, CEL rules."""

import pytest

from support.local import Direct, crd, widget

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.dev/v1/namespaces/default/widgets"


def serving(**properties) -> Direct:
    direct = Direct()
    direct.ok("POST", CRDS, crd({"type": "object", "properties": properties}))
    return direct


def causes(direct: Direct, **spec) -> list[tuple[str, str, str]]:
    status = direct.fails("POST", WIDGETS, widget(**spec))
    assert (status["code"], status["reason"]) == (422, "Invalid")
    return [(c["field"], c["reason"], c["message"]) for c in status["details"]["causes"]]


INT_OR_STRING = {"x-kubernetes-int-or-string": True, "pattern": r"^[0-9]+(\.[0-9]{1,4})?$"}


@pytest.mark.parametrize(
    ("schema", "value", "reason", "message"),
    [
        (
            {"type": "string"},
            3,
            "TypeInvalid",
            'Invalid value: "integer": spec.x in body must be of type string: "integer"',
        ),
        (
            {"type": "integer"},
            "3",
            "TypeInvalid",
            'Invalid value: "string": spec.x in body must be of type integer: "string"',
        ),
        (
            {"type": "integer"},
            True,
            "TypeInvalid",
            'Invalid value: "boolean": spec.x in body must be of type integer: "boolean"',
        ),
        (
            {"type": "boolean"},
            None,
            "TypeInvalid",
            'Invalid value: "null": spec.x in body must be of type boolean: "null"',
        ),
        (
            INT_OR_STRING,
            0.125,
            "TypeInvalid",
            'Invalid value: "number": spec.x in body must be of type integer,string: "number"',
        ),
        (
            INT_OR_STRING,
            "1E",
            "Invalid",
            r"""Invalid value: "1E": spec.x in body should match '^[0-9]+(\.[0-9]{1,4})?$'""",
        ),
        (
            {"type": "string", "enum": ["a", "b"]},
            "c",
            "NotSupported",
            'Unsupported value: "c": supported values: "a", "b"',
        ),
        (
            {"type": "integer", "minimum": 1},
            0,
            "Invalid",
            "Invalid value: 0: spec.x in body should be greater than or equal to 1",
        ),
        (
            {"type": "integer", "maximum": 1},
            2,
            "Invalid",
            "Invalid value: 2: spec.x in body should be less than or equal to 1",
        ),
        (
            {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            0,
            "Invalid",
            "Invalid value: 0: spec.x in body should be greater than 0",
        ),
        ({"type": "string", "maxLength": 2}, "abc", "TooLong", "Too long: may not be more than 2 bytes"),
        (
            {"type": "string", "minLength": 1},
            "",
            "Invalid",
            'Invalid value: "": spec.x in body should be at least 1 chars long',
        ),
        ({"type": "array", "maxItems": 1, "items": {}}, [1, 2], "TooMany", "Too many: 2: must have at most 1 items"),
        (
            {"type": "array", "minItems": 1, "items": {}},
            [],
            "Invalid",
            "Invalid value: 0: spec.x in body should have at least 1 items",
        ),
        (
            {"type": "object", "maxProperties": 1, "additionalProperties": {}},
            {"a": 1, "b": 2},
            "TooMany",
            "Too many: 2: must have at most 1 items",
        ),
        (
            {"type": "string", "format": "date-time"},
            "yesterday",
            "Invalid",
            'Invalid value: "yesterday": spec.x in body must be of type date-time: "yesterday"',
        ),
        (
            {"type": "integer", "format": "int32"},
            2**31,
            "Invalid",
            "Invalid value: 2147483648: spec.x in body must be of type int32: 2147483648",
        ),
    ],
)
def test_one_wrong_value_is_one_cause(schema, value, reason, message):
    assert causes(serving(x=schema), x=value) == [("spec.x", f"FieldValue{reason}", message)]


@pytest.mark.parametrize("value", [0, 7, "7", "7.25", "7.1234"])
def test_whole_numbers_and_quoted_fractions_are_both_taken(value):
    assert serving(x=INT_OR_STRING).ok("POST", WIDGETS, widget(x=value))["spec"]["x"] == value


def test_a_pattern_ends_where_the_text_ends():
    assert causes(serving(x={"type": "string", "pattern": "^a$"}), x="a\n")


def test_required_fields_are_asked_for_by_path():
    inner = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
    direct = serving(list={"type": "array", "items": inner}, map={"type": "object", "additionalProperties": inner})
    assert causes(direct, list=[{"a": "x"}, {}], map={"k": {}}) == [
        ("spec.list[1].a", "FieldValueRequired", "Required value"),
        ("spec.map.k.a", "FieldValueRequired", "Required value"),
    ]


def test_several_causes_are_one_message_in_brackets():
    direct = serving(a={"type": "string"}, b={"type": "string"})
    message = direct.fails("POST", WIDGETS, widget(a=1, b=2))["message"]
    assert message.startswith('Widget.example.dev "w1" is invalid: [spec.a: Invalid value: "integer": ')
    assert message.endswith("]")


def test_items_of_a_list_map_have_different_keys():
    item = {"type": "object", "properties": {"name": {"type": "string"}}}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    direct = serving(x={"type": "array", "items": item, **keyed})
    assert causes(direct, x=[{"name": "a"}, {"name": "b"}, {"name": "a"}]) == [
        ("spec.x[2]", "FieldValueDuplicate", 'Duplicate value: map[string]interface {}{"name":"a"}')
    ]


def test_unknown_fields_are_dropped_unless_the_schema_keeps_them():
    keeping = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"type": "object"}}}
    direct = serving(strict={"type": "object", "properties": {"a": {"type": "string"}}}, loose=keeping)
    spec = direct.ok("POST", WIDGETS, widget(strict={"a": "x", "b": 1}, loose={"z": {"y": 1}, "a": {"gone": 1}}))[
        "spec"
    ]
    assert spec == {"strict": {"a": "x"}, "loose": {"z": {"y": 1}, "a": {}}}


def test_defaults_fill_what_is_missing_also_inside_of_defaults():
    nested = {"type": "object", "default": {}, "properties": {"n": {"type": "integer", "default": 10}}}
    item = {"type": "object", "properties": {"kind": {"type": "string", "default": "plain"}}}
    direct = serving(limits=nested, list={"type": "array", "items": item})
    assert direct.ok("POST", WIDGETS, widget(list=[{}, {"kind": "odd"}]))["spec"] == {
        "limits": {"n": 10},
        "list": [{"kind": "plain"}, {"kind": "odd"}],
    }


class TestRules:
    def serving(self, rule: dict | str, **extra) -> Direct:
        direct = Direct()
        rules = [rule if isinstance(rule, dict) else {"rule": rule, "message": "not so"}]
        number = {"type": "integer"}
        properties = {"a": number, "b": number, "keys": {"type": "object", "additionalProperties": number}}
        schema = {"type": "object", "properties": properties | extra, "x-kubernetes-validations": rules}
        direct.ok("POST", CRDS, crd(schema))
        return direct

    def test_a_broken_rule_is_told_in_its_own_words(self):
        direct = self.serving("!(has(self.a) && has(self.b))")
        direct.ok("POST", WIDGETS, widget(a=1))
        assert causes(direct, a=1, b=1) == [("spec", "FieldValueInvalid", 'Invalid value: "object": not so')]

    def test_a_transition_rule_runs_on_updates_only(self):
        direct = self.serving("has(self.a) == has(oldSelf.a) && (!has(self.a) || self.a == oldSelf.a)")
        direct.ok("POST", WIDGETS, widget(a=1))
        direct.ok("PATCH", f"{WIDGETS}/w1", {"spec": {"b": 2}}, type="merge")
        for a in (2, None):
            assert direct.fails("PATCH", f"{WIDGETS}/w1", {"spec": {"a": a}}, type="merge")["code"] == 422

    def test_rules_see_maps(self):
        direct = self.serving("!has(self.keys) || self.keys.all(name, size(name) <= 3 && self.keys[name] > 0)")
        direct.ok("POST", WIDGETS, widget(keys={"abc": 1}))
        assert causes(direct, keys={"abcd": 1})
        assert causes(direct, keys={"abc": 0})

    def test_a_rule_that_fails_to_evaluate_refuses(self):
        [(_, _, message)] = causes(self.serving("self.a > 0"))
        assert "no such key: a" in message

    def test_a_message_can_be_computed_and_point_at_a_field(self):
        direct = self.serving(
            {
                "rule": "self.a < 3",
                "messageExpression": "'a is ' + string(self.a)",
                "reason": "FieldValueForbidden",
                "fieldPath": ".a",
            }
        )
        assert causes(direct, a=5) == [("spec.a", "FieldValueForbidden", "Forbidden: a is 5")]

    def test_rules_are_not_judged_on_what_the_schema_refuses(self):
        assert [field for field, *_ in causes(self.serving("self.a < 3"), a="x")] == ["spec.a"]

    def test_a_transition_rule_follows_items_of_a_list_map(self):
        rule = {"rule": "self.n >= oldSelf.n", "message": "n only grows"}
        properties = {"name": {"type": "string"}, "n": {"type": "integer"}}
        item = {"type": "object", "properties": properties, "x-kubernetes-validations": [rule]}
        keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        direct = serving(x={"type": "array", "items": item, **keyed})
        direct.ok("POST", WIDGETS, widget(x=[{"name": "a", "n": 1}, {"name": "b", "n": 5}]))
        turned = {"spec": {"x": [{"name": "b", "n": 5}, {"name": "a", "n": 2}, {"name": "c", "n": 0}]}}
        direct.ok("PATCH", f"{WIDGETS}/w1", turned, type="merge")
        shrunk = {"spec": {"x": [{"name": "b", "n": 4}]}}
        status = direct.fails("PATCH", f"{WIDGETS}/w1", shrunk, type="merge")
        assert status["details"]["causes"][0]["field"] == "spec.x[0]"

    @pytest.mark.parametrize(
        ("rule", "said"),
        [
            ("self.a >", "compilation failed"),
            ("self.a > limit", "undeclared reference to 'limit'"),
            ("quantity(self.a).isInteger()", "undeclared reference to 'quantity'"),
        ],
    )
    def test_a_rule_that_cannot_work_is_refused_with_its_crd(self, rule, said):
        broken = crd({"type": "object", "x-kubernetes-validations": [{"rule": rule}]})
        status = Direct().fails("POST", CRDS, broken)
        [cause] = status["details"]["causes"]
        assert cause["field"].endswith("properties[spec].x-kubernetes-validations[0].rule")
        assert said in cause["message"]


class TestCrds:
    def test_are_established_and_served_at_once(self):
        direct = serving()
        stored = direct.ok("GET", f"{CRDS}/widgets.example.dev")
        assert {c["type"]: c["status"] for c in stored["status"]["conditions"]} == {
            "NamesAccepted": "True",
            "Established": "True",
        }
        [entry, status] = direct.ok("GET", "/apis/example.dev/v1")["resources"]
        assert (entry["name"], entry["singularName"], entry["namespaced"]) == ("widgets", "widget", True)
        assert status["name"] == "widgets/status"

    def test_an_update_changes_what_is_served(self):
        direct = serving(a={"type": "string"})
        stored = direct.ok("GET", f"{CRDS}/widgets.example.dev")
        root = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        root["properties"]["spec"]["properties"]["b"] = {"type": "string"}
        direct.ok("PUT", f"{CRDS}/widgets.example.dev", stored)
        assert direct.ok("POST", WIDGETS, widget(b="x"))["spec"] == {"b": "x"}

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            (lambda c: c["metadata"].update(name="other.example.dev"), "metadata.name"),
            (lambda c: c["spec"].pop("scope"), "spec.scope"),
            (lambda c: c["spec"]["names"].pop("kind"), "spec.names.kind"),
            (lambda c: c["spec"].update(versions=[]), "spec.versions"),
            (lambda c: c["spec"]["versions"][0].pop("schema"), "spec.versions[0].schema.openAPIV3Schema"),
        ],
    )
    def test_a_malformed_one_is_refused_by_field(self, change, field):
        body = crd({"type": "object"})
        change(body)
        status = Direct().fails("POST", CRDS, body)
        assert [cause["field"] for cause in status["details"]["causes"]] == [field]
