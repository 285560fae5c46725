"""Reserve, bind, and everything that can come between (protocol lines 5 to 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from gputask.kube.client import Object
from gputask.kube.errors import (
    ApiError,
    Conflict,
    KubeError,
    NotFound,
    OutcomeUnknown,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from gputask.kube.writes import Writes
from gputask.ledger.changes import Confirm, Renew, Reserve
from gputask.ledger.claims import Claim, Claims, rank_of
from gputask.ledger.entries import Entry, State
from gputask.ledger.nodes import Applied, NodeLedgers
from gputask.ledger.outcome import Kind, Outcome
from gputask.ledger.pods import Manifest, Place, booked, is_terminating, uid_of, version_of
from gputask.ledger.release import Look, PodRef, Releaser

MAX_RENEWALS = 5
"""How often others may write the pod between reserve and bind before it is given up (line 8)."""

TRIES = 8
DEFAULT_TTL_SECONDS = 60.0

EndStatus = Callable[[Manifest, Manifest | None, str | None], Mapping[str, Any]]
"""Phase and conditions of a task (at the version given) whose claimed pod is dead: its last object, None if gone."""


class Binder:
    """Takes a claimed, unbound pod to its node, or takes it back. ``now`` is seconds since the epoch."""

    def __init__(
        self,
        *,
        writes: Writes,
        ledgers: NodeLedgers,
        claims: Claims,
        releaser: Releaser,
        on_end: EndStatus,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._writes = writes
        self._ledgers = ledgers
        self._claims = claims
        self._releaser = releaser
        self._on_end = on_end
        self._now = now
        self._sleep = sleep

    async def place(
        self, task: Manifest, claim: Claim, pod: Object, *, reserved: Callable[[], None] = lambda: None
    ) -> Outcome:
        """Lines 5 to 9 for a pod that ``claim`` names; ``reserved`` is called as soon as the ledger has the entry.

        :raises KubeError: no clear answer in the end; a sweep goes on from what is stored.
        """
        entry = self._entry(task, claim, pod)
        result = await self._ledgers.apply(entry.node, Reserve(entry, rank_of(task)))  # line 5
        known = self._known(entry)
        if not isinstance(result, Applied) and known is None:
            await self._give_up(task, entry, reserved=False)
            return Outcome(Kind.NO_ROOM, result.reason)
        reserved()
        return await self._bind(task, known or entry)

    # --- lines 6 to 8 ---

    async def _bind(self, task: Manifest, entry: Entry) -> Outcome:
        renewals = 0
        for turn in range(TRIES + MAX_RENEWALS):
            refusal = await self._try_bind(entry)
            if refusal is None:
                return await self._confirm(entry)
            seen = await self._releaser.look(PodRef.of(entry))  # line 7: only a live GET tells
            if seen.place is Place.HERE:
                return await self._confirm(entry)
            if seen.place is not Place.UNBOUND or seen.pod is None or is_terminating(seen.pod):
                return await self._lost(task, entry, seen)
            if version_of(seen.pod) != entry.pod_version:
                renewals += 1
                if renewals > MAX_RENEWALS:
                    refusal = f"others wrote pod {entry.pod} {renewals} times before it could be bound"
                    return await self._refused(task, entry, refusal)
                renewed = await self._renew(entry)
                if renewed is None:
                    return Outcome(Kind.UNKNOWN, f"the reservation of {entry.task} changed while it was renewed")
                entry = renewed
            elif refusal:
                return await self._refused(task, entry, refusal)
            else:
                await self._sleep(0.05 * 2 ** min(turn, 6))
        return await self._refused(task, entry, f"pod {entry.pod} could not be bound in {TRIES + MAX_RENEWALS} tries")

    async def _try_bind(self, entry: Entry) -> str | None:
        """None: bound. Else the text of a refusal that another try would not change, or "" where one may."""
        try:
            # Line 6: the stored version, never one read just now: a release may have fenced exactly that.
            await self._writes.bind(
                entry.namespace, entry.pod, entry.node, uid=entry.pod_uid, resource_version=entry.pod_version
            )
        except (Conflict, NotFound, OutcomeUnknown, Unreachable, TooManyRequests, Unauthorized):
            return ""
        except ApiError as error:
            return error.message
        return None

    async def _renew(self, entry: Entry) -> Entry | None:
        """Line 8: the ledger version in hand, *then* the pod, *then* the write under that ledger version."""
        for turn in range(TRIES):
            ledger = self._ledgers.known(entry.node)
            seen = await self._releaser.look(PodRef.of(entry))
            if ledger is None or seen.place is not Place.UNBOUND or seen.pod is None:
                return entry  # the next look of line 7 tells what it is
            change = Renew(entry.pod_uid, version_of(seen.pod), under=ledger.version, expires_at=entry.expires_at)
            if isinstance(await self._ledgers.apply(entry.node, change), Applied):
                return replace(entry, pod_version=version_of(seen.pod))
            current = self._known(entry)
            if current is None:
                return None
            entry = current
            await self._sleep(0.01 * turn)  # others write this ledger; let them finish
        return None

    # --- line 9, and the ways out ---

    async def _confirm(self, entry: Entry) -> Outcome:
        """The pod is bound, whatever becomes of this write: a sweep repeats it."""
        try:
            await self._ledgers.apply(entry.node, Confirm(entry.pod_uid, self._now()))
        except KubeError as error:
            return Outcome(Kind.BOUND, f"not confirmed in the ledger yet: {error}")
        return Outcome(Kind.BOUND, f"bound to {entry.node}")

    async def _lost(self, task: Manifest, entry: Entry, seen: Look) -> Outcome:
        if seen.place is Place.ELSEWHERE:
            await self._releaser.release(entry)
            return Outcome(Kind.POD_ELSEWHERE, f"somebody bound pod {entry.pod} to another node")
        await self._give_up(task, entry)
        return Outcome(Kind.POD_GONE, f"pod {entry.pod} ended before it was bound")

    async def _refused(self, task: Manifest, entry: Entry, message: str) -> Outcome:
        seen = await self._give_up(task, entry, refusal=message)
        if seen.place is Place.HERE:
            return await self._confirm(entry)  # a bind that was given up took effect after all
        return Outcome(Kind.BIND_REFUSED, message)

    async def _give_up(
        self, task: Manifest, entry: Entry, *, reserved: bool = True, refusal: str | None = None
    ) -> Look:
        """Pod, entry and claim, in this order; what cannot be done yet is left to the sweep. A ``refusal`` of the bind
        is counted in the very write that records the end: lost only with us, and counted once."""
        seen = await self._releaser.take_back(PodRef.of(entry), entry if reserved else None)
        if seen.place.dead:
            pod = seen.pod
            await self._claims.end(task, entry.pod_uid, status=lambda v: self._on_end(v, pod, refusal))  # line 12
        return seen

    # --- the entry ---

    def _entry(self, task: Manifest, claim: Claim, pod: Object) -> Entry:
        ttl = float((task.get("spec") or {}).get("reservationTTLSeconds") or DEFAULT_TTL_SECONDS)
        return Entry(
            task=f"{task['metadata']['namespace']}/{task['metadata']['name']}",
            task_uid=uid_of(task),
            pod=claim.pod,
            pod_uid=claim.pod_uid,
            pod_version=version_of(pod),
            attempt=claim.attempt,
            node=claim.literals.node,
            variant=claim.literals.variant,
            variant_index=claim.literals.variant_index,
            allocation=booked(claim.literals.allocation, pod),
            state=State.IN_FLIGHT,
            expires_at=self._now() + ttl,
        )

    def _known(self, entry: Entry) -> Entry | None:
        ledger = self._ledgers.known(entry.node)
        return ledger.entries.get(entry.pod_uid) if ledger is not None else None
