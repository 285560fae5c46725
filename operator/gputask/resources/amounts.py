"""Fixed-point amounts (design, section 4): int64 units of 1/10000.

Every amount in the product is an ``int`` in *units*; text and numbers are turned into units here and
nowhere else. Memory-like names count in MiB (``memory``, ``ephemeral-storage``, ``hugepages-*`` and
every name with a part that ends in ``MB``), so nothing overflows. Parsing goes through ``Decimal``; no
arithmetic is ever done on a float.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from typing import Literal

SCALE = 10_000
"""Units in one whole."""

MAX_AMOUNT = 10**10
"""Largest amount of one pool, in wholes: 10 PiB of memory. Sums over 90 000 nodes still fit int64."""

_DECIMALS = 4
_MIB = 2**20
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {unit: Decimal(10) ** power for unit, power in {"k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}.items()}
_SMALL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("0.001")}

_NUMBER = re.compile(r"(-?)(\d+(?:\.\d+)?)([A-Za-z]*)", re.ASCII)
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,2})|([A-Za-z]*))", re.ASCII)
_LONGEST = 64
"""Characters of the longest number read; every product of it is exact in the context below."""
_EXACT = Context(prec=2 * _LONGEST + 64)

Rounding = Literal["down", "up"]


class AmountError(ValueError):
    """An amount that cannot be read. The text is one line: what is wrong and what would be right."""


def is_memory(name: str) -> bool:
    """Whether amounts of this resource (or pool of a device, ``gpuMemoryMB/0``) are counted in MiB."""
    return is_kubernetes_bytes(name) or any(part.endswith("MB") for part in name.split("/"))


def is_kubernetes_bytes(name: str) -> bool:
    """Whether Kubernetes itself defines the resource, in bytes: a plain number of it means bytes."""
    pool = name.split("/")[0]
    return pool in {"memory", "ephemeral-storage"} or pool.startswith("hugepages-")


def parse_amount(value: object, name: str, *, rounding: Rounding = "up") -> int:
    """Read an amount that a user wrote: a plain number of at most 4 decimals, or a quantity with a unit.

    Plain numbers are exact: more than 4 decimals is an error. Quantities with a unit are rounded to
    a unit of 1/10000, requests ``up`` and capacity ``down``. Byte units make sense only for memory-like
    names, ``m`` only for others. A plain number of a name that Kubernetes defines in bytes is bytes.

    :returns: units of 1/10000 (of MiB for memory-like names).
    :raises AmountError: one line, without the name (the caller knows where it stands).
    """
    return _parse_amount(_scalar(value), name, rounding)


def _scalar(value: object) -> int | float | str | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise AmountError(f"{echo(value)} is not an amount; write a number like 2 or '0.5'")
    return value


# Thousands of tasks ask the same few amounts; the cache tells 1 from 1.0 and "1", for the messages' sake.
@lru_cache(maxsize=8192, typed=True)
def _parse_amount(value: int | float | str | Decimal, name: str, rounding: Rounding) -> int:
    text = _plain_text(value)
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise AmountError(f"{echo(value)} is not an amount; write a number like 2 or '0.5', or a quantity like 8Gi")
    sign, digits, unit = match.groups()
    number = Decimal(digits)
    if sign:
        raise AmountError(f"{echo(value)} is negative; the smallest amount is 0")
    if unit in ("E", "Ei"):
        raise _out_of_bounds(value)
    # Zeros count as decimals too: a schema's pattern cannot tell them from others.
    if not unit and len(digits.partition(".")[2]) > _DECIMALS:
        raise AmountError(f"{echo(value)} has more than {_DECIMALS} decimals; round it to {_DECIMALS}")
    return _bounded(_round(_in_wholes(number, unit, name, value), rounding), value)


def parse_quantity(value: object, name: str, *, rounding: Rounding) -> int:
    """Read a quantity that Kubernetes wrote (allocatable, container requests): any unit, always rounded.

    :returns: units of 1/10000, of MiB only for the names that Kubernetes defines in bytes.
    :raises AmountError: when it is no quantity at all, is negative or lies beyond :data:`MAX_AMOUNT`.
    """
    return _parse_quantity(_scalar(value), name, rounding)


# Thousands of nodes and pods have the same few quantities.
@lru_cache(maxsize=8192, typed=True)
def _parse_quantity(value: int | float | str | Decimal, name: str, rounding: Rounding) -> int:
    text = _plain_text(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    unit = (match[3] or "") if match else "?"
    if match is None or not (unit == "" or unit in _BINARY or unit in _DECIMAL or unit in _SMALL):
        raise AmountError(f"{echo(value)} is not a Kubernetes quantity like 8, 500m or 16Gi")
    number = _EXACT.scaleb(Decimal(match[1]), int(match[2] or 0))
    number = _EXACT.multiply(number, _factor(unit))
    if is_kubernetes_bytes(name):
        number = _EXACT.divide(number, Decimal(_MIB))
    return _bounded(_round(number, rounding), value)


def format_amount(units: int) -> str:
    """The decimal text of an amount, without trailing zeros: ``1250`` units is ``"0.125"``."""
    whole, rest = divmod(abs(units), SCALE)
    sign = "-" if units < 0 else ""
    return f"{sign}{whole}.{rest:04d}".rstrip("0") if rest else f"{sign}{whole}"


def format_quantity(units: int, name: str) -> str:
    """The Kubernetes quantity of a request in units, for a container's ``resources``.

    Bytes are cut to whole ones: :func:`parse_quantity` of the result, rounded up as requests are, gives
    exactly ``units`` again, so that what is booked from the pod is what was planned.
    """
    if not is_kubernetes_bytes(name):
        return format_amount(units)
    mib, rest = divmod(units, SCALE)
    return str(units * _MIB // SCALE) if rest else f"{mib}Mi"


def echo(value: object) -> str:
    """What somebody wrote, for a message: at most 80 characters of it."""
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _plain_text(value: int | float | str | Decimal) -> str:
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    if isinstance(value, int) and abs(value) >= 10**_LONGEST:
        raise _out_of_bounds(value)
    return str(value)


def _in_wholes(number: Decimal, unit: str, name: str, value: object) -> Decimal:
    """A number with a unit (or plain bytes) in wholes of the resource: MiB for memory-like names."""
    if unit in _SMALL and (unit != "m" or is_memory(name)):
        right = "Ki, Mi, Gi, Ti, k, M, G or T" if is_memory(name) else "m, k, M, G or none"
        raise AmountError(f"unit {unit!r} of {echo(value)} makes no sense for {name}; use {right}")
    if unit in _BINARY and not is_memory(name):
        raise AmountError(
            f"unit {unit!r} of {echo(value)} makes no sense for {name}; byte units are for memory and names in MB"
        )
    if not (unit == "" or unit in _BINARY or unit in _DECIMAL or unit in _SMALL):
        right = "Ki, Mi, Gi, Ti, k, M, G, T or none" if is_memory(name) else "m, k, M, G or none"
        raise AmountError(f"unit {unit!r} of {echo(value)} is unknown; use {right}")
    wholes = _EXACT.multiply(number, _factor(unit))
    in_bytes = is_kubernetes_bytes(name) or (unit and is_memory(name))
    return _EXACT.divide(wholes, Decimal(_MIB)) if in_bytes else wholes


def _factor(unit: str) -> Decimal:
    if unit in _BINARY:
        return Decimal(_BINARY[unit])
    return _DECIMAL.get(unit) or _SMALL.get(unit) or Decimal(1)


def _round(wholes: Decimal, rounding: Rounding) -> Decimal:
    scaled = _EXACT.multiply(wholes, Decimal(SCALE))
    return scaled.to_integral_value(ROUND_FLOOR if rounding == "down" else ROUND_CEILING)


def _bounded(scaled: Decimal, value: object) -> int:
    if scaled < 0:
        raise AmountError(f"{echo(value)} is negative; the smallest amount is 0")
    if scaled > MAX_AMOUNT * SCALE:
        raise _out_of_bounds(value)
    return int(scaled)


def _out_of_bounds(value: object) -> AmountError:
    return AmountError(f"{echo(value)} is out of bounds; the largest amount is {MAX_AMOUNT}")
