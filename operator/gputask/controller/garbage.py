"""The garbage collector of a process that holds some hundred thousand objects for long and makes many short-lived ones.

CPython's full collections walk over all of them, half a second at a time on a large cluster, in whichever thread
happens to allocate; the event loop stands still meanwhile. What we hold is freed by reference counts; cycles are few.
"""

from __future__ import annotations

import gc

_THRESHOLDS = (20_000, 5, 1_000)
"""Allocations less frees before the youngest are looked at; how often that is before the next generation is, too. The
younger ones are few, so that each look takes milliseconds only; the oldest are hardly ever looked at."""


def calm() -> None:
    """At the start of the program: full collections become rare."""
    gc.set_threshold(*_THRESHOLDS)


def settle() -> None:
    """All that was read at the start stays: no collection looks at it again. What of it is freed later is freed all the
    same, unless it is part of a cycle."""
    gc.freeze()
