"""From a decision to a bound pod: protocol lines 1 to 9, with every way out.

======================  ==========================================  ==========================  ==================
where it ends           because                                     what is undone              outcome
======================  ==========================================  ==========================  ==================
2 create                quota, admission or schema refused it       nothing is held             POD_REFUSED
2 create                our pod is there, bound or terminating      nothing; the sweep sees it  CLAIM_LOST, UNKNOWN
3 claim                 task gone, deleted, finished or suspended   pod                         TASK_GONE
3 claim                 another pod UID was claimed                 pod                         CLAIM_LOST
5 reserve               it does not fit at the ledger's version     pod, claim                  NO_ROOM
6, 7 bind               pod deleted, terminal or terminating        entry, claim                POD_GONE
6, 7 bind               bound to another node                       entry                       POD_ELSEWHERE
6, 7 bind               refused for good (policy, permission)       pod, entry, claim           BIND_REFUSED
8 renew                 others wrote the pod more than n times      pod, entry, claim           BIND_REFUSED
9 confirm               bound (the reply, or a live GET, says so)   nothing                     BOUND
anywhere                no clear answer in the end                  nothing; the sweep goes on  UNKNOWN
anywhere                killed                                      nothing; the sweep goes on  (none)
======================  ==========================================  ==========================  ==================

The assumption of line 1 is forgotten when the ledger has the entry, and on each of these ways out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gputask.kube.client import Client, Object
from gputask.kube.errors import (
    AlreadyExists,
    ApiError,
    KubeError,
    NotFound,
    OutcomeUnknown,
    TooManyRequests,
    Unauthorized,
)
from gputask.kube.resources import PODS
from gputask.kube.writes import Writes
from gputask.ledger.assume import Assumed, Assumption
from gputask.ledger.binding import Binder
from gputask.ledger.claims import Claim, Claims, Loss, StatusOf, claim_of, nothing_else
from gputask.ledger.leases import Leases
from gputask.ledger.outcome import Kind, Outcome
from gputask.ledger.pods import (
    Literals,
    Manifest,
    Place,
    is_ours,
    is_terminating,
    literals_of,
    place_of,
    pod_name,
    uid_of,
)
from gputask.ledger.release import PodRef, Releaser

TRIES = 8
AT_ONCE = 64
"""Admissions that write beside each other, the highest rank first. After a pass that placed thousands, all others
(statuses, the leader's lease) would otherwise stand behind their requests."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One decision of the planner, ready to be carried out.

    ``task`` is the GpuTask as cached, ``attempt`` the number after its claimed one. ``build`` makes the manifest of an
    attempt, with ``literals`` in it (:func:`gputask.ledger.pods.allocation_env`); None is a lease, which has no pod
    (:mod:`gputask.ledger.leases`). ``status`` is what the claim's write says besides the claim.
    """

    task: Manifest
    attempt: int
    literals: Literals
    build: Callable[[int], Mapping[str, Any]] | None
    status: StatusOf = nothing_else


class Admission:
    """Carries out placements, each as an asyncio task of its own."""

    def __init__(
        self,
        *,
        client: Client,
        writes: Writes,
        claims: Claims,
        releaser: Releaser,
        binder: Binder,
        leases: Leases,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._writes = writes
        self._claims = claims
        self._releaser = releaser
        self._binder = binder
        self._leases = leases
        self._sleep = sleep
        self._running: dict[str, asyncio.Task[Outcome]] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self.assumed = Assumed()

    def begin(self, placement: Placement) -> asyncio.Task[Outcome]:
        """Line 1: assume, now, and start to carry it out.

        :raises ValueError: something for this task is in progress already.
        """
        return self._start(placement.task, placement.literals, lambda assumption: self._admit(placement, assumption))

    def resume(self, task: Manifest, claim: Claim, pod: Object | None) -> asyncio.Task[Outcome]:
        """Go on from line 5 with a claimed pod that was found unbound, or with a claimed lease (recovery table)."""

        def steps(assumption: Assumption) -> Awaitable[Outcome]:
            if pod is None:
                return self._leases.resume(task, claim, reserved=assumption.forget)
            return self._binder.place(task, claim, pod, reserved=assumption.forget)

        return self._start(task, claim.literals, steps)

    def busy(self, task_uid: str) -> bool:
        """Whether a call of ours for this task is open; then nobody else of this process acts for it (line 11)."""
        return task_uid in self._running

    async def close(self) -> None:
        """Drop everything in progress, as a kill would; the next sweep goes on with it."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _start(
        self, task: Manifest, literals: Literals, steps: Callable[[Assumption], Awaitable[Outcome]]
    ) -> asyncio.Task[Outcome]:
        uid = uid_of(task)
        assumption = self.assumed.assume(uid, literals.node, literals.allocation)

        def finished(_: asyncio.Task[Outcome]) -> None:
            # In a callback and not in the coroutine: one that is cancelled before its first step never runs a line.
            assumption.forget()
            del self._running[uid]

        running = asyncio.create_task(_settled(lambda: steps(assumption)), name=f"admit {uid}")
        self._running[uid] = running
        running.add_done_callback(finished)
        return running

    async def _admit(self, placement: Placement, assumption: Assumption) -> Outcome:
        async with self._gate:
            return await self._admit_now(placement, assumption)

    async def _admit_now(self, placement: Placement, assumption: Assumption) -> Outcome:
        if placement.build is None:
            return await self._leases.admit(
                placement.task, placement.attempt, placement.literals, reserved=assumption.forget
            )
        pod = await self._create(placement, placement.build)
        if isinstance(pod, Outcome):
            return pod
        claim = Claim(
            attempt=int(pod["metadata"]["name"].rpartition("-")[2]),
            pod=pod["metadata"]["name"],
            pod_uid=uid_of(pod),
            literals=placement.literals,
        )
        won = await self._claims.claim(placement.task, claim, status=placement.status)  # line 3
        if isinstance(won, Loss):
            # Only a claimed UID may be reserved or bound (line 4), so nobody needs this pod.
            await self._releaser.take_back(_ref(pod, placement.literals.node), None)
            return Outcome(Kind.CLAIM_LOST if won is Loss.OTHER else Kind.TASK_GONE, won.value)
        return await self._binder.place(won.task, claim, pod, reserved=assumption.forget)

    # --- line 2 ---

    async def _create(self, placement: Placement, build: Callable[[int], Mapping[str, Any]]) -> Object | Outcome:
        """The unbound pod with exactly our literals, or why there is none."""
        attempt = placement.attempt
        for turn in range(TRIES):
            try:
                return await self._writes.create_pod(build(attempt))
            except AlreadyExists:
                found = await self._found(placement, attempt)
                if found is _TAKEN:
                    attempt += 1
                elif found is not None:
                    return found
            except OutcomeUnknown:
                await self._sleep(0.05 * 2**turn)  # if it was stored, the next try says AlreadyExists
            except (TooManyRequests, Unauthorized):
                raise
            except ApiError as error:
                return Outcome(Kind.POD_REFUSED, error.message)
        raise OutcomeUnknown(f"pod {pod_name(uid_of(placement.task), attempt)} could not be created in {TRIES} tries")

    async def _found(self, placement: Placement, attempt: int) -> Object | Outcome | None:
        """What to do about a pod that has the name already: go on with it, give up, or (None) create again."""
        task_uid, node = uid_of(placement.task), placement.literals.node
        namespace, name = placement.task["metadata"]["namespace"], pod_name(task_uid, attempt)
        try:
            pod = await self._client.get(PODS, name, namespace)
        except NotFound:
            return None
        if not is_ours(pod, task_uid, attempt):
            return _TAKEN
        place = place_of(pod, uid=uid_of(pod), node=node)
        if place in (Place.HERE, Place.ELSEWHERE):
            # It can only have been bound under a claim that our cache does not show yet.
            return Outcome(Kind.CLAIM_LOST, f"pod {name} is bound already")
        if is_terminating(pod):
            return Outcome(Kind.UNKNOWN, f"pod {name} is still being deleted")
        if place is Place.UNBOUND and literals_of(pod) == placement.literals:
            return pod
        if place is Place.TERMINAL:
            live = await self._claims.live(placement.task)
            claim = claim_of(live) if live is not None else None
            if claim is not None and claim.pod_uid == uid_of(pod):
                # It has run, under a claim that our cache does not show yet. Whoever records its end has to see how it
                # ended: a pod that succeeded and is deleted before that runs again.
                return Outcome(Kind.CLAIM_LOST, f"pod {name} has run already")
            await self._delete_dead(namespace, name, uid_of(pod))
        else:
            # Its literals are those of an older decision; ours is the one that the planner stands by now.
            await self._releaser.take_back(_ref(pod, node), None)
        return None

    async def _delete_dead(self, namespace: str, name: str, uid: str) -> None:
        try:
            await self._writes.delete_pod(namespace, name, uid=uid)
        except NotFound:
            return


_TAKEN = Outcome(Kind.UNKNOWN, "a foreign pod has the name")


def _ref(pod: Manifest, node: str) -> PodRef:
    return PodRef(pod["metadata"]["namespace"], pod["metadata"]["name"], uid_of(pod), node)


async def _settled(steps: Callable[[], Awaitable[Outcome]]) -> Outcome:
    try:
        return await steps()
    except KubeError as error:
        return Outcome(Kind.UNKNOWN, str(error))
