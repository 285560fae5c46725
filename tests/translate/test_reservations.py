"""Allocations in reservation records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputask.resources.amounts import AmountError
from gputask.resources.pools import Allocation
from gputask.translate.reservations import allocation_from_json, allocation_to_json

keys = st.sampled_from(["cpu", "memory", "gpuSlot/GPU-a", "gpuMemoryMB/0", "runtime/aaa", "pods"])


@given(
    st.dictionaries(keys, st.integers(1, 10**14)),
    st.dictionaries(keys, st.lists(st.text(min_size=1, max_size=4), min_size=1).map(tuple)),
    st.lists(st.text(min_size=1, max_size=8)).map(tuple),
)
def test_an_allocation_reads_back(amounts, labels, devices):
    allocation = Allocation(amounts, labels, devices)
    assert allocation_from_json(allocation_to_json(allocation)) == allocation


def test_amounts_are_decimal_strings_with_memory_in_mib():
    written = allocation_to_json(Allocation({"cpu": 1250, "memory": 120_000_000}, {"gpuSlot/0": ("a",)}, ("0",)))
    assert written == {
        "devices": ["0"],
        "amounts": {"cpu": "0.125", "memory": "12000"},
        "labels": {"gpuSlot/0": ["a"]},
    }


def test_absent_parts_are_empty():
    assert allocation_from_json({"node": "n1", "variant": "v0"}) == Allocation({})


@pytest.mark.parametrize("text", ["", "1Gi", "-1", "0.00001", "1e3", "x", None])
def test_an_amount_that_the_product_never_writes_is_refused(text):
    with pytest.raises(AmountError, match="is not a decimal of at most 4 decimals"):
        allocation_from_json({"amounts": {"cpu": text}})
