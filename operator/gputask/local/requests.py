"""What a request says: its body, and the options of writes and deletes in its query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml

from gputask.local.objects import Deletion, Options
from gputask.local.protobuf import MEDIA_TYPE, namespace_of
from gputask.local.statuses import bad_request
from gputask.local.store import decode
from gputask.local.typed import decoded, typed_schema

JSON = "application/json"
_DELETE_OPTIONS = typed_schema("V1DeleteOptions")


@dataclass(frozen=True, slots=True)
class Request:
    """One request; the query has the last value of each parameter."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON


def options_of(query: Mapping[str, str]) -> Options:
    """How a write is meant. Raises: StatusError 400."""
    validation = query.get("fieldValidation") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        raise bad_request(
            f'fieldValidation: Unsupported value: "{validation}": supported values: "", "Ignore", "Strict", "Warn"'
        )
    return Options(dry_run=query.get("dryRun") == "All", field_validation=validation)


def body_of(request: Request) -> Any:
    """The decoded body: JSON, YAML, or the one protobuf that is known. Raises: StatusError 400 or 415."""
    try:
        if request.content_type.startswith(MEDIA_TYPE):
            return namespace_of(request.body)
        if "yaml" in request.content_type:
            return yaml.safe_load(request.body)
        return decode(request.body)
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise bad_request(f"the object provided is unrecognized: {str(error).splitlines()[0]}") from None


def deletion_of(request: Request) -> Deletion:
    """From the options in the body or, as kubectl and others send them as well, in the query."""
    return deletion_from(body_of(request) if request.body else {}, request)


def deletion_from(given: Any, request: Request) -> Deletion:
    """From DeleteOptions, wherever they stand, and the query."""
    options = decoded(given, _DELETE_OPTIONS, "DeleteOptions", "v1")
    conditions = options.get("preconditions") or {}
    grace = options.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
    if isinstance(grace, str) and not grace.isdecimal():
        raise bad_request(f"invalid gracePeriodSeconds: {json.dumps(grace)} is no whole number")
    return Deletion(
        uid=conditions.get("uid"),
        resource_version=conditions.get("resourceVersion"),
        grace=None if grace is None else int(grace),
        finalizer=_finalizer(options, request.query),
        dry_run="All" in (options.get("dryRun") or ()) or options_of(request.query).dry_run,
    )


def _finalizer(options: Mapping[str, Any], query: Mapping[str, str]) -> str | None:
    policy = options.get("propagationPolicy") or query.get("propagationPolicy") or "Background"
    if options.get("orphanDependents"):
        policy = "Orphan"
    match policy:
        case "Background":
            return None
        case "Foreground":
            return "foregroundDeletion"
        case "Orphan":
            return "orphan"
    raise bad_request(f"invalid propagationPolicy: {json.dumps(policy)}")
