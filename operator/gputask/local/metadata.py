"""Names, labels, annotations and owners: what the API server refuses in the metadata of any object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gputask.local.statuses import Cause, forbidden_field, invalid, required

Object = dict[str, Any]

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(rf"^{_LABEL}\Z")
_DNS_SUBDOMAIN = re.compile(rf"^{_LABEL}(\.{_LABEL})*\Z")
_QUALIFIED = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
ANNOTATIONS_LIMIT = 256 * 1024
"""Bytes of all annotation keys and values of an object."""


def name_problem(name: str, *, label: bool = False) -> str | None:
    """Why a text is no name of an object (a DNS subdomain, for some kinds a DNS label); None if it is one."""
    most = 63 if label else 253
    if len(name) > most:
        return f"must be no more than {most} characters"
    if (_DNS_LABEL if label else _DNS_SUBDOMAIN).match(name):
        return None
    return _LABEL_RULE if label else _SUBDOMAIN_RULE


def metadata_problems(meta: Object, *, label_name: bool) -> Iterator[Cause]:
    """Everything wrong with an object's metadata."""
    if not meta.get("name"):
        yield required("metadata.name", "name or generateName is required")
    elif why := name_problem(meta["name"], label=label_name):
        yield invalid("metadata.name", meta["name"], why)
    yield from _labels(meta.get("labels") or {})
    annotations = meta.get("annotations") or {}
    for key in annotations:
        if why := qualified_problem(key.lower()):
            yield invalid("metadata.annotations", key, why)
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        yield Cause(
            "metadata.annotations",
            "FieldValueTooLong",
            f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes",
        )
    for i, owner in enumerate(meta.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield invalid(f"metadata.ownerReferences[{i}].{field}", owner.get(field) or "", "must not be empty")
    for i, finalizer in enumerate(meta.get("finalizers") or ()):
        if why := qualified_problem(finalizer):
            yield invalid(f"metadata.finalizers[{i}]", finalizer, why)
    controllers = [owner for owner in meta.get("ownerReferences") or () if owner.get("controller")]
    if len(controllers) > 1:
        hint = "Only one reference can have Controller set to true"
        yield invalid("metadata.ownerReferences", {}, hint)


def update_problems(new: Object, old: Object) -> Iterator[Cause]:
    """What must not change in the metadata of an object that exists."""
    added = [item for item in new.get("finalizers") or () if item not in (old.get("finalizers") or ())]
    if old.get("deletionTimestamp") and added:
        hint = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
        yield forbidden_field("metadata.finalizers", hint)


def _labels(labels: dict[str, str]) -> Iterator[Cause]:
    for key, value in labels.items():
        if why := qualified_problem(key):
            yield invalid("metadata.labels", key, why)
        if len(value) > 63:
            yield invalid("metadata.labels", value, "must be no more than 63 bytes")
        elif not _LABEL_VALUE.match(value):
            yield invalid("metadata.labels", value, _VALUE_RULE)


def qualified_problem(key: str) -> str | None:
    """Why a text is no qualified name (``name`` or ``prefix/name``: keys of labels, annotations); None if it is."""
    prefix, slash, name = key.rpartition("/")
    if slash and (why := name_problem(prefix)):
        return f"prefix part {why}"
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    return None if _QUALIFIED.match(name) else _QUALIFIED_RULE
