"""Prometheus metrics of the operator: base units, and no label whose values grow with the number of tasks.

A new metric is a field here and one call where the thing happens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gputask.kube.transport import Request, Response, Transport

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
        self.leader = Gauge("gputask_leader", "1 if this replica acts, 0 if it stands by.", registry=self.registry)
        self.agent_age = Gauge(
            "gputask_node_agent_age_seconds",
            "Since the agent of a node was last heard of.",
            ["node"],
            registry=self.registry,
        )
        self.reservations = Gauge(
            "gputask_reservations", "Entries of all ledgers by state.", ["state"], registry=self.registry
        )
        self.decisions = Counter(
            "gputask_decisions_total", "Decisions of the planner.", ["action"], registry=self.registry
        )
        self.admissions = Counter(
            "gputask_admissions_total", "Placements carried out, by outcome.", ["outcome"], registry=self.registry
        )
        self.evictions = Counter(
            "gputask_evictions_total", "Evictions asked for, by outcome.", ["outcome"], registry=self.registry
        )
        self.preemptions = Counter(
            "gputask_preemptions_total", "Rooms made for a task, by what came of them.", ["outcome"],
            registry=self.registry,
        )  # fmt: skip
        self.conflicts = Counter(
            "gputask_conflicts_total",
            "Writes refused because somebody else had written first.",
            ["resource"],
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


class Counting:
    """A transport that counts the conflicts of the one that it wraps."""

    def __init__(self, transport: Transport, metrics: Metrics) -> None:
        self._transport = transport
        self._metrics = metrics

    async def send(self, request: Request) -> Response:
        response = await self._transport.send(request)
        if response.status == 409:
            self._metrics.conflicts.labels(_resource(request.path)).inc()
        return response

    def stream(self, request: Request) -> AsyncIterator[bytes]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


def _resource(path: str) -> str:
    """The plural in a path of the API, never a name: ``/api/v1/namespaces/default/pods/web/binding`` is ``pods``."""
    parts = path.strip("/").split("/")
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    return parts[2] if parts[0] == "namespaces" and len(parts) > 2 else parts[0]
