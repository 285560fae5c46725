"""An independent judge of a simulation: reads its history and the scenario, and shares no code with the planner.

Rules, as they stand in a violation:

- ``capacity``, ``device``, ``label``: a start brought a pool over its declared size, used a device that is no healthy
  one of the node, or a label that is not declared or not free;
- ``request``: what a task got is not what its variant asks;
- ``node``: a start on a node that is absent, not Ready, cordoned, tainted, not selected, or that lives too short;
- ``inversion`` (R1): a lower task starts where a higher waiting task fits beside all that runs and all holds above it;
- ``idle`` (R1, R5): a settled state in which a waiting task fits on a node that no hold of higher rank names;
- ``fault`` (R10): handling a node or a class of tasks raised, and the pass went on without it;
- ``eviction`` (R11): of work that is not lower, may not be evicted, or is evicted already; without a hold, in vain, or
  of one victim too many;
- ``kept`` (R11): a start in room that is being made for a task of higher rank;
- ``once``: a task that starts while it runs, or after its end, or ends twice, or does not end when it should.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from gputask.planner.model import Hold, RequestClass, Task
from gputask.simulate.check_nodes import refusal
from gputask.simulate.check_room import request_fault
from gputask.simulate.check_state import CheckedNode, CheckedTask, Phase, Queue, lives
from gputask.simulate.history import Event, Kind, Pass, Record, Settled
from gputask.simulate.scenario import Millis, NodeVersion, Placement, Scenario


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must not have happened."""

    t: Millis
    rule: str
    task: str | None
    node: str | None
    message: str


class Checker:
    """Sees every record of a history in order; ``violations`` are those found so far."""

    def __init__(self, scenario: Scenario) -> None:
        self.violations: list[Violation] = []
        self._scenario = scenario
        self._tasks = {sim.task.key: CheckedTask(sim) for sim in scenario.tasks}
        versions: dict[str, list[NodeVersion]] = defaultdict(list)
        for version in scenario.nodes:
            versions[version.node.name].append(version)
        self._nodes = {name: CheckedNode(of_node) for name, of_node in versions.items()}
        self._queue = Queue(self._tasks)
        self._paused: dict[str, Millis] = {}
        self._holds: dict[str, list[Hold]] = {}
        self._t: Millis = -1
        self._open: dict[RequestClass, set[str]] = {}
        self._dirty: set[str] = set()
        self._idle: set[tuple[str, str]] = set()
        self._judged: set[tuple[str, float]] = set()
        self._by_uid = {task.sim.task.uid: task for task in self._tasks.values()}

    def see(self, record: Record) -> None:
        """One record. Time never runs backwards."""
        if record.t != self._t:
            self._advance(record.t)
        match record:
            case Event(task=str(key)):
                self._task_event(record, key)
            case Event(node=str(name)):
                self._node_event(record, name)
            case Pass():
                self._pass(record)
            case Settled():
                self._settled()

    def close(self, t: Millis) -> None:
        """The history ends at ``t``: whatever should have ended by then has."""
        self._advance(t)
        for task in self._tasks.values():
            due = task.due()
            if due is not None and due <= t:
                self._blame("once", task, f"should have ended at {due / 1000:g} s")

    def _blame(self, rule: str, task: CheckedTask, message: str, *, node: str | None = None) -> None:
        self.violations.append(Violation(self._t, rule, task.sim.task.key, node or task.node, message))

    def _pass(self, record: Pass) -> None:
        self._holds = defaultdict(list)
        for hold in record.holds:
            self._holds[hold.node].append(hold)
        for fault in record.faults:
            self.violations.append(Violation(self._t, "fault", None, None, fault))

    # --- time and nodes -----------------------------------------------------------------------------

    def _advance(self, t: Millis) -> None:
        before, self._t = self._t, t
        for name in {
            use.node
            for use in self._scenario.foreign
            if before < use.at <= t or (use.until is not None and before < use.until <= t)
        } & self._nodes.keys():
            present = [
                use.foreign
                for use in self._scenario.foreign
                if use.node == name and use.at <= t and (use.until is None or t < use.until)
            ]
            self._nodes[name].set_foreign(present)
            self._dirty.add(name)
        for key in [key for key, until in self._paused.items() if until <= t]:
            del self._paused[key]
            if self._tasks[key].phase is Phase.PAUSED:
                self._wait(self._tasks[key])

    def _node_event(self, event: Event, name: str) -> None:
        if event.kind is Kind.NODE_ADDED:
            self._nodes[name].appear(event.t)
        else:
            self._nodes[name].disappear()
        self._dirty.add(name)

    # --- tasks --------------------------------------------------------------------------------------

    def _task_event(self, event: Event, key: str) -> None:
        task = self._tasks[key]
        match event.kind:
            case Kind.SUBMITTED:
                self._submitted(task)
            case Kind.BOUND if event.place:
                self._bound(task, event.place)
            case Kind.PREEMPTED:
                self._preempted(task, event)
            case Kind.REQUEUED:
                self._requeued(task, event)
            case Kind.FINISHED:
                self._finished(task, event)

    def _submitted(self, task: CheckedTask) -> None:
        if task.phase is not Phase.UNSEEN:
            self._blame("once", task, "submitted twice")
        elif task.sim.running is None:
            self._wait(task)
        else:
            place = task.sim.running
            task.phase, task.node, task.started = Phase.RUNNING, place.node, place.started
            if place.node in self._nodes:
                self._nodes[place.node].put(task.sim.task.key, place.allocation)
                self._dirty.add(place.node)

    def _wait(self, task: CheckedTask) -> None:
        task.phase, task.node = Phase.WAITING, None
        self._queue.add(task.sim.task)

    def _bound(self, task: CheckedTask, place: Placement) -> None:
        node = self._nodes[place.node]
        if task.phase is not Phase.WAITING:
            self._blame("once", task, f"started while {task.phase.name.lower()}", node=place.node)
        self._judge_node(task, place)
        self._judge_order(task.sim.task, place.node)
        task.phase, task.node, task.started = Phase.RUNNING, place.node, self._t
        node.put(task.sim.task.key, place.allocation)
        self._dirty.add(place.node)
        for rule, message in node.faults(place.allocation):
            self._blame(rule, task, message)
        for hold in self._above(task.sim.task, place.node):
            if hold.victims and node.faults_of_hold(hold, self._gone(hold), self._above_hold(hold)):
                self._blame("kept", task, f"takes room that is being made for {hold.task}", node=place.node)

    def _judge_node(self, task: CheckedTask, place: Placement) -> None:
        node = self._nodes[place.node].node
        if node is None:
            self._blame("node", task, "started on a node that is not there", node=place.node)
            return
        request = task.sim.task.request
        variant = request.variants[place.variant_index]
        if why := refusal(node, request.constraints):
            self._blame("node", task, f"started on a node that refuses it: {why}", node=place.node)
        if not lives(node, variant, self._t):
            self._blame("node", task, f"needs the node for {variant.min_time:g} s", node=place.node)
        if fault := request_fault(node, variant, place.allocation):
            self._blame("request", task, fault, node=place.node)

    def _judge_order(self, task: Task, node: str) -> None:
        for higher in self._queue.first_of_each_class():
            if higher.rank < task.rank and self._nodes[node].fits(higher, self._above(higher, node), self._t):
                message = f"{higher.key} is of higher rank and fits there beside all that runs and all holds above it"
                self._blame("inversion", self._tasks[task.key], message, node=node)

    def _above(self, task: Task, node: str) -> tuple[Hold, ...]:
        holds = self._holds.get(node, ())
        return tuple(hold for hold in holds if self._tasks[hold.task].sim.task.rank < task.rank)

    def _requeued(self, task: CheckedTask, event: Event) -> None:
        if task.phase is not Phase.RUNNING:
            self._blame("once", task, f"requeued while {task.phase.name.lower()}")
        elif event.reason == "Preempted" and task.gone != event.t:
            self._blame("once", task, "stopped at another time than its eviction says")
        self._leave(task)
        if event.reason == "Crashed" and task.sim.backoff:
            task.phase = Phase.PAUSED
            self._paused[task.sim.task.key] = event.t + task.sim.backoff
        else:
            self._wait(task)

    def _finished(self, task: CheckedTask, event: Event) -> None:
        if task.phase in {Phase.UNSEEN, Phase.ENDED}:
            self._blame("once", task, f"finished while {task.phase.name.lower()}")
        elif event.reason in {"Succeeded", "DeadlineExceeded"} and task.due() != event.t:
            self._blame("once", task, f"{event.reason} at another time than its own")
        self._leave(task)
        task.phase = Phase.ENDED

    def _leave(self, task: CheckedTask) -> None:
        if task.node is not None and task.node in self._nodes:
            self._nodes[task.node].remove(task.sim.task.key)
            self._dirty.add(task.node)
        task.node = task.gone = None

    # --- evictions ----------------------------------------------------------------------------------

    def _preempted(self, task: CheckedTask, event: Event) -> None:
        for message in self._eviction_faults(task, self._tasks.get(event.reason or "")):
            self._blame("eviction", task, message)
        if task.gone is None:
            task.gone = event.t + task.sim.stops

    def _eviction_faults(self, task: CheckedTask, preemptor: CheckedTask | None) -> Iterator[str]:
        if preemptor is None or preemptor.phase is not Phase.WAITING:
            yield "evicted for a task that does not wait"
            return
        if task.phase is not Phase.RUNNING or task.gone is not None:
            yield "evicted though it does not run, or is evicted already"
        if task.sim.task.priority >= preemptor.sim.task.priority or not preemptor.sim.task.may_preempt:
            yield f"{preemptor.sim.task.key} may not evict it"
        if not task.sim.preemptible or self._t < task.started + task.sim.min_runtime:
            yield "it may not be evicted, or not yet"
        hold = next((h for h in self._holds.get(task.node or "", ()) if h.uid == preemptor.sim.task.uid), None)
        if hold is None or task.sim.task.uid not in hold.victims:
            yield f"no hold of {preemptor.sim.task.key} names it"
        elif (hold.uid, hold.since) not in self._judged:
            self._judged.add((hold.uid, hold.since))
            yield from self._set_faults(hold, preemptor)

    def _set_faults(self, hold: Hold, preemptor: CheckedTask) -> Iterator[str]:
        node, gone, above = self._nodes[hold.node], self._gone(hold), self._above_hold(hold)
        for _, message in node.faults_of_hold(hold, gone, above):
            yield f"in vain, {hold.task} does not fit with its victims gone: {message}"
        variant = preemptor.sim.task.request.variants[hold.variant_index]
        for uid in hold.victims:
            if node.leaves_room(variant, gone - {self._by_uid[uid].sim.task.key}, above):
                yield f"one too many, {hold.task} fits without the eviction of {self._by_uid[uid].sim.task.key}"

    def _gone(self, hold: Hold) -> set[str]:
        """Who is on its way out of a hold's node."""
        leaving = {key for key, task in self._tasks.items() if task.node == hold.node and task.gone is not None}
        return leaving | {self._by_uid[uid].sim.task.key for uid in hold.victims}

    def _above_hold(self, hold: Hold) -> tuple[Hold, ...]:
        return self._above(self._by_uid[hold.uid].sim.task, hold.node)

    # --- settled states -----------------------------------------------------------------------------

    def _settled(self) -> None:
        waiting = list(self._queue.first_of_each_class())
        # What fits is kept by class and renewed for the nodes that changed; a class that nobody waits in is forgotten.
        known, self._open = self._open, {}
        for task in waiting:
            names = known.get(task.request)
            changed = self._nodes.keys() if names is None else self._dirty
            fitting = {name for name in changed if self._nodes[name].fits(task, (), -1)}
            self._open[task.request] = ((names or set()) - self._dirty) | fitting
        self._dirty.clear()
        for task in waiting:
            for name in self._open[task.request]:
                self._judge_idle(task, name)

    def _judge_idle(self, task: Task, name: str) -> None:
        if self._above(task, name) or (task.key, name) in self._idle:
            return
        if self._nodes[name].fits(task, (), self._t):
            self._idle.add((task.key, name))
            self._blame(
                "idle", self._tasks[task.key], "waits, though it fits there and no hold of higher rank", node=name
            )
