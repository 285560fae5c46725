"""Leases by the clock: who has not renewed in time loses them, and what their status says of it.

The clock is this leader's own monotonic one. ``spec.lease.renewTime`` is compared with its last value only, never
with a clock. A deadline is set when a lease is first seen held by this leader, and anew with each renewal that is seen;
so every restart, and every new leader, gives all holders a whole TTL.

Before a lease is quarantined the task is read live: a renewal stored before the deadline counts, however late its
watch event is. If that read fails, nobody could have renewed either, and the TTL begins anew. The quarantined entry is
the fact; the end (LeaseExpired) follows from it, by the sweep, whoever does it (:mod:`gputask.ledger.leases`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gputask.api.conditions import BoundReason, FinishedReason, Phase, RenewedReason, ReservedReason, TaskCondition
from gputask.api.gputask import Lease
from gputask.api.times import rfc3339
from gputask.controller.conditions import Condition, merged
from gputask.controller.events import Events
from gputask.controller.metrics import Metrics
from gputask.controller.store import Store
from gputask.controller.transitions import Event, phase_after
from gputask.controller.workqueue import WorkQueue
from gputask.kube.errors import KubeError
from gputask.ledger.changes import Quarantine
from gputask.ledger.claims import Claims, claim_of, why_not_wanted
from gputask.ledger.entries import Entry, State
from gputask.ledger.nodes import Applied, NodeLedgers
from gputask.ledger.pods import Manifest

POLL_SECONDS = 0.2
"""How exactly a deadline is kept; a look at one number for each lease."""


@dataclass(frozen=True, slots=True)
class _Term:
    """What a deadline was set for: another grant, or another renewal, sets it anew."""

    grant: str
    renew_time: str | None
    ttl: float


class LeaseTerms:
    """The deadlines of all held leases, on ``clock`` (seconds, monotonic)."""

    def __init__(self, *, store: Store, ledgers: NodeLedgers, claims: Claims, events: Events, metrics: Metrics) -> None:
        self.clock: Callable[[], float] = time.monotonic
        self._store = store
        self._ledgers = ledgers
        self._claims = claims
        self._events = events
        self._work = WorkQueue("lease", self._expire, metrics=metrics, workers=2)
        self._terms: dict[str, tuple[_Term, float]] = {}
        """By task UID, with the deadline."""

    def look(self, uid: str) -> None:
        """This task may hold a lease now, or may have renewed it; never waits."""
        task = self._store.tasks.get(uid)
        if task is None or self._held(task, uid) is None:
            self._terms.pop(uid, None)
            return
        term = _term(task)
        if uid not in self._terms or self._terms[uid][0] != term:
            self._terms[uid] = term, self.clock() + term.ttl

    async def run(self) -> None:
        """Judge until cancelled. Whoever begins to act gives every holder a whole TTL."""
        self._terms.clear()
        for uid in self._ledgers.task_uids():
            self.look(uid)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work.run())
            group.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            now = self.clock()
            for uid, (_, deadline) in self._terms.items():
                if deadline <= now:
                    self._work.add(uid)

    async def _expire(self, uid: str) -> None:
        """:raises KubeError: to be tried again."""
        task, known = self._store.tasks.get(uid), self._terms.get(uid)
        entry = self._held(task, uid) if task is not None else None
        if task is None or entry is None or known is None or known[1] > self.clock():
            return
        term = known[0]
        try:
            live = await self._claims.live(task)
        except KubeError:
            self._terms[uid] = term, self.clock() + term.ttl
            raise
        if live is None or why_not_wanted(live) or _term(live) != term:
            # Given back, which is the sweep's, or renewed in time, which the store learns in a moment.
            self._terms[uid] = term if live is None else _term(live), self.clock() + term.ttl
            return
        result = await self._ledgers.apply(entry.node, Quarantine(entry.pod_uid, entry.pod_version))
        self._terms.pop(uid, None)
        if isinstance(result, Applied) and entry.pod_uid in result.ledger.entries:
            self._events.emit(task, FinishedReason.LEASE_EXPIRED.value, _why_expired(task), warning=True)

    def _held(self, task: Manifest, uid: str) -> Entry | None:
        """The entry of a lease that may expire."""
        claim = claim_of(task)
        if claim is None or not claim.is_lease or not claim.live or why_not_wanted(task):
            return None
        entries = (e for e in self._ledgers.entries_of(uid) if e.pod_uid == claim.pod_uid)
        return next((e for e in entries if e.state is State.BOUND), None)


def _term(task: Manifest) -> _Term:
    lease, claim = task["spec"].get("lease") or {}, claim_of(task)
    grant = claim.pod_uid if claim is not None else ""
    return _Term(grant, lease.get("renewTime"), float(lease.get("ttlSeconds", Lease().ttl_seconds)))


# --- what the status says ---------------------------------------------------------------------------


def lease_status(task: Manifest, why: str | None, *, now: float) -> Mapping[str, Any]:
    """The status (a merge patch, without the claim) of a lease that has ended: ``why`` it waits again, or None if it
    has expired. ``now`` is seconds since the epoch."""
    status = task.get("status") or {}
    if status.get("phase") in (Phase.SUCCEEDED, Phase.FAILED):
        return {}  # an end is final
    event, fields = Event.TRIED, dict[str, Any]()
    found = [Condition(TaskCondition.BOUND, False, BoundReason.NOT_BOUND)]
    if why is not None:
        found.append(Condition(TaskCondition.RESERVED, False, ReservedReason.RELEASED, why))
    else:
        # What is renewed after this very version is renewed too late.
        generation = task["metadata"].get("generation")
        event, fields = Event.GAVE_UP, {"finishTime": rfc3339(int(now)), "observedGeneration": generation}
        found.append(Condition(TaskCondition.FINISHED, True, FinishedReason.LEASE_EXPIRED, _why_expired(task)))
    phase = phase_after(status.get("phase"), event).value
    conditions = merged(status.get("conditions") or [], found, now=rfc3339(int(now)))
    return {"phase": phase, "conditions": conditions, **fields}


def late_renewal(task: Manifest, *, now: str) -> dict[str, Any]:
    """The merge patch that refuses what was written into the spec of an expired lease; empty if there is none."""
    status, generation = task.get("status") or {}, task["metadata"].get("generation")
    expired = any(c["reason"] == FinishedReason.LEASE_EXPIRED for c in status.get("conditions") or ())
    if not expired or generation == status.get("observedGeneration"):
        return {}
    text = "the lease had expired before: no renewal brings it back; delete the GpuTask, and claim another"
    refused = Condition(TaskCondition.RENEWED, False, RenewedReason.LEASE_EXPIRED, text)
    return {"observedGeneration": generation, "conditions": merged(status["conditions"], [refused], now=now)}


def _why_expired(task: Manifest) -> str:
    claim = claim_of(task)
    assert claim is not None, "only what was claimed expires"
    held = ", ".join(claim.literals.allocation.devices) or "its room"
    ttl = _term(task).ttl
    return f"not renewed for {ttl:g} s; {held} on {claim.literals.node} is quarantined until the GpuTask is deleted"
