"""Allocations as they are written in ``reservation`` records: decimal strings, labels, device ids."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gputask.resources.amounts import SCALE, AmountError, format_amount
from gputask.resources.pools import Allocation


def allocation_to_json(allocation: Allocation) -> dict[str, Any]:
    """``devices``, ``amounts`` and ``labels`` of a record."""
    return {
        "devices": list(allocation.devices),
        "amounts": {key: format_amount(units) for key, units in allocation.amounts.items()},
        "labels": {key: list(labels) for key, labels in allocation.labels.items()},
    }


def allocation_from_json(record: Mapping[str, Any]) -> Allocation:
    """What a record holds; absent parts are empty.

    :raises AmountError: an amount is no decimal of at most 4 decimals.
    """
    return Allocation(
        amounts={key: units_from_json(text) for key, text in (record.get("amounts") or {}).items()},
        labels={key: tuple(labels) for key, labels in (record.get("labels") or {}).items()},
        devices=tuple(record.get("devices") or ()),
    )


def units_from_json(text: str) -> int:
    """Units of a decimal string that the product itself wrote.

    :raises AmountError: it is none of at most 4 decimals.
    """
    return _units(str(text))


@lru_cache(maxsize=8192)
def _units(text: str) -> int:
    # Memory-like amounts are MiB here, whatever their name: no unit and no conversion, unlike in a manifest.
    whole, _, fraction = text.partition(".")
    if not whole.isdecimal() or (fraction and not fraction.isdecimal()) or len(fraction) > 4:
        raise AmountError(f"{text!r} is not a decimal of at most 4 decimals")
    return int(whole) * SCALE + int(fraction.ljust(4, "0") or 0)
