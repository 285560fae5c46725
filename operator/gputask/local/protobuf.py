"""The one body that kubectl sends as protobuf only: a new Namespace (``kubectl create namespace``)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gputask.local.statuses import StatusError, bad_request

Object = dict[str, Any]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


def namespace_of(body: bytes) -> Object:
    """The Namespace in a protobuf body: its name, labels and annotations.

    Raises: StatusError 415 for any other kind, which clients send as JSON just as well; 400 for no protobuf.
    """
    if not body.startswith(_MAGIC):
        raise bad_request("the object provided is unrecognized: no protobuf of Kubernetes")
    try:
        envelope = _fields(body[len(_MAGIC) :])
        type_meta = _fields(envelope[1][0])
        api_version, kind = _text(type_meta, 1), _text(type_meta, 2)
        if (api_version, kind) != ("v1", "Namespace"):
            raise StatusError(
                415,
                "UnsupportedMediaType",
                f"a {kind} in protobuf is not accepted by this server; send application/json",
            )
        meta = _fields(_fields(envelope[2][0])[1][0])
        metadata = {"name": _text(meta, 1), "labels": _map(meta, 11), "annotations": _map(meta, 12)}
    except (IndexError, UnicodeDecodeError):
        raise bad_request("the object provided is unrecognized: malformed protobuf") from None
    return {"apiVersion": api_version, "kind": kind, "metadata": {k: v for k, v in metadata.items() if v}}


def _fields(data: bytes) -> dict[int, list[bytes]]:
    """The length-delimited fields of a message by number; numbers are read over."""
    found: dict[int, list[bytes]] = defaultdict(list)
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 2:
            length, at = _varint(data, at)
            found[tag >> 3].append(data[at : at + length])
            at += length
        elif tag & 7 == 0:
            _, at = _varint(data, at)
        else:
            raise IndexError(at)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _text(fields: dict[int, list[bytes]], number: int) -> str:
    return fields[number][-1].decode() if fields.get(number) else ""


def _map(fields: dict[int, list[bytes]], number: int) -> dict[str, str]:
    entries = [_fields(entry) for entry in fields.get(number, ())]
    return {_text(entry, 1): _text(entry, 2) for entry in entries}
