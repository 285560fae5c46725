"""Fixed-point amounts (design, section 4): int64 units of 1/10000.

Every amount in the product is an ``int`` in *units*; text and numbers are turned into units here and
nowhere else. Memory-like names count in MiB (``memory``, ``ephemeral-storage``, ``hugepages-*`` and
every name that ends in ``MB``), so nothing overflows. Parsing goes through ``Decimal``; a float never
touches an amount.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from typing import Literal

SCALE = 10_000
"""Units in one whole."""

MAX_AMOUNT = 10**10
"""Largest amount of one pool, in wholes: 10 PiB of memory. Sums over 90 000 nodes still fit int64."""

_DECIMALS = 4
_MIB = Decimal(2**20)
_NUMBER = re.compile(r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)([A-Za-z]*)$")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

Rounding = Literal["down", "up"]


class AmountError(ValueError):
    """An amount that cannot be read. The text is one line: what is wrong and what would be right."""


def is_memory(name: str) -> bool:
    """Whether amounts of this resource are counted in MiB."""
    return name in {"memory", "ephemeral-storage"} or name.startswith("hugepages-") or name.split("/")[0].endswith("MB")


def is_kubernetes_bytes(name: str) -> bool:
    """Whether Kubernetes itself defines the resource, in bytes: a plain number of it means bytes."""
    return name in {"memory", "ephemeral-storage"} or name.startswith("hugepages-")


def parse_amount(value: object, name: str, *, rounding: Rounding = "up") -> int:
    """Read an amount that a user wrote: a plain number of at most 4 decimals, or a quantity with a unit.

    Plain numbers are exact: more than 4 decimals is an error. Quantities with a unit are rounded to
    a unit of 1/10000, requests ``up`` and capacity ``down``. Byte units make sense only for memory-like
    names, ``m`` only for others. A plain number of a name that Kubernetes defines in bytes is bytes.

    :returns: units of 1/10000 (of MiB for memory-like names).
    :raises AmountError: one line, without the name (the caller knows where it stands).
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise AmountError(f"{_echo(value)} is not an amount; write a number like 2 or '0.5'")
    text = repr(value) if isinstance(value, float) else str(value).strip()
    match = _NUMBER.match(text)
    if match is None:
        raise AmountError(f"{_echo(value)} is not an amount; write a number like 2 or '0.5', or a quantity like 8Gi")
    number, unit = Decimal(match[1]), match[2]
    if unit in _BINARY:
        _need_memory(name, unit)
        return _bounded(_rounded(number * 2 ** _BINARY[unit] / _MIB, rounding), value)
    if unit in _DECIMAL:
        if is_memory(name):
            if _DECIMAL[unit] < 0:
                raise AmountError(f"unit {unit!r} makes no sense for {name}; use Ki, Mi, Gi, Ti, k, M, G or T")
            return _bounded(_rounded(number.scaleb(_DECIMAL[unit]) / _MIB, rounding), value)
        return _bounded(_rounded(number.scaleb(_DECIMAL[unit]), rounding), value)
    if unit:
        raise AmountError(f"unit {unit!r} of {_echo(value)} is unknown; use m, k, M, G, Ki, Mi, Gi or none")
    if is_kubernetes_bytes(name):
        return _bounded(_rounded(number / _MIB, rounding), value)
    return _bounded(_exact(number, value), value)


def parse_quantity(value: object, name: str, *, rounding: Rounding) -> int:
    """Read a quantity that Kubernetes wrote (allocatable, container requests): any unit, always rounded.

    :raises AmountError: when it is no quantity at all, is negative or lies beyond :data:`MAX_AMOUNT`.
    """
    match = _NUMBER.match(str(value).strip())
    if match is None or (match[2] and match[2] not in _BINARY and match[2] not in _DECIMAL):
        raise AmountError(f"{_echo(value)} is not a Kubernetes quantity like 8, 500m or 16Gi")
    number, unit = Decimal(match[1]), match[2]
    if unit in _BINARY:
        number *= 2 ** _BINARY[unit]
    elif unit:
        number = number.scaleb(_DECIMAL[unit])
    if is_kubernetes_bytes(name):
        number /= _MIB
    return _bounded(_rounded(number, rounding), value)


def format_amount(units: int) -> str:
    """The decimal text of an amount, without trailing zeros: ``1250`` units is ``"0.125"``."""
    whole, rest = divmod(abs(units), SCALE)
    sign = "-" if units < 0 else ""
    return f"{sign}{whole}.{rest:04d}".rstrip("0").rstrip(".") if rest else f"{sign}{whole}"


def _exact(number: Decimal, value: object) -> Decimal:
    try:
        scaled = number * SCALE
        if scaled != scaled.to_integral_value():
            raise AmountError(f"{_echo(value)} has more than {_DECIMALS} decimals; round it to {_DECIMALS}")
    except InvalidOperation:
        raise AmountError(f"{_echo(value)} is out of bounds; the largest amount is {MAX_AMOUNT}") from None
    return scaled


def _rounded(number: Decimal, rounding: Rounding) -> Decimal:
    scaled = number * SCALE
    if abs(scaled) > MAX_AMOUNT * SCALE * 10:
        return scaled
    return scaled.to_integral_value(rounding=ROUND_FLOOR if rounding == "down" else ROUND_CEILING)


def _bounded(scaled: Decimal, value: object) -> int:
    if scaled < 0:
        raise AmountError(f"{_echo(value)} is negative; the smallest amount is 0")
    if scaled > MAX_AMOUNT * SCALE:
        raise AmountError(f"{_echo(value)} is out of bounds; the largest amount is {MAX_AMOUNT}")
    return int(scaled)


def _need_memory(name: str, unit: str) -> None:
    if not is_memory(name):
        raise AmountError(f"unit {unit!r} makes no sense for {name}; byte units are for memory and names ending in MB")


def _echo(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
