"""Objects kept as text: equal to what was put in, and nobody's to share."""

from __future__ import annotations

import pytest

from gputask.kube.packed import Packed
from gputask.kube.slim import LAST_APPLIED, slim


def test_what_is_read_is_equal_to_what_was_put_in_and_belongs_to_the_reader() -> None:
    packed, given = Packed(), {"metadata": {"name": "a"}, "spec": {"n": [1, 0.5, None, True]}}
    packed["a"] = given
    packed["a"]["metadata"]["name"] = "changed"
    given["spec"]["n"].append(2)
    assert packed["a"] == {"metadata": {"name": "a"}, "spec": {"n": [1, 0.5, None, True]}}
    assert ("a" in packed, "b" in packed, len(packed), list(packed)) == (True, False, 1, ["a"])
    assert packed.pop("a")["metadata"] == {"name": "a"}
    with pytest.raises(KeyError):
        packed["a"]


def test_managed_fields_and_the_copy_of_kubectl_are_dropped_and_nothing_else() -> None:
    given = {"metadata": {"name": "a", "managedFields": [{}], "annotations": {LAST_APPLIED: "{}", "k": "v"}}}
    assert slim(given) == {"metadata": {"name": "a", "annotations": {"k": "v"}}}
    assert slim({"kind": "Status", "metadata": {}}) == {"kind": "Status", "metadata": {}}
