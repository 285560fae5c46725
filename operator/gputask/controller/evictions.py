"""Makes room for preemptors (protocol line 16): the hold in the ledger first, then one Eviction for each victim.

==========================  ================================================================  ======================
where it can end            because                                                           what is done
==========================  ================================================================  ======================
before the hold             the ledger knows better than the snapshot                         the planner decides anew
before or between evictions killed                                                            the hold says who goes
an eviction                 404, 409: the victim is gone                                      nothing
an eviction                 429, 5xx: a budget allows none now, or no answer                  again, growing pauses
the deadline                victims refused, or did not stop                                  the hold is dropped
any time                    the task is gone, suspended, in a pause, or reserved elsewhere    the hold is dropped
any time                    the planner sees that the room does not come                      the hold is dropped
all victims are gone        the task is placed                                                Reserve takes the hold
==========================  ================================================================  ======================

A hold that is dropped leaves nothing behind: victims that were evicted wait at their old rank, the others run on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from math import inf

from gputask.api.conditions import ReservedReason
from gputask.controller.backoff import Backoff, Refusal
from gputask.controller.events import Events
from gputask.controller.metrics import Metrics
from gputask.controller.queue import Standing, TaskQueue
from gputask.controller.store import Store
from gputask.controller.workqueue import WorkQueue
from gputask.kube.errors import ApiError, Conflict, KubeError, NotFound
from gputask.kube.writes import Writes
from gputask.ledger.changes import DropRoom, KeepRoom
from gputask.ledger.entries import RoomKept, Victim
from gputask.ledger.nodes import Applied, NodeLedgers
from gputask.ledger.pods import is_terminal, is_terminating, version_of
from gputask.planner.model import Decision, Hold, Plan, Snapshot

log = logging.getLogger(__name__)

LONGEST_PAUSE = 30.0
"""Seconds between two tries to evict a victim that was refused."""

REFUSED_SECONDS = 60.0
"""A victim that was refused until the deadline is in no plan for so long."""

CONFLICT_SECONDS = 0.1

VAIN_SECONDS = 1.0
"""So long the planner must see no way for a hold before it is given up."""

_REMEMBERED = 10_000


class Evictions:
    """``margin``: seconds beyond the longest grace of the victims until a hold is given up; ``pause``: seconds until a
    refused victim is tried again, doubled with each refusal."""

    def __init__(
        self,
        *,
        store: Store,
        queue: TaskQueue,
        ledgers: NodeLedgers,
        writes: Writes,
        backoff: Backoff,
        events: Events,
        metrics: Metrics,
        now: Callable[[], float],
        clock: Callable[[], float],
        changed: Callable[[str, str], None],
    ) -> None:
        self.margin = 30.0
        self.pause = 2.0
        self._store = store
        self._queue = queue
        self._ledgers = ledgers
        self._writes = writes
        self._backoff = backoff
        self._events = events
        self._metrics = metrics
        self._now = now
        self._clock = clock
        self._changed = changed
        self._assumed: dict[str, tuple[str, RoomKept]] = {}
        """Decided, and not in the ledger yet; by task UID."""
        self._vain: dict[str, float] = {}
        """Tasks whose room does not come, as the planner sees it, and since when."""
        self._evicted: OrderedDict[str, str] = OrderedDict()
        """Pod UIDs that an eviction of ours was accepted for, and the preemptor."""
        self._tries: dict[str, tuple[int, float, str]] = {}
        """Refused victims by pod UID: how often, when again, and why."""
        self._refused: dict[str, float] = {}
        """Victims that are in no plan until then, by pod UID."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """The next look at each preemptor."""
        self._work = WorkQueue("preemption", self._pursue, metrics=metrics)

    async def run(self) -> None:
        """Work until cancelled."""
        for uid in self._ledgers.preemptors():
            self._work.add(uid)
        await self._work.run()

    def forget(self) -> None:
        """We do not act any more: what is not in the ledger yet was never decided."""
        self._assumed.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # --- what is decided ------------------------------------------------------------------------------

    def begin(self, decision: Decision) -> None:
        """Carry out a decision. Synchronous: its room counts as kept when this returns."""
        uid = decision.task.uid
        if uid in self._assumed or self._ledgers.rooms_kept(uid):
            return
        now = int(self._now())
        graces = [self._grace(victim.uid) for victim in decision.victims]
        hold = RoomKept(
            task=decision.task.key,
            task_uid=uid,
            priority=decision.task.priority,
            created=decision.task.created,
            variant=decision.variant,
            variant_index=decision.variant_index,
            allocation=decision.allocation,
            victims=tuple(Victim(v.task, self._pod_name(v.uid), v.uid) for v in decision.victims),
            start_time=now,
            expires_at=now + max(graces, default=0.0) + self.margin,
        )
        self._assumed[uid] = decision.node, hold
        self._work.add(uid)

    def given_up(self, snapshot: Snapshot, plan: Plan) -> None:
        """Note what the plan does not keep of the snapshot's committed holds: the room does not come. It has to stay so
        for a moment: a pod whose entry is released already counts as foreign use until its DELETED arrives."""
        if plan.cut:
            return
        kept = {hold.uid for hold in plan.holds if hold.committed}
        waits = {waiting.task.uid for waiting in plan.waiting}
        vain = {hold.uid for hold in snapshot.holds if hold.committed and hold.uid in waits} - kept
        for uid in self._vain.keys() - vain:
            del self._vain[uid]
        for uid in vain - self._vain.keys():
            self._vain[uid] = self._clock()
            self._work.add_later(uid, VAIN_SECONDS)

    def holds(self) -> tuple[Hold, ...]:
        """All room that is kept, as the planner sees it."""
        kept = {uid: place for uid in self._ledgers.preemptors() for place in self._ledgers.rooms_kept(uid).items()}
        return tuple(_hold(node, hold) for node, hold in ({**kept, **self._assumed}).values())

    # --- what others ask ------------------------------------------------------------------------------

    def look(self, task_uid: str) -> None:
        """Something about this task changed; never waits."""
        if task_uid in self._assumed or self._ledgers.rooms_kept(task_uid):
            self._work.add(task_uid)

    def is_refused(self, pod_uid: str) -> bool:
        """Whether its eviction was refused so recently that it is in no plan."""
        until = self._refused.get(pod_uid)
        return until is not None and until > self._clock()

    def preemptor_of(self, pod_uid: str) -> str | None:
        """For whom this pod was evicted by us (``namespace/name``)."""
        return self._evicted.get(pod_uid)

    def told(self, task_uid: str) -> str | None:
        """One line about the room that is being made for a task; None if there is none."""
        for node, hold in self._ledgers.rooms_kept(task_uid).items():
            refused = [f"{v.task}: {self._tries[v.pod_uid][2]}" for v in hold.victims if v.pod_uid in self._tries]
            names = ", ".join(v.task for v in hold.victims)
            return "; ".join([f"room is made on {node}: {names} evicted for it", *refused])
        return None

    # --- one preemptor --------------------------------------------------------------------------------

    async def _pursue(self, uid: str) -> None:
        """:raises KubeError: to be tried again."""
        if uid in self._assumed:
            await self._keep(uid)
        for node, hold in self._ledgers.rooms_kept(uid).items():
            why = self._over(uid, node, hold)
            if why is not None:
                await self._drop(node, hold, why)
                continue
            for victim in self._remaining(node, hold):
                await self._evict(hold, victim)
            self._look_again(uid, hold)

    async def _keep(self, uid: str) -> None:
        """The hold goes into the ledger; only then somebody is evicted."""
        node, hold = self._assumed[uid]
        if self._why_not_wanted(uid) is None:
            result = await self._ledgers.apply(node, KeepRoom(hold))
            if not isinstance(result, Applied):
                self._backoff.refuse_on(uid, node, Refusal(ReservedReason.BACK_OFF, result.reason))
            elif (task := self._store.tasks.get(uid)) is not None:
                names = ", ".join(victim.task for victim in hold.victims)
                self._events.emit(task, "Preempting", f"evicts {names} on {node}")
        self._assumed.pop(uid, None)
        self._changed(uid, node)

    async def _drop(self, node: str, hold: RoomKept, why: str) -> None:
        log.info("room for %s on %s is given up: %s", hold.task, node, why)
        await self._ledgers.apply(node, DropRoom(hold.task_uid, hold.victims))
        self._vain.pop(hold.task_uid, None)
        if (timer := self._timers.pop(hold.task_uid, None)) is not None:
            timer.cancel()
        for victim in hold.victims:
            if self._tries.pop(victim.pod_uid, None) is not None:
                self._refused[victim.pod_uid] = self._clock() + REFUSED_SECONDS
        self._metrics.preemptions.labels("given up").inc()
        self._changed(hold.task_uid, node)

    def _over(self, uid: str, node: str, hold: RoomKept) -> str | None:
        """Why the hold is to be dropped, or None."""
        if node not in self._store.nodes:
            return "its node is gone"
        if self._clock() >= self._vain.get(uid, inf) + VAIN_SECONDS:
            return "its room does not come"
        if self._now() >= hold.expires_at:
            return "its deadline is over"
        return self._why_not_wanted(uid)

    def _why_not_wanted(self, uid: str) -> str | None:
        known = self._queue.known.get(uid)
        if known is None:
            return "its task is gone"
        if known.standing is Standing.LIVE:
            return "its task has a reservation" if any(True for _ in self._ledgers.entries_of(uid)) else None
        return None if known.standing is Standing.WAITING else f"its task is {known.standing.value.lower()}"

    def _remaining(self, node: str, hold: RoomKept) -> Iterator[Victim]:
        """Who is still there and has not begun to stop."""
        ledger = self._ledgers.known(node)
        for victim in hold.victims:
            pod = self._store.pods.get(victim.pod_uid)
            stops = pod is None or is_terminating(pod) or is_terminal(pod) or victim.pod_uid in self._evicted
            if not stops and ledger is not None and victim.pod_uid in ledger.entries:
                yield victim

    async def _evict(self, hold: RoomKept, victim: Victim) -> None:
        tries, again, _ = self._tries.get(victim.pod_uid, (0, 0.0, ""))
        if self._clock() < again:
            return
        try:
            version = version_of(self._store.pods[victim.pod_uid])
            await self._writes.evict(victim.namespace, victim.pod, uid=victim.pod_uid, resource_version=version)
        except NotFound:
            pass  # so it does not need to go any more
        except Conflict:
            # Written meanwhile, perhaps because it has ended: then its end has to be recorded. The watch brings it.
            self._work.add_later(hold.task_uid, CONFLICT_SECONDS)
            return
        except KubeError as error:
            # 429: a budget; 500: two budgets; no answer: it may have begun to stop, which the watch will show.
            pause = min(self.pause * 2.0**tries, LONGEST_PAUSE)
            self._tries[victim.pod_uid] = tries + 1, self._clock() + pause, _refusal(error)
            self._metrics.evictions.labels("refused").inc()
            self._changed(hold.task_uid, "")
            return
        self._tries.pop(victim.pod_uid, None)
        self._evicted[victim.pod_uid] = hold.task
        while len(self._evicted) > _REMEMBERED:
            self._evicted.popitem(last=False)
        self._metrics.evictions.labels("accepted").inc()

    def _look_again(self, uid: str, hold: RoomKept) -> None:
        """When a refused victim is to be tried again, or the deadline is over."""
        if uid in self._timers:
            self._timers[uid].cancel()
        tries = [self._tries[v.pod_uid][1] - self._clock() for v in hold.victims if v.pod_uid in self._tries]
        self._timers[uid] = self._work.add_later(uid, max(0.01, min([*tries, hold.expires_at - self._now()])))

    def _grace(self, pod_uid: str) -> float:
        pod = self._store.pods.get(pod_uid)
        return float(pod["spec"].get("terminationGracePeriodSeconds") or 0) if pod is not None else 0.0

    def _pod_name(self, pod_uid: str) -> str:
        pod = self._store.pods.get(pod_uid)
        return str(pod["metadata"]["name"]) if pod is not None else ""


def _hold(node: str, hold: RoomKept) -> Hold:
    return Hold(
        task=hold.task,
        uid=hold.task_uid,
        node=node,
        variant_index=hold.variant_index,
        allocation=hold.allocation,
        since=hold.start_time,
        victims=tuple(victim.pod_uid for victim in hold.victims),
        committed=True,
    )


def _refusal(error: KubeError) -> str:
    """The cause, where the server gives one: it names the budget."""
    causes: Iterable[dict[str, str]] = error.details.get("causes") or () if isinstance(error, ApiError) else ()
    return next((cause["message"] for cause in causes if cause.get("message")), str(error))
