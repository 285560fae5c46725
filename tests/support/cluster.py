"""Builders for planner tests that read like sentences, and a cluster that lives from pass to pass.

cluster = Cluster(node("n1").has(cpu=8).card("0", gpuSlot=["a", "b"], gpuMemoryMB=24000))
cluster.submit(task("t", priority=4).wants({"gpuSlot/0": 1, "cpu": 1}).or_else({"cpu": 4}))
cluster.step()
assert cluster.where("t") == "n1"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gputask.planner.invariants import check_invariants
from gputask.planner.model import (
    Action,
    Amounts,
    Decision,
    DeviceDemand,
    Foreign,
    Hold,
    Node,
    NodeConstraints,
    Plan,
    Rank,
    RequestClass,
    Running,
    Snapshot,
    Taint,
    Task,
    Variant,
)
from gputask.planner.plan import plan
from gputask.resources.amounts import parse_amount
from gputask.resources.pools import Allocation, Device, Health, IndexedPool, NodeResources, Pool, SumPool, UnknownPool

Amount = int | str | float
Declared = Amount | Sequence[str] | None
"""A number is a sum, a list of labels an indexed pool, None an unknown one."""


def amount(value: Amount) -> int:
    """Units of a plain number."""
    return parse_amount(value, "plain")


def amounts(wanted: Mapping[str, Amount]) -> Amounts:
    """Sorted units without zeros, as the planner wants them."""
    units = ((key, parse_amount(value, _plain(key))) for key, value in wanted.items())
    return tuple(sorted((key, part) for key, part in units if part))


def _plain(key: str) -> str:
    """Tests write all amounts as plain numbers; Kubernetes' byte names would read them as bytes."""
    return "plainMB" if key == "memory" else key


def pool(declared: Declared, name: str) -> Pool:
    if declared is None:
        return UnknownPool()
    if isinstance(declared, int | float | str):
        return SumPool(parse_amount(declared, _plain(name), rounding="down"))
    return IndexedPool(tuple(declared))


@dataclass
class NodeBuilder:
    """A node that grows by sentences."""

    name: str
    pools: dict[str, Pool] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    fields: dict[str, object] = field(default_factory=dict)
    running: list[Running] = field(default_factory=list)
    foreign: list[Foreign] = field(default_factory=list)

    def has(self, declared: Mapping[str, Declared] | None = None, **more: Declared) -> NodeBuilder:
        self.pools |= {key: pool(value, key) for key, value in {**(declared or {}), **more}.items()}
        return self

    def card(
        self, id: str, *, index: int | None = None, health: Health = Health.HEALTHY, **pools: Declared
    ) -> NodeBuilder:
        number = int(id) if index is None and id.isdecimal() else index
        made = {key: pool(value, key) for key, value in pools.items()}
        self.devices.append(Device(id, made, number, "", health))
        return self

    def runs(
        self,
        name: str,
        wanted: Mapping[str, Amount],
        *,
        ends: float | None = None,
        labels: Mapping[str, tuple[str, ...]] | None = None,
        priority: int = 0,
        **fields: object,
    ) -> NodeBuilder:
        """Work that runs from the start; others may evict it. ``fields``: any other of :class:`Running`."""
        allocation = Allocation(dict(amounts(wanted)), labels or {})
        work = Running(name, f"uid-{name}", priority, allocation, ends, preemptible=True)
        self.running.append(replace(work, **fields))  # type: ignore[arg-type]
        return self

    def lends(self, owner: str, wanted: Mapping[str, Amount]) -> NodeBuilder:
        self.foreign.append(Foreign(owner, amounts(wanted)))
        return self

    def with_(self, **fields: object) -> NodeBuilder:
        """Any other field of :class:`Node`: labels, taints, unschedulable, ready, out, lives_until."""
        self.fields |= fields
        return self

    def tainted(self, key: str, effect: str = "NoSchedule", value: str = "") -> NodeBuilder:
        return self.with_(taints=(Taint(key, value, effect),))

    def build(self) -> Node:
        resources = NodeResources(dict(self.pools), tuple(self.devices))
        return Node(
            name=self.name,
            resources=resources,
            running=tuple(self.running),
            foreign=tuple(self.foreign),
            **self.fields,  # type: ignore[arg-type]
        )


@dataclass
class TaskBuilder:
    """A task that grows by sentences. Tasks made later are younger unless ``created`` says otherwise."""

    name: str
    priority: int = 0
    created: float | None = None
    time_limit: float | None = None
    variants: list[Variant] = field(default_factory=list)
    constraints: NodeConstraints = field(default_factory=NodeConstraints)
    fields: dict[str, object] = field(default_factory=dict)

    def wants(
        self,
        wanted: Mapping[str, Amount] | None = None,
        *,
        devices: tuple[int, Mapping[str, Amount]] | None = None,
        min_time: float = 0.0,
        **more: Amount,
    ) -> TaskBuilder:
        demand = None if devices is None else DeviceDemand(devices[0], amounts(devices[1]))
        asked = amounts({**(wanted or {}), **more})
        self.variants.append(Variant(f"v{len(self.variants)}", asked, demand, min_time))
        return self

    or_else = wants

    def on_any_card(self, cards: int, wanted: Mapping[str, Amount], **per_card: Amount) -> TaskBuilder:
        """One variant for each card, in card order, all asking the same of it."""
        for card in range(cards):
            self.wants({**wanted, **{f"{key}/{card}": value for key, value in per_card.items()}})
        return self

    def preempting(self) -> TaskBuilder:
        """It may evict others."""
        return self.with_(may_preempt=True)

    def only_where(self, constraints: NodeConstraints) -> TaskBuilder:
        self.constraints = constraints
        return self

    def with_(self, **fields: object) -> TaskBuilder:
        """Any other field of :class:`Task`: unsupported, excluded_nodes."""
        self.fields |= fields
        return self

    def build(self, age: float) -> Task:
        return Task(
            key=f"ns/{self.name}",
            uid=f"uid-{self.name}",
            priority=self.priority,
            created=age if self.created is None else self.created,
            request=RequestClass(tuple(self.variants), self.constraints),
            time_limit=self.time_limit,
            **self.fields,  # type: ignore[arg-type]
        )


def node(name: str) -> NodeBuilder:
    return NodeBuilder(name)


def task(name: str, priority: int = 0, *, created: float | None = None, limit: float | None = None) -> TaskBuilder:
    return TaskBuilder(name, priority, created, limit)


def many(count: int, prefix: str, priority: int = 0) -> list[TaskBuilder]:
    """``count`` tasks named prefix0, prefix1, ...; give them variants with :func:`each`."""
    return [task(f"{prefix}{i}", priority) for i in range(count)]


class Cluster:
    """Nodes, waiting tasks and holds from pass to pass. Every pass is checked by :func:`check_invariants`."""

    def __init__(self, *nodes: NodeBuilder) -> None:
        self.nodes = {n.name: n.build() for n in nodes}
        self.waiting: dict[str, Task] = {}
        self.known: dict[str, Task] = {}
        self.placed: dict[str, Decision] = {}
        self.holds: tuple[Hold, ...] = ()
        self.budgets: dict[str, int] = {}
        self.now = 0.0
        self.plan = Plan((), (), ())
        self._born = 0

    # --- what happens ---------------------------------------------------------------------------------

    def join(self, *nodes: NodeBuilder) -> Cluster:
        """Nodes come, or change what they declare; what runs on them stays."""
        for builder in nodes:
            made = builder.build()
            before = self.nodes.get(made.name)
            self.nodes[made.name] = made if before is None else replace(made, running=before.running)
        return self

    def submit(self, *tasks: TaskBuilder) -> Cluster:
        for builder in tasks:
            made = builder.build(self._born)
            self._born += 1
            self.waiting[made.key] = self.known[builder.name] = made
        return self

    def finish(self, *names: str) -> Cluster:
        """Running work ends."""
        for name in names:
            for key, at in self.nodes.items():
                rest = tuple(r for r in at.running if r.task not in {name, f"ns/{name}"})
                self.nodes[key] = replace(at, running=rest)
        return self

    def stopped(self, *names: str) -> Cluster:
        """Victims are gone, and wait again."""
        for name in names:
            self.finish(name)
            if name in self.known:
                self.waiting[f"ns/{name}"] = self.known[name]
        return self

    def snapshot(self) -> Snapshot:
        return Snapshot(tuple(self.nodes.values()), tuple(self.waiting.values()), self.holds, self.budgets)

    def step(
        self, *, at: float | None = None, resume: Rank | None = None, budget: Callable[[], bool] | None = None
    ) -> Plan:
        """One pass, checked and applied."""
        self.now = self.now if at is None else at
        snapshot = replace(self.snapshot(), resume=resume)
        self.plan = plan(snapshot, self.now, budget=budget)
        check_invariants(snapshot, self.plan)
        for decision in self.plan.decisions:
            if decision.action is Action.PLACE:
                self._start(decision)
            elif decision.action is Action.PREEMPT:
                self._evict(decision)
        self.holds = tuple(replace(h, committed=True) if h.victims else h for h in self.plan.holds)
        return self.plan

    def _evict(self, decision: Decision) -> None:
        """The victims begin to stop; their room stays theirs until :meth:`stopped`."""
        at = self.nodes[decision.node]
        running = tuple(replace(r, leaving=True) if r in decision.victims else r for r in at.running)
        self.nodes[at.name] = replace(at, running=running)

    def _start(self, decision: Decision) -> None:
        started = decision.task
        at = self.nodes[decision.node]
        ends = None if started.time_limit is None else self.now + started.time_limit
        work = Running(
            started.key,
            started.uid,
            started.priority,
            decision.allocation,
            ends,
            created=started.created,
            started=self.now,
            preemptible=True,
        )
        self.nodes[at.name] = replace(at, running=(*at.running, work))
        self.placed[started.key] = decision
        del self.waiting[started.key]

    # --- what can be seen -----------------------------------------------------------------------------

    def where(self, name: str) -> str | None:
        """The node of a placed task."""
        decision = self.placed.get(f"ns/{name}")
        return None if decision is None else decision.node

    def took(self, name: str) -> Decision:
        return self.placed[f"ns/{name}"]

    def running(self, prefix: str = "") -> list[str]:
        """Names of placed tasks that still run, sorted."""
        keys = (r.task.removeprefix("ns/") for n in self.nodes.values() for r in n.running if r.task in self.placed)
        return sorted(key for key in keys if key.startswith(prefix))

    def variants(self, prefix: str = "") -> Counter[str]:
        """How many running tasks use each variant."""
        return Counter(self.took(name).variant for name in self.running(prefix))

    def victims(self, name: str) -> list[str]:
        """Whom the last pass evicts for a task, sorted."""
        decided = [d for d in self.plan.decisions if d.task.key == f"ns/{name}"]
        return sorted(v.task.removeprefix("ns/") for d in decided for v in d.victims)

    def evicted(self) -> list[str]:
        """Whom the last pass evicts, sorted."""
        return sorted(v.task.removeprefix("ns/") for d in self.plan.decisions for v in d.victims)

    def hold_of(self, name: str) -> Hold | None:
        return next((h for h in self.holds if h.task == f"ns/{name}"), None)

    def reason(self, name: str) -> str:
        return next(w.message for w in self.plan.waiting if w.task.key == f"ns/{name}")

    def feasible(self, name: str) -> bool:
        return next(w.feasible for w in self.plan.waiting if w.task.key == f"ns/{name}")
