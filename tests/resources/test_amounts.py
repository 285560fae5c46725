"""Fixed-point amounts, checked against exact fractions."""

from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputask.resources.amounts import (
    MAX_AMOUNT,
    SCALE,
    AmountError,
    format_amount,
    format_quantity,
    is_memory,
    parse_amount,
    parse_quantity,
)

BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}

numbers = st.tuples(st.integers(0, 10**9), st.text("0123456789", max_size=12)).map(
    lambda parts: f"{parts[0]}.{parts[1]}" if parts[1] else f"{parts[0]}"
)
amounts = st.integers(0, MAX_AMOUNT * SCALE)


@given(numbers, st.sampled_from([*BINARY, *DECIMAL]), st.sampled_from(["up", "down"]))
def test_memory_with_a_unit_is_the_exact_number_of_mib_rounded_once(number, unit, rounding):
    exact = Fraction(number) * {**BINARY, **DECIMAL}[unit] / 2**20 * SCALE
    rounded = ceil(exact) if rounding == "up" else floor(exact)
    if rounded > MAX_AMOUNT * SCALE:
        with pytest.raises(AmountError, match="out of bounds"):
            parse_amount(number + unit, "gpuMemoryMB", rounding=rounding)
    else:
        assert parse_amount(number + unit, "gpuMemoryMB", rounding=rounding) == rounded


@given(numbers)
def test_a_plain_number_is_exact_or_refused(number):
    if len(number.partition(".")[2]) <= 4:
        assert parse_amount(number, "lic") == Fraction(number) * SCALE
    else:
        with pytest.raises(AmountError, match="more than 4 decimals; round it to 4"):
            parse_amount(number, "lic")


@given(amounts)
def test_what_is_written_reads_back(units):
    assert parse_amount(format_amount(units), "lic") == units


@given(amounts, st.sampled_from(["cpu", "memory", "ephemeral-storage", "example.com/gpu"]))
def test_a_request_that_we_write_into_a_pod_is_booked_as_planned(units, name):
    assert parse_quantity(format_quantity(units, name), name, rounding="up") == units


@given(numbers, st.sampled_from(["", *BINARY, *DECIMAL, "m", "u", "n", "e3", "E-2"]))
def test_a_quantity_of_kubernetes_never_loses_capacity_to_rounding_up(number, suffix):
    try:
        down = parse_quantity(number + suffix, "memory", rounding="down")
        up = parse_quantity(number + suffix, "memory", rounding="up")
    except AmountError as caught:
        error = str(caught)
    else:
        error = None
        assert 0 <= up - down <= 1
    assert error is None or "out of bounds" in error


@given(st.text(max_size=80), st.sampled_from(["cpu", "memory", "lic", "gpuMemoryMB/0"]))
def test_any_text_is_an_amount_or_one_clear_line(text, name):
    try:
        units, error = parse_amount(text, name), ""
    except AmountError as caught:
        units, error = 0, str(caught)
    assert 0 <= units <= MAX_AMOUNT * SCALE
    assert "\n" not in error
    assert len(error) < 250


@pytest.mark.parametrize("text", ["8000", 8000, "8000Mi", "8000.0"])
def test_b50_values_with_a_unit_are_understood(text):
    assert parse_amount(text, "gpuMemoryMB/0") == 8000 * SCALE


def test_b50_gibibytes_are_counted_in_mib():
    assert parse_amount("8Gi", "gpuMemoryMB/0") == 8192 * SCALE


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (-1, "is negative; the smallest amount is 0"),
        ("-1", "is negative; the smallest amount is 0"),
        ("", "is not an amount; write a number like 2"),
        ("eight", "is not an amount; write a number like 2"),
        (None, "is not an amount"),
        (True, "is not an amount"),
        ([], "is not an amount"),
        (float("nan"), "is not an amount"),
        (float("inf"), "is not an amount"),
        ("8e3", "is not an amount"),
        ("+8", "is not an amount"),
        (".5", "is not an amount"),
        (10**70, "out of bounds; the largest amount is 10000000000"),
    ],
)
def test_b50_what_is_no_amount_is_refused_and_never_no_request(value, why):
    with pytest.raises(AmountError) as caught:
        parse_amount(value, "gpuMemoryMB/0")
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("value", "name", "why"),
    [
        ("1E", "memory", "'1E' is out of bounds; the largest amount is 10000000000"),
        ("1Ei", "memory", "'1Ei' is out of bounds; the largest amount is 10000000000"),
        ("4Gi", "cpu", "unit 'Gi' of '4Gi' makes no sense for cpu"),
        ("500m", "memory", "unit 'm' of '500m' makes no sense for memory; use Ki, Mi, Gi"),
        ("5x", "lic", "unit 'x' of '5x' is unknown; use m, k, M, G or none"),
        ("5x", "memory", "unit 'x' of '5x' is unknown; use Ki, Mi, Gi, Ti, k, M, G, T or none"),
    ],
)
def test_a_unit_that_makes_no_sense_is_named_with_what_would_be_right(value, name, why):
    with pytest.raises(AmountError) as caught:
        parse_amount(value, name)
    assert str(caught.value).startswith(why)


def test_v06_a_fifth_decimal_is_refused():
    assert parse_amount("333.3333", "lic") == 3_333_333
    with pytest.raises(AmountError, match=r"'0\.00001' has more than 4 decimals; round it to 4"):
        parse_amount("0.00001", "lic")
    with pytest.raises(AmountError, match="more than 4 decimals"):
        parse_amount(0.00001, "lic")


def test_v06_zero_is_read_as_zero():
    assert parse_amount("0", "lic") == parse_amount(0.0, "lic") == parse_amount("0.0000", "lic") == 0


def test_b09_ten_tenths_are_one_whether_text_or_number():
    tenths = [parse_amount(value, "lic") for value in ["0.1", 0.1] * 5]
    assert sum(tenths) == parse_amount("1.0", "lic") == SCALE


def test_a_capacity_that_is_no_round_mib_is_rounded_down_and_a_request_up():
    assert parse_quantity("24517636Ki", "memory", rounding="down") == 239_430_039
    assert parse_quantity("24517636Ki", "memory", rounding="up") == 239_430_040


def test_a_plain_number_of_memory_is_bytes_as_in_kubernetes():
    assert parse_amount(2**30, "memory") == 1024 * SCALE
    assert parse_amount(1024, "gpuHostMB") == 1024 * SCALE


def test_memory_like_names():
    memory = ["memory", "ephemeral-storage", "hugepages-2Mi", "gpuMemoryMB", "gpuMemoryMB/0", "example.com/cacheMB"]
    assert all(map(is_memory, memory))
    assert not any(map(is_memory, ["cpu", "gpu", "example.com/gpu", "MBps", "pods"]))
