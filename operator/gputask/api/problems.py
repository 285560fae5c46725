"""What is wrong with a manifest, in lines for people: the field's path, what is wrong, what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from gputask.resources.amounts import echo

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]
_LONGEST_KEY = 80


class ManifestError(ValueError):
    """A manifest that cannot be understood. ``lines`` has one line for each problem, with the field's path."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("; ".join(self.lines))


def read(model: type[M], manifest: Mapping[str, Any]) -> M:
    """Validate a manifest.

    :raises ManifestError: one line for each problem.
    """
    try:
        return model.model_validate(manifest)
    except ValidationError as error:
        raise ManifestError(problems(error, model)) from None


def problems(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line for each problem: ``spec.variants[1].resources.cpu: '0.00001' has more than 4 decimals; ...``."""
    lines = [_line(detail, model) for detail in error.errors(include_url=False)]
    return list(dict.fromkeys(lines))


def refuse(found: Sequence[tuple[Location, str]], value: object) -> None:
    """Raise what a validator found, each under its own place below the field it validates; nothing if nothing.

    :raises ValidationError: pydantic merges it into its own.
    """
    if found:
        details = [
            InitErrorDetails(type=PydanticCustomError("bad", "{text}", {"text": text}), loc=place, input=value)
            for place, text in found
        ]
        raise ValidationError.from_exception_data("manifest", details)


def path_text(location: Iterable[int | str]) -> str:
    """``spec.variants[1].resources.cpu``; keys that are no plain words stand in brackets, long ones are cut."""
    text = ""
    for part in location:
        if isinstance(part, str) and len(part) > _LONGEST_KEY:
            part = part[:_LONGEST_KEY] + "..."
        if isinstance(part, int) or not part.replace("-", "").replace("_", "").isalnum():
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def _line(detail: Any, model: type[BaseModel]) -> str:
    place = path_text(detail["loc"])
    text = _text(detail, model)
    return f"{place}: {text}" if place else text


def _text(detail: Any, model: type[BaseModel]) -> str:
    kind, value, context = detail["type"], echo(detail["input"]), detail.get("ctx") or {}
    match kind:
        case "missing":
            return "missing"
        case "extra_forbidden":
            return _unknown_field(detail["loc"], model)
        case "literal_error" | "enum":
            return f"{value} is unknown; write {context['expected']}"
        case "greater_than_equal":
            return f"{value} is too small; the smallest is {context['ge']}"
        case "greater_than":
            return f"{value} is too small; write more than {context['gt']}"
        case "less_than_equal":
            return f"{value} is too large; the largest is {context['le']}"
        case "too_short":
            return f"has {context['actual_length']} entries; write at least {context['min_length']}"
        case "too_long":
            return f"has more than {context['max_length']} entries; the most is {context['max_length']}"
        case "string_too_short":
            return "is empty; write some text"
        case "string_too_long":
            return f"{value} is too long; the most is {context['max_length']} characters"
        case "string_pattern_mismatch":
            return f"{value} does not match {context['pattern']}"
    return _wrong_type(kind, value) or str(detail["msg"]).removeprefix("Value error, ")


def _wrong_type(kind: str, value: str) -> str | None:
    right = {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "finite_number": "a finite number",
        "string_type": "text; quote it",
        "bool_type": "true or false",
        "dict_type": "a mapping",
        "model_type": "a mapping",
        "list_type": "a list",
    }.get(kind)
    return f"{value} is not {right}" if right else None


def _unknown_field(location: Location, model: type[BaseModel]) -> str:
    """An unknown field, and the known one that it resembles, or all that are known."""
    *parents, name = location
    known = sorted(field.alias or key for key, field in _model_at(parents, model).model_fields.items())
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"unknown field; {'did you mean ' + close[0] + '?' if close else 'known are ' + ', '.join(known)}"


def _model_at(location: Iterable[int | str], model: type[BaseModel]) -> type[BaseModel]:
    for part in location:
        field = next((f for key, f in model.model_fields.items() if part in (key, f.alias)), None)
        model = _model_in(field.annotation) or model if field is not None else model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside ``Model``, ``list[Model]`` or ``Model | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
