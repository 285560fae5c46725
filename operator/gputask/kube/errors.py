"""What the API server answers when it does not do what was asked, and what it means for the caller.

Three families, and nothing else leaves :mod:`gputask.kube`:

- :class:`ApiError`: the server answered, and the request had **no effect**;
- :class:`Unreachable`: the request never left this machine: no effect either;
- :class:`OutcomeUnknown`: a write went out and its answer was lost, or was a 5xx (etcd may have stored it after
  all): it **may have taken effect**, now or later, and only a live read can tell.
"""

# Named as the API names them (reason: NotFound, Conflict, ...).
# ruff: noqa: N818

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class KubeConfigError(Exception):
    """No usable connection settings. One line: which file or variable, what is wrong, what would be right."""


class KubeError(Exception):
    """Base of everything that a request can raise."""


class Unreachable(KubeError):
    """The API server could not be reached; the request had no effect."""


class OutcomeUnknown(KubeError):
    """A write whose answer is not known. Read the object live before acting on it again (protocol line 7)."""


class ApiError(KubeError):
    """The server refused, with a ``Status`` object.

    ``message`` is the server's own line, ``details`` its machine-readable part (``causes`` with field and message).
    """

    def __init__(self, status: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}


class BadRequest(ApiError):
    """400: the request itself is malformed."""


class Unauthorized(ApiError):
    """401: the credentials were not accepted."""


class Forbidden(ApiError):
    """403: no permission, a quota or an admission policy."""


class NotFound(ApiError):
    """404: no such object, or no such resource on this server."""


class Conflict(ApiError):
    """409: a resourceVersion or UID precondition failed, or the object is in the wrong state for the request."""


class AlreadyExists(Conflict):
    """409 on create: the name is taken."""


class Gone(ApiError):
    """410: the resourceVersion is older than the server's window; list again."""


class Invalid(ApiError):
    """422: the object breaks its schema or a rule."""


class TooManyRequests(ApiError):
    """429: not executed; ask again later."""


class ServerError(ApiError):
    """5xx on a read. On a write it is :class:`OutcomeUnknown`."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def api_error(status: int, body: Mapping[str, Any] | None, *, fallback: str) -> ApiError:
    """The error of an HTTP answer; ``fallback`` is its text where the body is no ``Status`` object."""
    body = body or {}
    reason = str(body.get("reason") or "")
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    if status == 409 and reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(status, reason, str(body.get("message") or fallback), body.get("details"))
