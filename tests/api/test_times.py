"""RFC 3339 times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputask.api.times import epoch, rfc3339


def test_times_of_kubernetes_are_read():
    assert epoch("1970-01-01T00:01:00Z") == 60.0
    assert epoch("1970-01-01T01:00:00.250000+01:00") == 0.25


@pytest.mark.parametrize("text", ["", "soon", "2026-01-31", "2026-01-31T12:00:00", "12:00", None, 5])
def test_a_text_that_is_no_time_is_one_line(text):
    with pytest.raises(ValueError, match="is not a time; write it like 2026-01-31T12:00:00Z"):
        epoch(text)


@given(st.integers(0, 2**32))
def test_a_moment_reads_back(seconds):
    assert epoch(rfc3339(seconds)) == seconds
    assert rfc3339(seconds).endswith("Z")


def test_a_moment_that_no_text_can_say_is_the_nearest_that_one_can():
    assert rfc3339(epoch("9999-12-31T23:59:59-14:00")) == "9999-12-31T23:59:59Z"
    assert rfc3339(epoch("0001-01-01T00:00:00+14:00")) == "0001-01-01T00:00:00Z"
