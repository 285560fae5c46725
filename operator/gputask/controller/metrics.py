"""Prometheus metrics of the operator: base units, and no label whose values grow with the number of tasks.

A new metric is a field here and one call where the thing happens.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_PASS_BUCKETS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_PLACEMENT_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3600.0)


class Metrics:
    """All metrics, in a registry of their own (two operators in one process do not mix)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.queue = Gauge(
            "gputask_queue_tasks",
            "Waiting tasks by what keeps most nodes from taking them.",
            ["cause"],
            registry=self.registry,
        )
        self.reservations = Gauge(
            "gputask_reservations", "Entries of all ledgers by state.", ["state"], registry=self.registry
        )
        self.nodes = Gauge("gputask_nodes", "Nodes by whether they admit tasks.", ["state"], registry=self.registry)
        self.decisions = Counter(
            "gputask_decisions_total", "Decisions of the planner.", ["action"], registry=self.registry
        )
        self.admissions = Counter(
            "gputask_admissions_total", "Placements carried out, by outcome.", ["outcome"], registry=self.registry
        )
        self.conflicts = Counter(
            "gputask_conflicts_total",
            "Writes refused because somebody else had written first.",
            ["object"],
            registry=self.registry,
        )
        self.pass_seconds = Histogram(
            "gputask_pass_seconds", "Time of one planner pass.", buckets=_PASS_BUCKETS, registry=self.registry
        )
        self.bind_seconds = Histogram(
            "gputask_bind_seconds",
            "From the decision to the confirmed bind.",
            buckets=_PLACEMENT_BUCKETS,
            registry=self.registry,
        )
        self.errors = Counter(
            "gputask_errors_total", "Unexpected errors, by the part that went on without it.", ["part"],
            registry=self.registry,
        )  # fmt: skip
        self._causes: set[str] = set()

    def set_queue(self, counts: Mapping[str, int]) -> None:
        """The queue as of now; a cause that nobody has any more reads 0, it does not vanish."""
        self._causes |= counts.keys()
        for cause in self._causes:
            self.queue.labels(cause).set(counts.get(cause, 0))
