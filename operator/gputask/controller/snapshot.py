"""From the store and the ledgers to the frozen input of a pass. Kept from pass to pass; only what changed is redone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gputask.api.times import epoch
from gputask.controller.agents import Agents
from gputask.controller.evictions import Evictions
from gputask.controller.queue import TaskQueue
from gputask.controller.store import Store
from gputask.ledger.assume import Assumed
from gputask.ledger.claims import claim_of
from gputask.ledger.entries import Entry, NodeLedger, State
from gputask.ledger.nodes import NodeLedgers
from gputask.ledger.pods import Manifest, is_terminal, is_terminating, literals_of, task_uid_of, uid_of, version_of
from gputask.planner.model import Foreign, Hold, Node, Rank, Running, Snapshot
from gputask.translate.nodes import planner_node
from gputask.translate.pods import foreign

OVERDUE_SECONDS = 30.0
"""How long after its grace a stopped pod is still expected to go."""

DEFAULT_GRACE_SECONDS = 30
"""Kubernetes' own default of terminationGracePeriodSeconds."""


class Snapshots:
    """The planner's view of the cluster."""

    def __init__(
        self,
        *,
        store: Store,
        queue: TaskQueue,
        ledgers: NodeLedgers,
        assumed: Assumed,
        evictions: Evictions,
        agents: Agents,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self.queue = queue
        self._ledgers = ledgers
        self._assumed = assumed
        self._evictions = evictions
        self._agents = agents
        self._now = now
        self.nodes: dict[str, Node] = {}
        self._foreign: dict[str, dict[str, tuple[str, Foreign | None]]] = {}
        """By node and pod UID, with the version of the pod."""
        self._committed: tuple[Hold, ...] = ()
        self._freed = False

    def freeze(self, holds: tuple[Hold, ...], resume: Rank | None) -> Snapshot:
        """The input of a pass; ``holds`` and ``resume`` are those of the pass before.

        Where room may have come free since then, this pass starts from the top: a task that the last one judged may
        want it.
        """
        uncommitted = (hold for hold in holds if not hold.victims)
        before, self._committed = self._committed, self._evictions.holds()
        freed = self._freed or any(hold not in self._committed for hold in before)
        self._freed = False
        return Snapshot(
            tuple(self.nodes.values()),
            tuple(self.queue.waiting.values()),
            (*uncommitted, *self._committed),
            {budget.key: budget.allowed for known in self._store.budgets.values() for budget in known.values()},
            None if freed else resume,
        )

    def foreign_use(self, node: str) -> Mapping[str, int]:
        """What others than our tasks use on a node, in units by flat key: for the ledger's own check."""
        used: Counter[str] = Counter()
        ledger = self._ledgers.known(node)
        for use in self._foreign_on(node, ledger):
            used.update(dict(use.amounts))
        return used

    def refresh_node(self, name: str) -> bool:
        """Look at one node again.

        :returns: whether what the planner sees of it changed.
        """
        manifest = self._store.nodes.get(name)
        if manifest is None:
            self._foreign.pop(name, None)
            return self.nodes.pop(name, None) is not None
        ledger = self._ledgers.known(name)
        node = planner_node(
            manifest,
            resources=ledger.resources if ledger is not None else None,
            running=tuple(self._running_on(name, ledger)),
            foreign=tuple(self._foreign_on(name, ledger)),
            out=self._out(manifest, ledger),
        )
        before = self.nodes.get(name)
        if before == node:
            return False
        self._freed = self._freed or before is None or _has_less_work(before, node)
        self.nodes[name] = node
        return True

    def forget_node(self, name: str) -> None:
        """Show the planner nothing of this node."""
        self.nodes.pop(name, None)

    # --- one node -------------------------------------------------------------------------------------

    def _running_on(self, name: str, ledger: NodeLedger | None) -> Iterator[Running]:
        entries = ledger.entries.values() if ledger is not None else ()
        booked = set()
        for entry in entries:
            if entry.state is not State.QUARANTINED:
                booked.add(entry.task_uid)
            yield self._work_of(entry)
        for assumption in self._assumed.on(name):
            if assumption.task_uid not in booked:  # between the write of the entry and the forget, both are there
                known = self.queue.known.get(assumption.task_uid)
                key = known.reading.planned.key if known is not None and known.reading.planned is not None else ""
                yield Running(key, assumption.task_uid, self._priority(assumption.task_uid), assumption.allocation)

    def _foreign_on(self, name: str, ledger: NodeLedger | None) -> Iterator[Foreign]:
        entries = ledger.entries if ledger is not None else {}
        before, after = self._foreign.get(name, {}), {}
        for pod in self._store.pods_on(name):
            uid = uid_of(pod)
            if uid in entries:
                continue
            kept, version = before.get(uid), version_of(pod)
            after[uid] = kept if kept is not None and kept[0] == version else (version, foreign(pod))
        self._foreign[name] = after
        return (use for _, use in after.values() if use is not None)

    def _out(self, manifest: Manifest, ledger: NodeLedger | None) -> str | None:
        """Why nothing may be admitted here at all, besides what the Node itself says (protocol lines 17 and 19)."""
        if manifest["metadata"].get("deletionTimestamp"):
            return "the node is being deleted"
        if ledger is None or not ledger.rebuilt or ledger.rebuilt != uid_of(manifest):
            return "its ledger is not rebuilt yet"
        if ledger.overbooked:
            return "Overbooked: two live owners of one unit; nothing is admitted until one is gone"
        for pod in self._store.pods_on(ledger.name):
            if uid_of(pod) not in ledger.entries and self._has_to_be_booked(pod):
                return f"pod {pod['metadata']['name']} of ours is not booked yet"
        return self._agents.why_out(ledger.name)

    def _has_to_be_booked(self, pod: Manifest) -> bool:
        """Whether this is a live owner by the recovery table, and no stranger that only names a task of ours (B67)."""
        owner = task_uid_of(pod)
        if owner is None or not pod["spec"].get("nodeName") or is_terminal(pod) or literals_of(pod) is None:
            return False
        task = self._store.task(owner)
        claim = claim_of(task) if task is not None else None
        return task is None or (claim is not None and claim.pod_uid == uid_of(pod))

    # --- of the task behind an entry ------------------------------------------------------------------

    def _work_of(self, entry: Entry) -> Running:
        """What holds an entry, and whether others may evict it: ours, bound, known, and not refused just now."""
        known, pod = self.queue.known.get(entry.task_uid), self._store.pods.get(entry.pod_uid)
        terms = known.reading.terms if known is not None else None
        planned = known.reading.planned if known is not None else None
        budgets = self._store.budgets_of(pod) if pod is not None else ()
        leaves, ends = self._leaves(pod)
        evictable = pod is not None and terms is not None and terms.preemptible and entry.state is State.BOUND
        # Under two budgets every eviction is an error.
        evictable = evictable and len(budgets) < 2 and not self._evictions.is_refused(entry.pod_uid)
        least = terms.min_runtime_seconds if terms is not None else 0
        return Running(
            task=entry.task,
            uid=entry.pod_uid,
            priority=planned.priority if planned is not None else 0,
            allocation=entry.allocation,
            ends=ends if ends is not None else self._ends(entry),
            created=planned.created if planned is not None else 0.0,
            started=entry.start_time,
            preemptible=evictable and ends is None,
            protected_until=entry.start_time + least if least and entry.start_time is not None else None,
            leaving=leaves,
            budgets=budgets,
        )

    def _leaves(self, pod: Manifest | None) -> tuple[bool, float | None]:
        """Whether it is on its way out, and when its grace is over. One that should have been gone by now is nobody's
        hope: it neither leaves nor can it be evicted."""
        if pod is None or not is_terminating(pod):
            return False, None
        gone = epoch(pod["metadata"]["deletionTimestamp"])
        return gone + OVERDUE_SECONDS > self._now(), gone

    def _priority(self, task_uid: str) -> int:
        known = self.queue.known.get(task_uid)
        return known.reading.planned.priority if known is not None and known.reading.planned is not None else 0

    def _ends(self, entry: Entry) -> float | None:
        """When its time limit and the grace after it guarantee the room back; epoch seconds."""
        pod = self._store.pods.get(entry.pod_uid)
        if pod is None or entry.start_time is None or pod["spec"].get("activeDeadlineSeconds") is None:
            return None
        grace = pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
        return entry.start_time + float(pod["spec"]["activeDeadlineSeconds"]) + float(grace)


def _has_less_work(before: Node, after: Node) -> bool:
    """Whether anything but more work came to a node: then there may be room on it that was not there before.

    Work is compared by task and what it holds, as its other marks change in the course of its placement.
    """
    if replace(before, running=(), foreign=()) != replace(after, running=(), foreign=()):
        return True
    kept = {work.task: work.allocation for work in after.running}
    used = {use.owner: use.amounts for use in after.foreign}
    return any(kept.get(work.task) != work.allocation for work in before.running) or any(
        used.get(use.owner) != use.amounts for use in before.foreign
    )
