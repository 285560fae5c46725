"""How a pool is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputask.resources.amounts import SCALE
from gputask.resources.descriptors import MAX_LABELS, parse_pool
from gputask.resources.pools import IndexedPool, SumPool, UnknownPool


@pytest.mark.parametrize(
    ("value", "capacity"),
    [(8, 8), ("8", 8), ("0.5", 0.5), ("sum(1.5)", 1.5), ("sum(60000)", 60000), (0, 0), ("sum( 2 )", 2)],
)
def test_a_number_is_a_sum(value, capacity):
    assert parse_pool(value, "lic") == SumPool(round(capacity * SCALE))


def test_a_capacity_with_a_unit_is_rounded_down():
    assert parse_pool("8Gi", "gpuMemoryMB") == SumPool(8192 * SCALE)
    assert parse_pool("sum(24517636Ki)", "gpuMemoryMB") == SumPool(239_430_039)


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (["a", "b"], ("a", "b")),
        ("[a,b]", ("a", "b")),
        ('["a", "b"]', ("a", "b")),
        ("[u0#0]", ("u0#0",)),
        ([1, 2, 3], ("1", "2", "3")),
        ("range(0-3)", ("0", "1", "2", "3")),
        ("range(5-5)", ("5",)),
        ([[0, 1], [2, 3]], ("0", "1", "2", "3")),
        ("[[0,1],[2,3]]", ("0", "1", "2", "3")),
        ("2x3", ("0", "1", "2", "3", "4", "5")),
        ([], ()),
        ("[]", ()),
    ],
)
def test_labels_are_an_indexed_pool(value, labels):
    assert parse_pool(value, "gpuSlot") == IndexedPool(labels)


def test_unknown_is_neither_zero_nor_infinite():
    assert parse_pool("unknown", "gpuMemoryMB") == UnknownPool()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("range(3-0)", "runs backwards"),
        (f"range(0-{MAX_LABELS})", f"{MAX_LABELS + 1} labels are too many"),
        ("99999x99999", "are too many"),
        ("[a,a]", "label 'a' stands there twice"),
        ("[a b]", "cannot be a label"),
        ("[a", "is no list of labels; write [a,b]"),
        ("[a]]", "is no list of labels"),
        ("min(3)", "is no descriptor; write sum(N), range(A-B)"),
        ("sum(-1)", "is negative"),
        ("sum()", "is not an amount"),
        ({"a": 1}, "is not an amount"),
        (None, "is not an amount"),
        ([True], "cannot be a label"),
        ([{}], "cannot be a label"),
    ],
)
def test_what_is_no_descriptor_is_one_clear_line(value, why):
    with pytest.raises(ValueError) as caught:
        parse_pool(value, "gpuSlot")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4),
    max_leaves=10,
)


@given(json_values)
def test_any_value_is_a_pool_or_a_value_error(value):
    try:
        assert parse_pool(value, "lic").capacity >= 0
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017 - both ways are right
