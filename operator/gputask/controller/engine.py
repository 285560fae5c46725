"""Everything that runs while the operator is up, wired together.

The store is fed, each change marks what has to be looked at again, and three consumers look: the scheduling loop, the
work queues (tasks: recovery sweeps; nodes: their GpuNodes), and the statuses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from gputask.api.conditions import ReservedReason
from gputask.api.times import rfc3339
from gputask.controller.agents import Agents
from gputask.controller.backoff import Backoff, Refusal
from gputask.controller.contact import Contact
from gputask.controller.dispatch import Dispatch
from gputask.controller.drains import Drains
from gputask.controller.events import Events
from gputask.controller.evictions import Evictions
from gputask.controller.expiry import Expiry
from gputask.controller.feeds import Feeds
from gputask.controller.gpunodes import GpuNodes
from gputask.controller.leases import LeaseTerms, lease_status
from gputask.controller.lifecycle import End, attempt_end, end_status
from gputask.controller.loop import SchedulingLoop
from gputask.controller.metrics import Metrics
from gputask.controller.placements import Placements
from gputask.controller.queue import Standing, TaskQueue
from gputask.controller.queue_limit import QueueLimit
from gputask.controller.snapshot import Snapshots
from gputask.controller.startup import StartTimeouts
from gputask.controller.status import View
from gputask.controller.statuses import Statuses
from gputask.controller.store import Store
from gputask.controller.strangers import Strangers
from gputask.controller.verdicts import Verdicts
from gputask.controller.workqueue import WorkQueue
from gputask.kube.client import Client, Object
from gputask.kube.errors import KubeError
from gputask.kube.writes import Writes
from gputask.ledger.admission import Admission
from gputask.ledger.binding import Binder
from gputask.ledger.claims import Claims, claim_of
from gputask.ledger.entries import Entry, State
from gputask.ledger.leases import Leases
from gputask.ledger.nodes import NodeLedgers
from gputask.ledger.pods import Manifest, is_terminating, uid_of
from gputask.ledger.rebuild import Rebuilder
from gputask.ledger.recovery import Recovery
from gputask.ledger.release import Releaser
from gputask.planner.plan import plan

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
FRESH_SECONDS = 1.0
"""Lists that are older than this when we begin to act are made anew (protocol line 18)."""
TICK_SECONDS = 5.0
"""How often reservations are looked at that time alone has made old."""


Elect = Callable[[Callable[[], Coroutine[Any, Any, None]]], Coroutine[Any, Any, None]]
"""Awaits the function that it is given whenever we lead, and cancels that when we do not."""


class Engine:
    """One operator on one cluster."""

    def __init__(self, client: Client, *, metrics: Metrics, max_waiting: int | None = None) -> None:
        """``max_waiting``: so many tasks may wait; None is no limit."""
        self.metrics = metrics
        self.store = Store()
        self.warm = asyncio.Event()
        """What there is is known; we may act at any time."""
        self.synced = asyncio.Event()
        """The ledgers are rebuilt and decisions are made (protocol line 18)."""
        self._fresh = 0.0
        self._dirty = self.store.subscribe()
        self._entries: dict[str, Mapping[str, Entry]] = {}
        self._wire_protocol(client)
        self._wire_decisions(max_waiting)
        self._wire_consumers(client)

    def _wire_protocol(self, client: Client) -> None:
        self.writes = Writes(client)
        self.ledgers = NodeLedgers(
            client=client,
            writes=self.writes,
            on_change=self._ledger_changed,
            foreign=lambda node: self.snapshots.foreign_use(node),
        )
        self.claims = Claims(client=client, writes=self.writes)
        self.contact = Contact(
            store=self.store, ledgers=self.ledgers, sweep=lambda uid: self._sweeps.add(uid), clock=time.monotonic
        )
        self.releaser = Releaser(
            client=client,
            writes=self.writes,
            ledgers=self.ledgers,
            last_words=self.store.last_words,
            in_contact=self.contact.is_kept,
        )
        self.binder = Binder(
            writes=self.writes,
            ledgers=self.ledgers,
            claims=self.claims,
            releaser=self.releaser,
            on_end=self._on_end,
            now=time.time,
        )
        self.leases = Leases(
            claims=self.claims,
            ledgers=self.ledgers,
            status=lambda task, why: lease_status(task, why, now=time.time()),
            now=time.time,
        )
        self.admission = Admission(
            client=client,
            writes=self.writes,
            claims=self.claims,
            releaser=self.releaser,
            binder=self.binder,
            leases=self.leases,
        )
        self.recovery = Recovery(
            writes=self.writes,
            ledgers=self.ledgers,
            claims=self.claims,
            releaser=self.releaser,
            admission=self.admission,
            leases=self.leases,
            cache=self.store,
            in_contact=self.contact.is_kept,
            on_end=self._on_end,
            now=time.time,
        )

    def _wire_decisions(self, max_waiting: int | None) -> None:
        self.backoff = Backoff(time.monotonic)
        self.queue = TaskQueue(
            self.store,
            self.backoff,
            limit=QueueLimit(max_waiting, lambda uid: self._dirty.mark(task=uid)),
            in_progress=self.admission.busy,
            on_read=self._mark_nodes_of,
        )
        self.verdicts = Verdicts()
        self.events = Events(self.writes, clock=time.monotonic, timestamp=timestamp)
        self.evictions = Evictions(
            store=self.store,
            queue=self.queue,
            ledgers=self.ledgers,
            writes=self.writes,
            backoff=self.backoff,
            events=self.events,
            metrics=self.metrics,
            now=time.time,
            clock=time.monotonic,
            changed=lambda task, node: self._dirty.mark(task=task, node=node),
        )
        self.agents = Agents(
            clock=time.monotonic, changed=lambda node: self._dirty.mark(node=node), metrics=self.metrics
        )
        self.snapshots = Snapshots(
            store=self.store,
            queue=self.queue,
            ledgers=self.ledgers,
            assumed=self.admission.assumed,
            evictions=self.evictions,
            agents=self.agents,
            now=time.time,
        )
        self.placements = Placements(
            store=self.store,
            admission=self.admission,
            ledgers=self.ledgers,
            backoff=self.backoff,
            events=self.events,
            metrics=self.metrics,
            clock=time.monotonic,
            changed=lambda task, node: self._dirty.mark(task=task, node=node),
        )

    def _wire_consumers(self, client: Client) -> None:
        self.gpunodes = GpuNodes(
            store=self.store,
            ledgers=self.ledgers,
            writes=self.writes,
            rebuilder=Rebuilder(
                client=client,
                writes=self.writes,
                ledgers=self.ledgers,
                claims=self.claims,
                leases=self.leases,
                cache=self.store,
                now=time.time,
            ),
            events=self.events,
            timestamp=timestamp,
        )
        self.statuses = Statuses(
            store=self.store, writes=self.writes, view=self.view, timestamp=timestamp, metrics=self.metrics
        )
        self.startup = StartTimeouts(
            store=self.store,
            queue=self.queue,
            ledgers=self.ledgers,
            writes=self.writes,
            events=self.events,
            metrics=self.metrics,
            now=time.time,
        )
        self.expiry = Expiry(store=self.store, writes=self.writes, now=time.time, metrics=self.metrics)
        self.drains = Drains(store=self.store, writes=self.writes, metrics=self.metrics)
        self.strangers = Strangers(
            store=self.store, ledgers=self.ledgers, claims=self.claims, events=self.events, metrics=self.metrics
        )
        self.lease_terms = LeaseTerms(
            store=self.store, ledgers=self.ledgers, claims=self.claims, events=self.events, metrics=self.metrics
        )
        self._sweeps = WorkQueue("sweep", self.recovery.sweep, metrics=self.metrics)
        self._nodes = WorkQueue("node", self.gpunodes.reconcile, metrics=self.metrics)
        self.dispatch = Dispatch(
            dirty=self._dirty,
            snapshots=self.snapshots,
            backoff=self.backoff,
            on_task=(
                self.statuses.look,
                self._sweeps.add,
                self.expiry.look,
                self.evictions.look,
                self.startup.look,
                self.drains.look,
                self.lease_terms.look,
            ),
            on_node=(self._nodes.add, self.contact.look, self.strangers.look),
            metrics=self.metrics,
        )
        self.loop = SchedulingLoop(
            dispatch=self.dispatch,
            snapshots=self.snapshots,
            verdicts=self.verdicts,
            planner=lambda snapshot, now, budget, decided: plan(snapshot, now, budget=budget, decided=decided),
            start=self.placements.start,
            evictions=self.evictions,
            tell=self.statuses.look,
            now=time.time,
            metrics=self.metrics,
        )
        self.feeds = Feeds(
            client,
            store=self.store,
            ledgers=self.ledgers,
            agents=self.agents,
            on_node=self.contact.see,
            on_budget=self.dispatch.changed.set,
        )

    # --- running --------------------------------------------------------------------------------------

    async def run(self, elect: Elect) -> None:
        """Until cancelled. A standby is warm, it knows what there is, and silent: it writes nothing.

        :param elect: decides when we act.
        """
        async with asyncio.TaskGroup() as group:
            await self.feeds.start(group)
            self._fresh = time.monotonic()
            group.create_task(self.dispatch.run(), name="Dispatch")
            self.warm.set()
            await elect(self._act)

    async def _act(self) -> None:
        """Nothing is decided before the ledgers are rebuilt (protocol line 18)."""
        parts = (
            self._sweeps,
            self._nodes,
            self.statuses,
            self.events,
            self.expiry,
            self.evictions,
            self.startup,
            self.drains,
            self.strangers,
            self.lease_terms,
            self.loop,
        )
        self.metrics.leader.set(1)
        try:
            await self._rebuild()
            await self.loop.once()  # first of all: whoever waits for room does not wait for all that follows
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(part.run(), name=type(part).__name__)
                group.create_task(self.dispatch.tell(), name="tell")
                group.create_task(self._tick())
                self.synced.set()
        finally:
            self.synced.clear()
            self.metrics.leader.set(0)
            await self.admission.close()
            await self.ledgers.close()
            self.loop.forget()
            self.evictions.forget()

    async def _rebuild(self) -> None:
        """The ledgers of all nodes, and then what a predecessor left half done (protocol line 18)."""
        while True:
            try:
                if time.monotonic() - self._fresh > FRESH_SECONDS:
                    await self.feeds.refresh()
                    self._fresh = time.monotonic()
                await self.gpunodes.start()
                await self.recovery.sweep_all()
            except KubeError as error:
                log.warning("the ledgers are not rebuilt yet: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _tick(self) -> None:
        """Reservations in flight that nobody carries on, because time alone makes no event (line 11)."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.time()
            for node, entries in self._entries.items():
                for entry in entries.values():
                    if entry.expires_at is not None and entry.expires_at < now:
                        self._sweeps.add(entry.task_uid)
                    pod = self.store.pods.get(entry.pod_uid)
                    if pod is not None and is_terminating(pod):
                        self._dirty.mark(node=node)  # it may be overdue by now

    # --- what is known, put together ------------------------------------------------------------------

    def view(self, uid: str) -> View | None:
        """What a status has to tell; None while the ledger is the one that writes it, or there is nothing to tell."""
        task, known = self.store.tasks.get(uid), self.queue.known.get(uid)
        if task is None or known is None:
            return None
        claim = claim_of(task)
        # The entry of a lease is released after the end of its claim.
        entries = self.ledgers.entries_of(uid) if claim is not None and claim.live else ()
        entry = next((e for e in entries if claim is not None and e.pod_uid == claim.pod_uid), None)
        if entry is not None and entry.state is State.QUARANTINED:
            entry = None  # the task has gone on without it, or its end is being recorded
        if known.standing is Standing.LIVE and entry is None:
            return None  # before the reservation, or after its release: the end is being recorded
        return View(
            task=task,
            known=known,
            verdict=self.verdicts.get(uid),
            entry=entry,
            pod=self.store.pods.get(entry.pod_uid) if entry is not None else None,
            refusal=self.backoff.refusal(uid),
            refused_on=self.backoff.refusals(uid),
            room=self.evictions.told(uid),
            preemptor=self.evictions.preemptor_of(entry.pod_uid) if entry is not None else None,
        )

    def _mark_nodes_of(self, uid: str) -> None:
        for entry in self.ledgers.entries_of(uid):
            self._dirty.mark(node=entry.node)

    def _ledger_changed(self, node: str, gpunode: Object | None) -> None:
        known = self.ledgers.known(node)
        before = self._entries.get(node, {})
        after = self._entries[node] = known.entries if known is not None else {}
        for pod_uid in before.keys() | after.keys():
            old, new = before.get(pod_uid), after.get(pod_uid)
            if old == new:
                continue
            if old is not None:
                self.metrics.reservations.labels(old.state.value).dec()
                self._dirty.mark(task=old.task_uid)
            if new is not None:
                self.metrics.reservations.labels(new.state.value).inc()
                self._dirty.mark(task=new.task_uid)
        if before.keys() - after.keys():
            for uid in self.backoff.released_on(node):
                self._dirty.mark(task=uid)
        if gpunode is not None:
            self.store.put_gpunode(gpunode)
        elif node in self.store.gpunodes:
            self.store.drop_gpunode(self.store.gpunodes[node])

    def _on_end(self, task: Manifest, pod: Manifest | None, refusal: str | None) -> Mapping[str, Any]:
        """The status of a task whose claimed pod is proven dead; the ledger writes it (protocol line 12)."""
        ended = attempt_end(task, pod, refusal)
        claim = claim_of(task)
        if ended.end is End.REFUSED and claim is not None:
            because = Refusal(ReservedReason.BACK_OFF, ended.message)
            self.backoff.refuse_on(uid_of(task), claim.literals.node, because)
        if pod is not None:
            self.events.emit(task, ended.end.value, ended.message, warning=ended.end is not End.SUCCEEDED)
        preemptor = self.evictions.preemptor_of(claim.pod_uid) if claim is not None else None
        return end_status(task, ended, now=time.time(), preemptor=preemptor)


def timestamp() -> str:
    """Now, as conditions and Events carry it."""
    return rfc3339(int(time.time()))
