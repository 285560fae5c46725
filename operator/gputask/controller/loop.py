"""The one scheduling loop: wait for a change, freeze a snapshot, plan in a thread, start what was decided.

Nothing else decides. A pass looks only at what changed (the rest of the snapshot is kept), and a pass without any
change is skipped. Placements go on beside the loop; the room they take is assumed before the next pass begins.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from gputask.controller.dispatch import CHUNK, Dispatch
from gputask.controller.evictions import Evictions
from gputask.controller.metrics import Metrics
from gputask.controller.snapshot import Snapshots
from gputask.controller.verdicts import Verdicts
from gputask.planner.model import Action, Decision, Hold, Plan, Rank, Snapshot

log = logging.getLogger(__name__)

DEBOUNCE_SECONDS = 0.005
"""Changes come in flocks (one apply of many files); so much is waited for the rest of a flock."""

LONGEST_REST_SECONDS = 0.05
"""After a pass the loop rests for as long as the pass took, at most so long: on a large cluster in full change the
planner would otherwise never leave the interpreter to the writes that carry out its decisions."""

IDLE_SECONDS = 30.0
"""A pass at least so often while anything waits: time itself moves holds (R5) and shortens node lives."""

PASS_SECONDS = 5.0
"""The time of one pass (R9). A cut pass is followed at once by one that goes on where it stopped."""

Planner = Callable[[Snapshot, float, Callable[[], bool], Callable[[Decision], None]], Plan]


class SchedulingLoop:
    """``start`` begins to carry out a placement, without waiting; ``tell`` hears of each task with a new verdict."""

    def __init__(
        self,
        *,
        dispatch: Dispatch,
        snapshots: Snapshots,
        verdicts: Verdicts,
        planner: Planner,
        start: Callable[[Decision], None],
        evictions: Evictions,
        tell: Callable[[str], None],
        now: Callable[[], float],
        metrics: Metrics,
    ) -> None:
        self._dispatch = dispatch
        self._snapshots = snapshots
        self._verdicts = verdicts
        self._planner = planner
        self._start = start
        self._evictions = evictions
        self._tell = tell
        self._now = now
        self._metrics = metrics
        self.holds: tuple[Hold, ...] = ()
        self._rest = DEBOUNCE_SECONDS
        self._resume: Rank | None = None
        """Where a pass whose time was over stopped (R9)."""
        self._faults: set[str] = set()

    def forget(self) -> None:
        """We do not act any more: holds are chosen anew by whoever does."""
        self.holds, self._resume = (), None
        self._dispatch.changed.set()

    async def run(self) -> None:
        """Schedule until cancelled. A pass that fails is logged and tried again after the next change (R10)."""
        while True:
            await self._wait()
            await self.once()

    async def once(self) -> None:
        """One pass on all that is known now."""
        try:
            await self._dispatch.settle()
            self._dispatch.changed.clear()
            await self._pass()
        except Exception:
            log.exception("a scheduling pass failed; the next change starts another")
            self._metrics.errors.labels("pass").inc()
            self._resume = None

    async def _wait(self) -> None:
        """Until something changed, or for so long as a pass can go without."""
        if self._resume is not None:
            return
        changed = self._dispatch.changed
        while True:
            try:
                # Not wait_for(): before Python 3.12 it loses a cancellation that comes together with the change.
                async with asyncio.timeout(IDLE_SECONDS):
                    await changed.wait()
            except TimeoutError:
                if not self._snapshots.queue.waiting:
                    continue
            else:
                await asyncio.sleep(self._rest)
            return

    async def _pass(self) -> None:
        snapshot = self._snapshots.freeze(self.holds, self._resume)
        started = time.perf_counter()
        plan = await self._plan(snapshot, _budget(started))
        seconds = time.perf_counter() - started
        self._metrics.pass_seconds.observe(seconds)
        self._rest = min(max(seconds, DEBOUNCE_SECONDS), LONGEST_REST_SECONDS)
        self.holds, self._resume = plan.holds, plan.resume
        if snapshot.resume is not None and plan.resume is None:
            self._dispatch.changed.set()  # it saw the last ones only; whoever came meanwhile may be first
        self._report(plan.faults)
        for decision in plan.decisions:
            self._metrics.decisions.labels(decision.action).inc()
        self._evictions.given_up(snapshot, plan)
        for number, uid in enumerate(self._verdicts.record(plan), 1):
            self._tell(uid)
            if number % CHUNK == 0:
                await asyncio.sleep(0)
        self._metrics.set_queue(self._verdicts.counts(self._snapshots.queue.waiting))

    async def _plan(self, snapshot: Snapshot, budget: Callable[[], bool]) -> Plan:
        """Plan in a thread, and meanwhile carry out what is decided already."""
        loop, decisions = asyncio.get_running_loop(), asyncio.Queue[Decision | None]()

        def decided(decision: Decision) -> None:
            loop.call_soon_threadsafe(decisions.put_nowait, decision)

        async with asyncio.TaskGroup() as group:
            group.create_task(self._carry_out(decisions))
            plan = await asyncio.to_thread(self._planner, snapshot, self._now(), budget, decided)
            decisions.put_nowait(None)
        return plan

    async def _carry_out(self, decisions: asyncio.Queue[Decision | None]) -> None:
        number = 0
        while (decision := await decisions.get()) is not None:
            if self._still_waits(decision):
                (self._start if decision.action is Action.PLACE else self._evictions.begin)(decision)
            number += 1
            if number % CHUNK == 0:
                await asyncio.sleep(0)

    def _report(self, faults: Sequence[str]) -> None:
        """What the pass skipped (R10): logged when it is news, not in every pass."""
        for fault in set(faults) - self._faults:
            log.error("the planner skipped an object: %s", fault)
            self._metrics.errors.labels("planner").inc()
        self._faults = set(faults)

    def _still_waits(self, decision: Decision) -> bool:
        # The task may have been deleted, suspended or changed while the planner thought, and its node may be gone.
        uid = decision.task.uid
        if self._snapshots.queue.refresh(uid):
            self._dispatch.changed.set()
        is_there = decision.node in self._snapshots.nodes
        return is_there and self._snapshots.queue.waiting.get(uid) == decision.task


def _budget(started: float) -> Callable[[], bool]:
    return lambda: time.perf_counter() - started < PASS_SECONDS
