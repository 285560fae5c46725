"""What a simulation comes to: how many tasks ran, how long they waited, how well each pool was used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gputask.planner.model import PODS, RequestClass
from gputask.resources.amounts import MAX_AMOUNT, SCALE
from gputask.resources.pools import Allocation, NodeResources
from gputask.simulate.check import Violation
from gputask.simulate.history import Event, Kind, Record, json_seconds
from gputask.simulate.scenario import Millis, NodeVersion, Scenario, SimTask


@dataclass(slots=True)
class _Fate:
    sim: SimTask
    submitted: Millis | None = None
    placed: bool = False
    """At least once."""
    runs: bool = False
    waited: Millis | None = None
    """From the submission to the first start; None for work that ran before."""
    finished: bool = False


@dataclass(slots=True)
class _Meter:
    """One pool of one node: use and capacity, integrated over time."""

    used: int = 0
    capacity: int = 0
    since: Millis = 0
    used_area: int = 0
    capacity_area: int = 0

    def advance(self, t: Millis) -> None:
        self.used_area += self.used * (t - self.since)
        self.capacity_area += self.capacity * (t - self.since)
        self.since = t

    def share(self) -> float | None:
        """Use by capacity; of this instant if no time has passed; None for a pool that never had anything."""
        if self.capacity_area:
            return self.used_area / self.capacity_area
        return self.used / self.capacity if self.capacity else None


class Summary:
    """Sees every record of a history in order; :meth:`result` is the summary so far."""

    def __init__(self, scenario: Scenario) -> None:
        self._fates = {sim.task.key: _Fate(sim) for sim in scenario.tasks}
        self._versions: dict[str, list[NodeVersion]] = defaultdict(list)
        for version in sorted(scenario.nodes, key=lambda version: version.at):
            self._versions[version.node.name].append(version)
        self._meters: defaultdict[tuple[str, str], _Meter] = defaultdict(_Meter)
        self.t: Millis = 0
        """Of the last event."""

    def see(self, record: Record) -> None:
        """One record; only events count."""
        if not isinstance(record, Event):
            return
        self.t = record.t
        if record.task is not None:
            self._task(record, self._fates[record.task])
        elif record.node is not None:
            self._node(record, record.node)

    def _task(self, event: Event, fate: _Fate) -> None:
        match event.kind:
            case Kind.SUBMITTED:
                fate.submitted = event.t
                if fate.sim.running is not None:
                    fate.placed = fate.runs = True
                    self._book(event.t, fate.sim.running.node, fate.sim.running.allocation, 1)
            case Kind.BOUND if event.place:
                if not fate.placed and fate.submitted is not None:
                    fate.placed, fate.waited = True, event.t - fate.submitted
                fate.runs = True
                self._book(event.t, event.place.node, event.place.allocation, 1)
            case Kind.REQUEUED | Kind.FINISHED:
                fate.runs, fate.finished = False, event.kind is Kind.FINISHED
                if event.place:
                    self._book(event.t, event.place.node, event.place.allocation, -1)

    def _book(self, t: Millis, node: str, allocation: Allocation, sign: int) -> None:
        for key, units in allocation.amounts.items():
            meter = self._meters[node, key]
            meter.advance(t)
            meter.used += sign * units

    def _node(self, event: Event, name: str) -> None:
        capacities = {}
        if event.kind is Kind.NODE_ADDED:
            version = [version for version in self._versions[name] if version.at <= event.t][-1]
            capacities = _capacities(version.node.resources)
        for key in capacities.keys() | {key for node, key in self._meters if node == name}:
            meter = self._meters[name, key]
            meter.advance(event.t)
            meter.capacity = capacities.get(key, 0)

    # --- result -------------------------------------------------------------------------------------

    def result(self, t: Millis, violations: Sequence[Violation]) -> dict[str, Any]:
        """The JSON shape of the summary, without its schemaVersion, as of ``t``."""
        seen = [fate for fate in self._fates.values() if fate.submitted is not None]
        by_priority: dict[str, list[_Fate]] = defaultdict(list)
        by_class: dict[tuple[int, RequestClass], list[_Fate]] = defaultdict(list)
        for fate in sorted(seen, key=lambda fate: fate.sim.task.rank):
            by_priority[str(fate.sim.task.priority)].append(fate)
            by_class[fate.sim.task.priority, fate.sim.task.request].append(fate)
        return {
            "event": "summary",
            "t": json_seconds(t),
            "tasks": {**_counts(seen), "waiting": sum(not fate.runs and not fate.finished for fate in seen)},
            "byPriority": {priority: _of(fates) for priority, fates in by_priority.items()},
            "byClass": {fates[0].sim.task.key: _of(fates) for fates in by_class.values()},
            "use": self._use(t),
            "violations": [_violation(violation) for violation in violations],
        }

    def _use(self, t: Millis) -> dict[str, float]:
        use = {}
        for (node, key), meter in sorted(self._meters.items()):
            meter.advance(t)
            share = meter.share()
            if share is not None:
                use[f"{node}/{key}"] = round(share, 4)
        return use


def _capacities(resources: NodeResources) -> dict[str, int]:
    pools = dict(resources.pools)
    for device in resources.devices:
        pools.update({f"{name}/{device.id}": pool for name, pool in device.pools.items()})
    unlimited = MAX_AMOUNT * SCALE
    return {key: pool.capacity for key, pool in pools.items() if key != PODS or pool.capacity < unlimited}


def _counts(fates: Iterable[_Fate]) -> dict[str, int]:
    fates = list(fates)
    return {
        "submitted": len(fates),
        "placed": sum(fate.placed for fate in fates),
        "finished": sum(fate.finished for fate in fates),
    }


def _of(fates: list[_Fate]) -> dict[str, Any]:
    return {**_counts(fates), "wait": _waits_of([fate.waited for fate in fates if fate.waited is not None])}


def _waits_of(waits: list[Millis]) -> dict[str, float | int | None]:
    """Seconds from submission to the first start; percentiles by nearest rank; all null if nothing started."""
    if not waits:
        return dict.fromkeys(("mean", "p50", "p99", "max"))
    waits = sorted(waits)
    return {
        "mean": json_seconds(round(sum(waits) / len(waits))),
        "p50": json_seconds(_percentile(waits, 50)),
        "p99": json_seconds(_percentile(waits, 99)),
        "max": json_seconds(waits[-1]),
    }


def _percentile(ordered: list[Millis], percent: int) -> Millis:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _violation(violation: Violation) -> dict[str, Any]:
    return {
        "t": json_seconds(violation.t),
        "rule": violation.rule,
        "task": violation.task,
        "node": violation.node,
        "message": violation.message,
    }
