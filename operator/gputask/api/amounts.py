"""Amounts of resources as a GpuTask writes them: a map from name to a whole number or text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from gputask.api.problems import Location, refuse
from gputask.resources.amounts import AmountError, parse_amount
from gputask.resources.names import MAX_NAME, check_name

MOST_NAMES = 32
"""Entries of one map; with it, and with the bounds below, 128 variants stay inside the API server's CEL budget."""

_PATTERN = r"^([0-9]+(\.[0-9]{1,4})?|[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi))$"
_LONGEST_TEXT = 32

_SCHEMA = {
    "type": "object",
    "maxProperties": MOST_NAMES,
    "x-kubernetes-map-type": "atomic",
    "additionalProperties": {
        "x-kubernetes-int-or-string": True,
        "minimum": 0,
        "maxLength": _LONGEST_TEXT,
        "pattern": _PATTERN,
    },
    "x-kubernetes-validations": [
        {
            "rule": f"self.all(name, size(name) <= {MAX_NAME})",
            "message": f"a resource name has at most {MAX_NAME} characters",
        }
    ],
}


def _check(amounts: Any) -> Any:
    found: list[tuple[Location, str]] = []
    if len(amounts) > MOST_NAMES:
        found.append(((), f"has {len(amounts)} entries; the most is {MOST_NAMES}"))
    for name, value in amounts.items():
        try:
            check_name(name)
            _check_value(value, name)
        except ValueError as error:
            found.append(((name,), str(error)))
    refuse(found, amounts)
    return amounts


def _check_value(value: Any, name: str) -> None:
    if isinstance(value, float):
        # An API server refuses it too: its schema has whole numbers and text only, so that no float ever gets in.
        raise AmountError(f"{value!r} is a bare fraction; quote it: '{value!r}'")
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        raise AmountError(f"has {len(value)} characters; the most is {_LONGEST_TEXT}")
    parse_amount(value, name)


Amounts = Annotated[dict[str, Any], AfterValidator(_check), WithJsonSchema(_SCHEMA)]
"""Resource name -> whole number or text (:func:`gputask.resources.amounts.parse_amount`)."""


def units(amounts: Mapping[str, Any]) -> dict[str, int]:
    """The amounts of a validated map in units of 1/10000, without zeros: zero means absent (section 4, B112)."""
    parsed = {name: parse_amount(value, name) for name, value in amounts.items()}
    return {name: amount for name, amount in parsed.items() if amount}
