"""Merge, JSON and strategic merge patches, by examples and by properties."""

import json

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputask.local.patch import json_patch, merge_patch, strategic_merge
from gputask.local.statuses import StatusError

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "a/b", "~"])
KEYS = st.sampled_from(["a", "b", "a/b", "~c", "d"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)


def without_nulls(value):
    return {k: without_nulls(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # the examples of RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_of_the_standard(target, patch, result):
    assert merge_patch(target, patch) == result


@given(DOCUMENTS, DOCUMENTS)
def test_a_merge_patch_applied_twice_is_applied_once_and_leaves_its_target_alone(target, patch):
    before = json.dumps(target)
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert json.dumps(target) == before


@given(DOCUMENTS, DOCUMENTS)
def test_the_difference_of_two_documents_is_a_merge_patch_between_them(target, wanted):
    target, wanted = without_nulls(target), without_nulls(wanted)
    removed = {key: None for key in target if key not in wanted}

    def difference(old, new):
        if not isinstance(old, dict) or not isinstance(new, dict):
            return new
        gone = {key: None for key in old if key not in new}
        return gone | {key: difference(old.get(key), value) for key, value in new.items()}

    assert merge_patch(target, removed | difference(target, wanted)) == wanted


@given(DOCUMENTS, DOCUMENTS)
def test_json_patches_made_by_another_library_lead_to_its_result(source, wanted):
    operations = jsonpatch.make_patch(source, wanted).patch
    before = json.dumps(source)
    assert json_patch(source, operations) == wanted
    assert json.dumps(source) == before


@pytest.mark.parametrize(
    ("operations", "code", "said"),
    [
        ({"op": "add"}, 400, "cannot unmarshal"),
        ([{"path": "/a"}], 400, "needs op and path"),
        ([{"op": "grow", "path": "/a"}], 400, "Unexpected kind: grow"),
        ([{"op": "add", "path": "/a"}], 400, "needs a value"),
        ([{"op": "add", "path": "a", "value": 1}], 400, "must start with a slash"),
        ([{"op": "replace", "path": "/none", "value": 1}], 422, "missing"),
        ([{"op": "remove", "path": "/list/5"}], 422, "invalid index"),
        ([{"op": "remove", "path": ""}], 422, "whole document"),
        ([{"op": "add", "path": "/list/x", "value": 1}], 422, "invalid index"),
        ([{"op": "add", "path": "/none/deeper", "value": 1}], 422, "missing"),
        ([{"op": "test", "path": "/a", "value": 2}], 422, "testing value /a failed"),
        ([{"op": "move", "from": "/none", "path": "/b"}], 422, "missing"),
    ],
)
def test_a_json_patch_that_does_not_apply_says_where(operations, code, said):
    with pytest.raises(StatusError) as caught:
        json_patch({"a": 1, "list": [1]}, operations)
    assert caught.value.code == code
    assert said in caught.value.message


POD = {
    "spec": {
        "containers": [
            {"name": "a", "image": "one", "env": [{"name": "X", "value": "1"}]},
            {"name": "b", "image": "two"},
        ],
        "tolerations": [{"key": "k"}],
    },
    "metadata": {"finalizers": ["f/1"]},
}


def test_strategic_lists_merge_by_their_key():
    patched = strategic_merge(POD, {"spec": {"containers": [{"name": "b", "image": "three"}, {"name": "c"}]}})
    images = [(c["name"], c.get("image")) for c in patched["spec"]["containers"]]
    assert images == [("a", "one"), ("b", "three"), ("c", None)]


def test_strategic_lists_without_a_key_are_replaced():
    patched = strategic_merge(POD, {"spec": {"tolerations": [{"key": "other"}]}})
    assert patched["spec"]["tolerations"] == [{"key": "other"}]


def test_strategic_directives_delete_replace_and_order():
    gone = {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}
    assert [c["name"] for c in strategic_merge(POD, gone)["spec"]["containers"]] == ["b"]
    alone = {"spec": {"containers": [{"name": "z"}, {"$patch": "replace"}]}}
    assert strategic_merge(POD, alone)["spec"]["containers"] == [{"name": "z"}]
    turned = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert [c["name"] for c in strategic_merge(POD, turned)["spec"]["containers"]] == ["b", "a"]
    whole = {"spec": {"$patch": "replace", "nodeName": "n"}}
    assert strategic_merge(POD, whole)["spec"] == {"nodeName": "n"}


def test_strategic_sets_grow_and_shrink():
    assert strategic_merge(POD, {"metadata": {"finalizers": ["f/2", "f/1"]}})["metadata"]["finalizers"] == [
        "f/1",
        "f/2",
    ]
    shrunk = strategic_merge(POD, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["f/1"]}})
    assert shrunk["metadata"]["finalizers"] == []


def test_strategic_keeps_only_retained_keys_of_a_union():
    volume = {"volumes": [{"name": "v", "emptyDir": {}}]}
    patch = {
        "volumes": [{"name": "v", "emptyDir": None, "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}]
    }
    assert strategic_merge(volume, patch) == {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}


def test_strategic_items_without_their_key_and_unknown_directives_are_refused():
    for patch, said in (
        ({"spec": {"containers": [{"image": "x"}]}}, "merge key: name"),
        ({"spec": {"$patch": "explode"}}, "explode"),
    ):
        with pytest.raises(StatusError, match=said):
            strategic_merge(POD, patch)
