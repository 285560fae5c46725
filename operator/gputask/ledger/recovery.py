"""Carries out the recovery table: at start (protocol line 18), and in steady state for whatever nobody is at work on.

Ends, suspensions, lost replies, expired reservations, pods deleted by others: each is a state that the table knows,
so there is one way through for all of them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from gputask.kube.errors import Conflict, KubeError, NotFound
from gputask.kube.together import for_each
from gputask.kube.writes import Writes
from gputask.ledger.admission import Admission
from gputask.ledger.binding import EndStatus
from gputask.ledger.changes import Book, Confirm
from gputask.ledger.claims import Claim, Claims, claim_of, why_not_wanted
from gputask.ledger.classify import Action, Found, Relation, classify
from gputask.ledger.entries import Entry, State
from gputask.ledger.leases import Leases, classify_lease
from gputask.ledger.nodes import NodeLedgers
from gputask.ledger.pods import (
    Manifest,
    Place,
    bound_entry,
    is_terminating,
    literals_of,
    place_of,
    start_time_of,
    task_name_of,
    task_uid_of,
    uid_of,
    version_of,
)
from gputask.ledger.release import PodRef, Releaser

logger = logging.getLogger(__name__)

STOP_TRIES = 8
AT_ONCE = 16
"""Sweeps that run beside each other at start."""


class Cache(Protocol):
    """What the controller has seen; any of it may be old."""

    def task(self, uid: str) -> Manifest | None: ...

    def task_uids(self) -> Iterable[str]:
        """Tasks that are known themselves, or by a pod of theirs."""

    def pods_of(self, task_uid: str) -> Iterable[Manifest]: ...


@dataclass(frozen=True, slots=True)
class _Case:
    """One row of work: a pod UID, or a grant of a lease, seen from a node, with what is known about it."""

    ref: PodRef
    task: Manifest | None
    pod: Manifest | None
    entry: Entry | None

    @property
    def is_lease(self) -> bool:
        return not self.ref.name

    def found(self, in_contact: Callable[[str], bool]) -> Found:
        claim = claim_of(self.task) if self.task is not None else None
        return Found(
            relation=_relation(self.task, claim, self.ref.uid),
            wanted=self.task is not None and why_not_wanted(self.task) is None,
            place=place_of(self.pod, uid=self.ref.uid, node=self.ref.node),
            terminating=self.pod is not None and is_terminating(self.pod),
            entry=self.entry is not None,
            confirmed=self.entry is not None and self.entry.state is State.BOUND,
            out_of_sight=self.entry is not None
            and self.entry.state is State.QUARANTINED
            and not in_contact(self.entry.node),
        )


def _relation(task: Manifest | None, claim: Claim | None, pod_uid: str) -> Relation:
    if task is None:
        return Relation.ORPHAN
    if claim is None or claim.pod_uid != pod_uid:
        return Relation.STRANGER
    return Relation.CLAIMED if claim.live else Relation.ENDED


class Recovery:
    """Sweeps: looks at what is known of a task, and makes whole what a writer left half done.

    ``in_contact`` is that of :class:`gputask.ledger.release.Releaser`; ``on_end`` says what the status of a task is
    after its claimed pod died. Everything raises
    :class:`gputask.kube.errors.KubeError` where the API server gave no clear answer; sweeping again is always right.
    """

    def __init__(
        self,
        *,
        writes: Writes,
        ledgers: NodeLedgers,
        claims: Claims,
        releaser: Releaser,
        admission: Admission,
        leases: Leases,
        cache: Cache,
        in_contact: Callable[[str], bool],
        on_end: EndStatus,
        now: Callable[[], float],
    ) -> None:
        self._writes = writes
        self._ledgers = ledgers
        self._claims = claims
        self._releaser = releaser
        self._admission = admission
        self._leases = leases
        self._cache = cache
        self._in_contact = in_contact
        self._on_end = on_end
        self._now = now
        self._sweeping: set[str] = set()
        self._again: set[str] = set()

    async def sweep(self, task_uid: str) -> None:
        """Do what the table says about one task. Skipped while an admission of it is in progress.

        A call during a sweep of the same task returns at once and makes that sweep look once more.
        """
        if task_uid in self._sweeping:
            self._again.add(task_uid)
            return
        self._sweeping.add(task_uid)
        try:
            await self._sweep(task_uid)
            while task_uid in self._again:
                self._again.discard(task_uid)
                await self._sweep(task_uid)
        finally:
            self._sweeping.discard(task_uid)
            self._again.discard(task_uid)

    async def sweep_all(self) -> None:
        """Every task, in the order of line 18: nothing of a later kind begins before all of an earlier kind is done.

        One task that fails is logged and stops nobody else (R10).
        """
        suspicions: defaultdict[Action, set[str]] = defaultdict(set)

        async def suspect(uid: str) -> None:
            for case in self._cases(uid):
                suspicions[self._row(case)].add(uid)

        await for_each(self._all_uids(), suspect, at_once=AT_ONCE)
        for action in Action:
            if action is not Action.NOTHING:
                await for_each(suspicions[action], partial(self._attempt, only=action), at_once=AT_ONCE)

    async def _attempt(self, uid: str, *, only: Action) -> None:
        try:
            await self._sweep(uid, only=only)
        except KubeError as error:
            logger.warning("sweep of task %s: %s", uid, error)

    # --- what is suspected, from caches ---

    def _all_uids(self) -> set[str]:
        return {*self._cache.task_uids(), *self._ledgers.task_uids()}

    def _cases(self, task_uid: str) -> Iterator[_Case]:
        task = self._cache.task(task_uid)
        pods = {uid_of(pod): pod for pod in self._cache.pods_of(task_uid)}
        seen: set[tuple[str, str]] = set()
        for entry in self._ledgers.entries_of(task_uid):
            seen.add((entry.pod_uid, entry.node))
            yield _Case(PodRef.of(entry), task, pods.get(entry.pod_uid), entry)
        for pod in pods.values():
            ref = _ref(pod)
            if (ref.uid, ref.node) not in seen:
                seen.add((ref.uid, ref.node))
                yield _Case(ref, task, pod, None)
        claim = claim_of(task) if task is not None else None
        if task is not None and claim is not None and claim.live and not any(uid == claim.pod_uid for uid, _ in seen):
            ref = PodRef(task["metadata"]["namespace"], claim.pod, claim.pod_uid, claim.literals.node)
            yield _Case(ref, task, None, None)

    def _row(self, case: _Case) -> Action:
        if case.is_lease:
            return classify_lease(case.task, case.ref.uid, case.entry)
        return classify(case.found(self._in_contact))

    # --- what is done, after live reads ---

    async def _sweep(self, task_uid: str, *, only: Action | None = None) -> None:
        for case in list(self._cases(task_uid)):
            if self._admission.busy(task_uid):
                return
            suspected = self._row(case)
            if suspected is not Action.NOTHING and only in (None, suspected):
                live = await self._live(case)
                if self._admission.busy(task_uid):
                    return  # it began while we looked
                await self._do(self._row(live), live)

    async def _live(self, case: _Case) -> _Case:
        """The same case, with task and pod as stored now and the entry as last known."""
        task = await self._live_task(case)
        pod: Manifest | None = None if case.is_lease else (await self._releaser.look(case.ref)).pod
        ledger = self._ledgers.known(case.ref.node)
        return _Case(case.ref, task, pod, ledger.entries.get(case.ref.uid) if ledger is not None else None)

    async def _live_task(self, case: _Case) -> Manifest | None:
        if case.task is not None:
            return await self._claims.live(case.task)
        uid, name = _owner(case)
        if uid is None or name is None:
            return None
        return await self._claims.live({"metadata": {"namespace": case.ref.namespace, "name": name, "uid": uid}})

    async def _do(self, action: Action, case: _Case) -> None:
        if action is not Action.NOTHING:
            logger.debug("%s: pod %s on %s", action.name.lower(), case.ref.name or case.ref.uid, case.ref.node)
        match action:
            case Action.RESUME:
                await self._resume(case)
            case _ if case.is_lease:
                await self._leases.recover(action, case.task, case.ref.uid, case.ref.node, case.entry)
            case Action.BOOK:
                await self._book(case)
            case Action.RELEASE if case.entry is not None:
                await self._releaser.release(case.entry)
            case Action.END:
                await self._end(case)
            case Action.CONFIRM:
                await self._ledgers.apply(case.ref.node, Confirm(case.ref.uid, start_time_of(case.pod) or self._now()))
            case Action.TAKE_BACK:
                await self._take_back(case)
            case Action.STOP:
                await self._stop(case)
            case Action.DELETE:
                await self._releaser.take_back(case.ref, case.entry)

    async def _book(self, case: _Case) -> None:
        entry = self._entry_of(case)
        if entry is not None:
            await self._ledgers.apply(case.ref.node, Book(entry))

    async def _end(self, case: _Case) -> None:
        if case.entry is not None and not await self._releaser.release(case.entry):
            return
        if case.task is not None:
            pod = case.pod
            await self._claims.end(case.task, case.ref.uid, status=lambda version: self._on_end(version, pod, None))

    async def _resume(self, case: _Case) -> None:
        claim = claim_of(case.task) if case.task is not None else None
        if case.task is not None and claim is not None and (case.pod is not None or case.is_lease):
            await self._admission.resume(case.task, claim, dict(case.pod) if case.pod is not None else None)

    async def _take_back(self, case: _Case) -> None:
        seen = await self._releaser.take_back(case.ref, case.entry)
        if seen.place.dead and case.task is not None:
            pod = seen.pod
            await self._claims.end(case.task, case.ref.uid, status=lambda version: self._on_end(version, pod, None))

    async def _stop(self, case: _Case) -> None:
        for _ in range(STOP_TRIES):
            seen = await self._releaser.look(case.ref)
            if seen.place is not Place.HERE or seen.pod is None or is_terminating(seen.pod):
                return  # it has ended, or stops: the next sweep sees it
            try:
                await self._writes.delete_pod(
                    case.ref.namespace, case.ref.name, uid=case.ref.uid, resource_version=version_of(seen.pod)
                )
            except NotFound:
                return
            except Conflict:
                continue  # written meanwhile
            return

    # --- entries of pods found bound ---

    def _entry_of(self, case: _Case) -> Entry | None:
        """The entry of a live owner: by its claim, else by its own literals."""
        claim = claim_of(case.task) if case.task is not None else None
        if case.pod is None:
            return None
        literals = claim.literals if claim is not None and claim.pod_uid == case.ref.uid else literals_of(case.pod)
        return bound_entry(case.pod, literals, now=self._now()) if literals is not None else None


def _ref(pod: Manifest) -> PodRef:
    literals = literals_of(pod)
    node = pod["spec"].get("nodeName") or (literals.node if literals is not None else "")
    return PodRef(pod["metadata"]["namespace"], pod["metadata"]["name"], uid_of(pod), node)


def _owner(case: _Case) -> tuple[str | None, str | None]:
    """UID and name of the task that a cached pod or an entry speaks of."""
    if case.entry is not None:
        return case.entry.task_uid, case.entry.task.partition("/")[2]
    if case.pod is not None:
        return task_uid_of(case.pod), task_name_of(case.pod)
    return None, None
