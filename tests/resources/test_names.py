"""Names of resources and of the variables that carry them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputask.resources.names import check_device_id, check_name, collision, env_name


@pytest.mark.parametrize("name", ["cpu", "runtime/aaa", "gpuSlot/0", "gpuSlot/GPU-ab12", "example.com/gpu", "a"])
def test_usual_names_are_valid(name):
    check_name(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "/a", "a/", "a//b", "gpu slot", "gpü", "a\n", "a,b", "a=b", "${x}"])
def test_a_name_that_cannot_become_a_key_or_a_variable_is_refused(name):
    with pytest.raises(ValueError, match="cannot be a resource name: use letters, digits"):
        check_name(name)


def test_a_long_name_is_refused_by_its_length():
    check_name("a" * 63)
    with pytest.raises(ValueError, match="has 64 characters; at most 63 are allowed"):
        check_name("a" * 64)


@pytest.mark.parametrize("name", ["variant", "DEVICES", "allocation"])
def test_a_name_that_would_overwrite_a_variable_of_ours_is_refused(name):
    with pytest.raises(ValueError, match="would overwrite the variable GPUTASK_"):
        check_name(name)


@given(st.text(max_size=70))
def test_every_valid_name_makes_a_valid_variable(name):
    try:
        check_name(name)
    except ValueError:
        return
    assert re.fullmatch(r"GPUTASK_[A-Z0-9_]+", env_name(name))


def test_two_names_that_share_a_variable_collide():
    assert collision(["a-b", "a_b"]) == "resources 'a-b' and 'a_b' would both be GPUTASK_A_B; rename one of them"
    assert collision(["gpuSlot", "gpuslot"]) is not None
    assert collision(["runtime/aaa", "runtime.aaa"]) is not None


def test_a_name_that_looks_like_the_labels_of_another_collides():
    assert collision(["gpu", "gpu-labels"]) is not None


def test_the_same_pool_on_several_devices_is_one_resource():
    assert collision([*(f"gpuSlot/{index}" for index in range(64)), "gpuSlot", "gpuMemoryMB/0"]) is None


@pytest.mark.parametrize("device_id", ["", "a/b", "a b", "x" * 64, "a,b"])
def test_an_id_that_cannot_be_a_suffix_is_refused(device_id):
    with pytest.raises(ValueError, match="cannot be a device id"):
        check_device_id(device_id)


def test_uuids_are_device_ids():
    check_device_id("GPU-8d3f2a10-0000-1111-2222-333344445555")
    check_device_id("MIG-8d3f2a10-0000-1111-2222-333344445555")
