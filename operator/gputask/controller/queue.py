"""What each GpuTask is to the planner: waiting, live, suspended, finished, or not understood.

A task is read once for each generation of it; after that only its status and the pauses decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from gputask.api.conditions import Phase, ReservedReason, TaskCondition
from gputask.api.gputask import GpuTaskSpec
from gputask.api.names import QueueMode
from gputask.api.times import epoch
from gputask.controller.backoff import Backoff, Refusal
from gputask.controller.queue_limit import QueueLimit
from gputask.controller.store import Store
from gputask.ledger.claims import claim_of
from gputask.ledger.pods import Manifest
from gputask.planner import model
from gputask.translate.tasks import ClassTable, TaskError, planner_task, read_task

UNREAD = -1
"""Generation of a reading that is done again at the next look, because it hangs on another object."""


class Standing(StrEnum):
    """Where a task stands, as the cache shows it."""

    WAITING = "Waiting"
    LIVE = "Live"
    """It has a claim whose end is not recorded: a pod is reserved, bound, running or ending."""
    SUSPENDED = "Suspended"
    PAUSED = "Paused"
    """In back-off after an error: it neither holds nor starts."""
    HELD = "Held"
    """Its namespace is paused."""
    REFUSED = "Refused"
    """As many others wait as may."""
    INVALID = "Invalid"
    FINISHED = "Finished"
    DELETED = "Deleted"


_WAITS = frozenset({Standing.WAITING, Standing.SUSPENDED, Standing.PAUSED, Standing.HELD})


@dataclass(frozen=True, slots=True)
class Terms:
    """What of a task counts while it runs. All else is read from the manifest again when a pod is made: to keep every
    task as a model would take more memory than the manifests do."""

    preemptible: bool
    min_runtime_seconds: int
    start_timeout_seconds: int


@dataclass(frozen=True, slots=True)
class Reading:
    """One generation of a task as understood. ``terms`` and ``planned`` are None where ``problems`` say why."""

    generation: int
    terms: Terms | None
    planned: model.Task | None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """A task as of the last refresh. ``planned`` is set only while it waits."""

    standing: Standing
    reading: Reading
    planned: model.Task | None = None


def _without_reports(manifest: Manifest) -> Manifest:
    """All that decides what a task is: of its status only the resolved priority."""
    priority = (manifest.get("status") or {}).get("priority")
    return {**manifest, "status": {} if priority is None else {"priority": priority}}


class TaskQueue:
    """All tasks, by UID. ``waiting`` is what goes into the snapshot."""

    def __init__(
        self,
        store: Store,
        backoff: Backoff,
        *,
        limit: QueueLimit,
        in_progress: Callable[[str], bool],
        on_read: Callable[[str], None] = lambda uid: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``on_read`` is told of a task that is understood anew: what runs of it may be worth something else now."""
        self._store = store
        self._backoff = backoff
        self._limit = limit
        self._in_progress = in_progress
        self._on_read = on_read
        self._now = now
        self._classes = ClassTable()
        self._terms: dict[Terms, Terms] = {}
        self.known: dict[str, Known] = {}
        self.waiting: dict[str, model.Task] = {}

    def refresh(self, uid: str) -> bool:
        """Look at one task again.

        :returns: whether what the planner sees of it changed.
        """
        manifest = self._store.tasks.get(uid)
        if manifest is None:
            self.known.pop(uid, None)
            self._backoff.forget(uid)
            self._limit.leave(uid)
            return self.waiting.pop(uid, None) is not None
        known, reading = self.known.get(uid), self._read(uid, manifest)
        standing = self._limited(uid, manifest, self._standing(uid, manifest, reading))
        planned = self._planned(uid, reading) if standing is Standing.WAITING else None
        self.known[uid] = Known(standing, reading, planned)
        if known is None or known.reading is not reading:
            self._on_read(uid)
        before = self.waiting.get(uid)
        if planned is None:
            self.waiting.pop(uid, None)
        else:
            self.waiting[uid] = planned
        return planned != before

    def forget(self, uid: str) -> None:
        """Show the planner nothing of this task."""
        self.waiting.pop(uid, None)

    def _read(self, uid: str, manifest: Manifest) -> Reading:
        generation = int(manifest["metadata"].get("generation") or 0)
        before = self.known.get(uid)
        if before is not None and before.reading.generation == generation:
            return before.reading
        if before is not None:
            self._backoff.forget(uid)  # the user changed something: try at once
        try:
            task = read_task(_without_reports(manifest))
            name = task.spec.priority_class_name
            if name is not None and task.status.priority is None:
                if name not in self._store.priority_classes:
                    line = (
                        f"spec.priorityClassName: there is no PriorityClass {name!r}; create it, or use spec.priority"
                    )
                    return Reading(UNREAD, None, None, (line,))
                resolved = task.status.model_copy(update={"priority": self._store.priority_classes[name]})
                task = task.model_copy(update={"status": resolved})
            return Reading(generation, self._terms_of(task.spec), planner_task(task, self._classes))
        except TaskError as error:
            return Reading(generation, None, None, tuple(error.lines))

    def _terms_of(self, spec: GpuTaskSpec) -> Terms:
        terms = Terms(spec.preemptible, spec.min_runtime_seconds, spec.start_timeout_seconds)
        return self._terms.setdefault(terms, terms)

    def _standing(self, uid: str, manifest: Manifest, reading: Reading) -> Standing:
        status = manifest.get("status") or {}
        if manifest["metadata"].get("deletionTimestamp"):
            return Standing.DELETED
        if status.get("phase") in (Phase.SUCCEEDED, Phase.FAILED):
            return Standing.FINISHED
        claim = claim_of(manifest)
        if self._in_progress(uid) or (claim is not None and claim.live):
            return Standing.LIVE
        if reading.planned is None:
            return Standing.INVALID
        if (manifest.get("spec") or {}).get("suspend"):
            return Standing.SUSPENDED
        if self._store.queue_modes.get(manifest["metadata"].get("namespace") or "default") in tuple(QueueMode):
            return Standing.HELD
        self._keep_pause(uid, status)
        return Standing.PAUSED if self._backoff.refusal(uid) is not None else Standing.WAITING

    def _limited(self, uid: str, manifest: Manifest, standing: Standing) -> Standing:
        """The same, or Refused where the queue is full."""
        if standing not in _WAITS:
            self._limit.leave(uid)
            return standing
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        accepted = any(c["type"] == TaskCondition.ACCEPTED and c["status"] == "True" for c in conditions)
        created = manifest["metadata"].get("creationTimestamp")
        is_in = self._limit.admits(uid, created=epoch(created) if created else 0.0, accepted=accepted)
        return standing if is_in else Standing.REFUSED

    def _keep_pause(self, uid: str, status: Manifest) -> None:
        """The pause that the status tells of, begun perhaps by an operator that is no more."""
        try:
            left = epoch(status["retryTime"]) - self._now() if status.get("retryTime") else 0.0
        except ValueError:
            return  # written by somebody else
        if left > 0:
            crashes = status.get("crashes") or 0
            text = f"crashed {crashes} times; it starts again after {status['retryTime']}"
            self._backoff.pause(uid, left, Refusal(ReservedReason.BACK_OFF, text))

    def _planned(self, uid: str, reading: Reading) -> model.Task | None:
        excluded = self._backoff.excluded_nodes(uid)
        planned = reading.planned
        if planned is None:
            return None
        status = self._store.tasks[uid].get("status") or {}
        if planned.may_preempt and status.get("placementFailures"):
            planned = replace(planned, may_preempt=False)  # nobody is evicted for a task that may not land anyway
        return replace(planned, excluded_nodes=excluded) if excluded else planned
