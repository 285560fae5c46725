"""Explorations that several tests look at, made once in a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from protocol.model.configurations import LONG, QUICK
from protocol.model.explore import Result, explore


@pytest.fixture(scope="session")
def explored() -> Callable[[str], Result]:
    """Name of a configuration -> all states of the protocol as it is."""

    @cache
    def explored(name: str) -> Result:
        result = explore((QUICK | LONG)[name])
        print(f"\n{name}: {result.states:,} states, {result.transitions:,} transitions")
        return result

    return explored
