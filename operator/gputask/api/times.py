"""RFC 3339 times, as Kubernetes writes them, to and from seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime

from gputask.resources.amounts import echo

_FIRST = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


def epoch(text: str) -> float:
    """Seconds since the epoch.

    :raises ValueError: one line, when the text is no RFC 3339 time with a zone.
    """
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None or "T" not in text.upper():
        raise ValueError(f"{echo(text)} is not a time; write it like 2026-01-31T12:00:00Z")
    return moment.timestamp()


def rfc3339(seconds: float) -> str:
    """The text of a moment, in UTC; whole seconds, as metav1.Time, unless it has a fraction (MicroTime). What lies
    outside the years 1 to 9999, which have no such text, is their first or last second."""
    moment = datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), UTC)
    precision = "microseconds" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")
