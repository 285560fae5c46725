"""Leases: reservations for work outside the cluster's pods (protocol line 20).

There is no pod, so nothing is created, bound or fenced. In the pod's place stands a *grant*: a UID that whoever
claims mints for this one attempt, as the API server mints the UID of a pod. The claim names it (line 3), and only a
claimed grant is reserved (lines 4 and 5). A grant is proven dead if a live GET shows its task gone, or a claim that has
ended or names another; that stays true for ever. So its end is a write of the claim, and its entry is released after
that: in between the room is nobody's, and never two's. What its holder was *told* (phase Bound) is written under the
version of the task that holds the claim, so no late write can tell it of a grant that has ended.

=================  =========================================  ===============================
where it can end   because                                    what is done
=================  =========================================  ===============================
before the claim   killed                                     nothing is held
claim              task gone, deleted, finished or suspended  nothing is held
claim              another grant was claimed (two leaders)    nothing of ours is held
claim              the reply is lost                          read again: ours or another
after the claim    killed                                     the sweep reserves
reserve            no room at the ledger's version            claim ended; planned again
reserve            the reply is lost, no answer in the end    the sweep reserves, or sees it
reserve            late, by a leader of long ago              dead grant: the sweep releases
after reserve      killed                                     the status follows the entry
held               the task is deleted                        release
held               suspended, or deleted with a finalizer     end, release; it waits again
between those two  killed                                     dead grant: the sweep releases
held               not renewed in time                        quarantine, end LeaseExpired
between those two  killed; deleted, suspended, renewed        the end follows the entry
expired            the task is deleted                        release: the quarantine ends
claimed, not told  the GpuNode is lost                        claim ended; planned again
held or expired    the GpuNode is lost                        booked by the rebuild (line 17)
=================  =========================================  ===============================
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from gputask.api.conditions import Phase
from gputask.ledger.changes import Book, Release, Reserve
from gputask.ledger.claims import Claim, Claims, ClaimState, Loss, Won, claim_of, rank_of, why_not_wanted
from gputask.ledger.classify import Action
from gputask.ledger.entries import Entry, State
from gputask.ledger.nodes import Applied, NodeLedgers
from gputask.ledger.outcome import Kind, Outcome
from gputask.ledger.pods import Literals, Manifest, uid_of

LeaseStatus = Callable[[Manifest, str | None], Mapping[str, Any]]
"""What the status of a lease says at its end: why it waits again, or None if it has expired."""


def classify_lease(task: Manifest | None, grant: str, entry: Entry | None) -> Action:
    """The row of the table for a grant; ``entry`` is that of its node's ledger, if there is one."""
    claim = claim_of(task) if task is not None else None
    if task is None or claim is None or claim.pod_uid != grant or not claim.live:
        return Action.RELEASE if entry is not None else Action.NOTHING
    if claim.state is ClaimState.QUARANTINED:
        return Action.NOTHING
    if (entry is not None and entry.state is State.QUARANTINED) or why_not_wanted(task):
        return Action.END
    if entry is not None:
        return Action.NOTHING
    # What its holder was told is booked even where it does not fit by now (line 19); the ledger was lost.
    return Action.BOOK if was_told(task) else Action.RESUME


def was_told(task: Manifest) -> bool:
    """Whether the status of this version tells the holder that the lease is his."""
    return (task.get("status") or {}).get("phase") == Phase.BOUND


def lease_entry(task: Manifest, claim: Claim, *, now: float) -> Entry:
    """The entry of a claimed grant. There is nothing to bind, so it is Bound at once. ``now`` is in epoch seconds."""
    return Entry(
        task=f"{task['metadata']['namespace']}/{task['metadata']['name']}",
        task_uid=uid_of(task),
        pod=claim.pod,
        pod_uid=claim.pod_uid,
        pod_version="",
        attempt=claim.attempt,
        node=claim.literals.node,
        variant=claim.literals.variant,
        variant_index=claim.literals.variant_index,
        allocation=claim.literals.allocation,
        state=State.QUARANTINED if claim.state is ClaimState.QUARANTINED else State.BOUND,
        start_time=now,
    )


class Leases:
    """Grants leases and ends them. ``now`` is seconds since the epoch. Every method raises
    :class:`gputask.kube.errors.KubeError` where there was no clear answer; the sweep goes on from what is stored."""

    def __init__(self, *, claims: Claims, ledgers: NodeLedgers, status: LeaseStatus, now: Callable[[], float]) -> None:
        self._claims = claims
        self._ledgers = ledgers
        self._status = status
        self._now = now

    async def admit(self, task: Manifest, attempt: int, literals: Literals, *, reserved: Callable[[], None]) -> Outcome:
        """Lines 3 to 5; ``reserved`` is called as soon as the ledger has the entry."""
        claim = Claim(attempt, "", str(uuid.uuid4()), literals)
        won = await self._claims.claim(task, claim)
        if isinstance(won, Loss):
            return Outcome(Kind.CLAIM_LOST if won is Loss.OTHER else Kind.TASK_GONE, won.value)
        return await self.resume(won.task, claim, reserved=reserved)

    async def resume(self, task: Manifest, claim: Claim, *, reserved: Callable[[], None]) -> Outcome:
        """Line 5, for a grant that is claimed."""
        entry = lease_entry(task, claim, now=self._now())
        result = await self._ledgers.apply(entry.node, Reserve(entry, rank_of(task)))
        if isinstance(result, Applied):
            reserved()
            return Outcome(Kind.BOUND, f"held on {entry.node}")
        # Another leader may have reserved it meanwhile, and told its holder; then the sweep sees the entry.
        ended = await self._end_untold(task, claim, result.reason)
        return Outcome(Kind.UNKNOWN if ended is Loss.HELD else Kind.NO_ROOM, result.reason)

    async def after_loss(self, task: Manifest, claim: Claim) -> Entry | None:
        """The entry of a grant whose ledger was lost (line 17); None if it ends with it. What its holder was told, and
        what is quarantined, is booked. Any other claim is ended, which fences who would still tell its holder."""
        if not claim.live:
            return None
        ended: Won | Loss = Loss.HELD
        if claim.state is ClaimState.CLAIMED and not was_told(task):
            ended = await self._end_untold(task, claim, f"the ledger of {claim.literals.node} was lost")
        return lease_entry(task, claim, now=self._now()) if ended is Loss.HELD else None

    async def _end_untold(self, task: Manifest, claim: Claim, why: str) -> Won | Loss:
        return await self._claims.end(
            task,
            claim.pod_uid,
            status=lambda version: self._status(version, why),
            unless=lambda version: Loss.HELD if was_told(version) else None,
        )

    async def recover(self, action: Action, task: Manifest | None, grant: str, node: str, entry: Entry | None) -> None:
        """What the table says, after live reads; ``grant`` was seen on ``node``."""
        claim = claim_of(task) if task is not None else None
        if action is Action.RELEASE and entry is not None:
            await self._ledgers.apply(node, Release(grant, entry.pod_version, quarantined=True))
        elif action is Action.BOOK and task is not None and claim is not None:
            await self._ledgers.apply(node, Book(lease_entry(task, claim, now=self._now())))
        elif action is Action.END and task is not None:
            if entry is not None and entry.state is State.QUARANTINED:
                await self._claims.end(
                    task, grant, status=lambda version: self._status(version, None), state=ClaimState.QUARANTINED
                )
                return
            await self._claims.end(
                task,
                grant,
                status=lambda version: self._status(version, str(why_not_wanted(version))),
                unless=lambda version: None if why_not_wanted(version) else Loss.WANTED,
            )
