"""Indexed pools: which labels a request takes, and what a hold leaves of them.

The whole part of a request comes from wholly free labels, its fraction from *one* label, best fit. Label
tables map label to free units (one whole is :data:`SCALE`); they iterate in natural order, which decides
the last ties, so that a declaration's order never matters (R3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gputask.resources.amounts import SCALE


def natural(label: str) -> tuple[int, int, str]:
    """Sort key: whole numbers by value, then other names by text."""
    return (0, int(label), label) if label.isdecimal() else (1, 0, label)


def label_table(labels: Iterable[str]) -> dict[str, int]:
    """A table with every label wholly free."""
    return dict.fromkeys(sorted(labels, key=natural), SCALE)


def largest_request(free: Mapping[str, int]) -> int:
    """The most units that one request can take: all wholly free labels and the best part of one more."""
    partial = max((left for left in free.values() if left < SCALE), default=0)
    return sum(SCALE for left in free.values() if left == SCALE) + max(0, partial)


@dataclass(slots=True)
class LabelRoom:
    """What holds leave of one indexed pool to lower tasks (R6).

    ``budget`` labels may be touched freely. ``spared[label]`` is how much of a label may be taken on top
    without cost, because no holder becomes unable to use that label; None if a holder needs whole labels,
    which any touch spoils.
    """

    budget: int
    spared: dict[str, int] | None

    def merge(self, other: LabelRoom) -> None:
        """Keep what both leave."""
        self.budget = min(self.budget, other.budget)
        if self.spared is not None and other.spared is not None:
            self.spared = {label: min(units, other.spared[label]) for label, units in self.spared.items()}
        else:
            self.spared = None

    def is_free(self, label: str, units: int) -> bool:
        """Whether so much of a label may be taken without cost."""
        return units < SCALE and self.spared is not None and units <= self.spared.get(label, 0)

    def consume(self, taken: Iterable[tuple[str, int]]) -> None:
        """Book what a lower task took of each label."""
        for label, units in taken:
            if not self.is_free(label, units):
                self.budget = max(0, self.budget - 1)
            if self.spared is not None and label in self.spared:
                self.spared[label] = max(0, self.spared[label] - units)


def pick_labels(
    free: Mapping[str, int],
    units: int,
    spare: Mapping[str, int],
    room: LabelRoom | None = None,
) -> tuple[str, ...] | None:
    """The labels that a request of ``units`` takes, wholly taken ones first; None if it does not fit.

    :param free: what may be taken of each label.
    :param spare: what is free beside running work *and* holds: labels without holds are taken first (R3),
        and a hold takes those where least is still to be freed (R5).
    :param room: the limits that holds of higher rank set.
    """
    whole, fraction = divmod(units, SCALE)
    budget = len(free) if room is None else room.budget
    if whole > budget:
        return None
    clean = [label for label, left in free.items() if left == SCALE]
    if len(clean) < whole:
        return None
    if spare is not free:
        clean.sort(key=lambda label: -spare.get(label, 0))
    taken = clean[:whole]
    if not fraction:
        return tuple(taken)
    candidates = [
        label
        for label, left in free.items()
        if left >= fraction and label not in taken and (whole < budget or (room and room.is_free(label, fraction)))
    ]
    if not candidates:
        return None
    best = min(candidates, key=lambda label: (max(0, fraction - spare.get(label, 0)), free[label]))
    return (*taken, best)
