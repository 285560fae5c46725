"""The Status bodies of the Kubernetes API: what kubectl prints and what clients switch on (``reason``, ``code``)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


class StatusError(Exception):
    """An answer that is no success: carries the whole Status object (``code`` is the HTTP status)."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def body(self) -> Object:
        """The Status object, as the API sends it in a reply or as the object of a watch's ERROR event."""
        status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        status["message"] = self.message
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing wrong with one field of an object; ``reason`` is one of the API's FieldValue... reasons."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def required(field: str, hint: str = "") -> Cause:
    """A field is missing."""
    return Cause(field, "FieldValueRequired", f"Required value: {hint}" if hint else "Required value")


def invalid(field: str, value: Any, hint: str) -> Cause:
    """A field has a value that it must not have; the value is echoed (objects only by their type)."""
    shown = '"object"' if isinstance(value, dict) else '"array"' if isinstance(value, list) else json.dumps(value)
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown}: {hint}")


def wrong_type(field: str, shown: str, hint: str) -> Cause:
    """A field has a value of another type."""
    return Cause(field, "FieldValueTypeInvalid", f"Invalid value: {json.dumps(shown)}: {hint}")


def unsupported(field: str, value: Any, supported: Iterable[Any]) -> Cause:
    """A field has a value outside its enumeration."""
    listed = ", ".join(json.dumps(item) for item in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {json.dumps(value)}: supported values: {listed}")


def duplicate(field: str, shown: str) -> Cause:
    """An item of a list whose key another item has already."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {shown}")


def too_many(field: str, count: int, most: int) -> Cause:
    """A list or a map with too many items."""
    return Cause(field, "FieldValueTooMany", f"Too many: {count}: must have at most {most} items")


def too_long(field: str, most: int) -> Cause:
    """A string of too many bytes."""
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")


def forbidden_field(field: str, hint: str) -> Cause:
    """A change that is not allowed."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {hint}")


def bad_request(message: str) -> StatusError:
    """400: the request itself makes no sense."""
    return StatusError(400, "BadRequest", message)


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    """403 as admission answers it."""
    return StatusError(
        403,
        "Forbidden",
        f"{_dotted(plural, group)} {json.dumps(name)} is forbidden: {why}",
        _details(group, plural, name),
    )


def not_found(group: str, plural: str, name: str) -> StatusError:
    """404 for an object."""
    return StatusError(
        404, "NotFound", f"{_dotted(plural, group)} {json.dumps(name)} not found", _details(group, plural, name)
    )


def no_such_path() -> StatusError:
    """404 for a path that is served by nobody (an unknown group, version, resource or subresource)."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str) -> StatusError:
    """409 for a create."""
    return StatusError(
        409,
        "AlreadyExists",
        f"{_dotted(plural, group)} {json.dumps(name)} already exists",
        _details(group, plural, name),
    )


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    """409 for an update, delete or bind whose precondition does not hold."""
    return StatusError(
        409,
        "Conflict",
        f"Operation cannot be fulfilled on {_dotted(plural, group)} {json.dumps(name)}: {why}",
        _details(group, plural, name),
    )


def modified(group: str, plural: str, name: str) -> StatusError:
    """409 for a write under a resourceVersion that is no longer the object's."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(group, plural, name, why)


def expired(message: str) -> StatusError:
    """410: the version asked for is no longer kept; the client has to list again."""
    return StatusError(410, "Expired", message)


def invalid_object(group: str, kind: str, name: str, causes: list[Cause]) -> StatusError:
    """422 with one cause for each field."""
    texts = [str(cause) for cause in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details: Object = {"name": name, "group": group, "kind": kind}
    details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    if not group:
        del details["group"]
    return StatusError(422, "Invalid", f"{_dotted(kind, group)} {json.dumps(name)} is invalid: {text}", details)


def success(group: str, plural: str, name: str, uid: str) -> Object:
    """The reply to a delete that took effect at once."""
    details = _details(group, plural, name) | {"uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _dotted(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def _details(group: str, plural: str, name: str) -> Object:
    return {"name": name, "group": group, "kind": plural} if group else {"name": name, "kind": plural}
