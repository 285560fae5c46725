"""Work that runs already gets its placement; what the files leave out of it is what the planner would pick."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gputask.api.times import epoch
from gputask.cli.claims import Claim
from gputask.planner.model import Foreign, Node, RequestClass, Running, Snapshot, Task, Variant
from gputask.planner.plan import plan
from gputask.resources.amounts import AmountError
from gputask.resources.pools import Allocation, Health, IndexedPool, NodeResources
from gputask.simulate.scenario import Millis, Placement, SimTask
from gputask.translate.reservations import allocation_from_json


@dataclass(slots=True)
class Placer:
    """Places running tasks: first those whose records are whole, then the others in rank order beside them."""

    nodes: Mapping[str, Node]
    foreign: Mapping[str, tuple[Foreign, ...]]
    now: float
    """Seconds since the epoch."""
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _running: defaultdict[str, list[Running]] = field(default_factory=lambda: defaultdict(list))

    def place(self, tasks: Iterable[SimTask], claims: Mapping[str, Claim]) -> list[SimTask]:
        """All tasks, the running ones with their placement. A claim whose task is in no file is a task as well."""
        by_key = {sim.task.key: sim for sim in tasks}
        for key, claim in claims.items():
            by_key.setdefault(key, SimTask(Task(key, claim.uid, 0, 0.0, RequestClass(()))))
        ranked = sorted((by_key[key] for key in claims), key=lambda sim: sim.task.rank)
        whole = {sim.task.key: taken for sim in ranked if (taken := self._recorded(claims[sim.task.key])) is not None}
        for sim in sorted(ranked, key=lambda sim: sim.task.key not in whole):
            claim = claims[sim.task.key]
            by_key[sim.task.key] = replace(sim, running=self._placement(sim.task, claim, whole.get(sim.task.key)))
        return list(by_key.values())

    def _placement(self, task: Task, claim: Claim, taken: Allocation | None) -> Placement | None:
        known = [variant.name for variant in task.request.variants]
        if known and claim.variant is not None and claim.variant not in known:
            self.problems.append(f"{claim.source}.variant: {claim.variant!r} is unknown; known are {', '.join(known)}")
            return None
        index = known.index(claim.variant) if claim.variant in known else None
        if taken is None:
            index, taken = self._derived(task, claim, index)
        limit = task.time_limit
        started = self._started(claim)
        ends = None if limit is None else started / 1000 + limit
        self._running[claim.node].append(Running(task.key, task.uid, task.priority, taken, ends))
        name = known[index] if index is not None else claim.variant
        return Placement(claim.node, name or "", index or 0, taken, started)

    def _started(self, claim: Claim) -> Millis:
        if claim.start_time is None:
            return 0
        try:
            return min(round((epoch(claim.start_time) - self.now) * 1000), 0)
        except ValueError as error:
            self.problems.append(f"{claim.source}: startTime: {error}")
            return 0

    # --- what it takes ------------------------------------------------------------------------------

    def _recorded(self, claim: Claim) -> Allocation | None:
        """What its record says, if it says all: amounts, and labels of each indexed pool."""
        if claim.record is None or claim.record.amounts is None:
            return None
        try:
            taken = allocation_from_json(claim.record.model_dump(include={"amounts", "labels", "devices"}))
        except AmountError as error:
            self.problems.append(f"{claim.source}.amounts: {error}")
            return None
        resources = self._node(claim.node).resources
        unnamed = [k for k in taken.amounts if k not in taken.labels and isinstance(resources.pool(k), IndexedPool)]
        return None if unnamed else taken

    def _derived(self, task: Task, claim: Claim, index: int | None) -> tuple[int | None, Allocation]:
        variants = task.request.variants if index is None else (task.request.variants[index],)
        devices = tuple(claim.record.devices or ()) if claim.record else ()
        snapshot = Snapshot((self._open(claim.node, devices),), (_relaxed(task, variants),))
        for decision in plan(snapshot, 0.0).decisions:
            if decision.action == "place":
                chosen = decision.variant_index if index is None else index
                return chosen, decision.allocation
        where = "is in no file" if claim.node not in self.nodes else "has no room for it beside what runs there"
        self.warnings.append(f"{claim.source}: node {claim.node} {where}; it counts without devices and labels")
        asked = dict(variants[0].amounts) if variants else {}
        return index, Allocation(asked, devices=devices)

    def _node(self, name: str) -> Node:
        return self.nodes.get(name, Node(name, NodeResources()))

    def _open(self, name: str, devices: tuple[str, ...]) -> Node:
        """The node with what runs there, as one that takes anybody, on these devices if any are named."""
        node = self._node(name)
        resources = node.resources
        if devices:
            offered = (
                device if device.id in devices else replace(device, health=Health.UNHEALTHY)
                for device in resources.devices
            )
            resources = replace(resources, devices=tuple(offered))
        return Node(name, resources, running=tuple(self._running[name]), foreign=self.foreign.get(name, ()))


def _relaxed(task: Task, variants: Iterable[Variant]) -> Task:
    """The task without anything but amounts to keep it from a node: it is there already."""
    request = RequestClass(tuple(replace(variant, min_time=0.0) for variant in variants))
    return replace(task, request=request, unsupported=(), excluded_nodes=frozenset())
