"""Carries out place decisions: begins the admission, and draws the consequences of its outcome.

The outcome only tells whom to pause and what to say. What is reserved, bound or ended stands in the ledger and in the
claim, and is read from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from gputask.api.conditions import ReservedReason
from gputask.controller import pods
from gputask.controller.backoff import Backoff, Refusal
from gputask.controller.events import Events
from gputask.controller.metrics import Metrics
from gputask.controller.store import Store
from gputask.ledger.admission import Admission, Placement
from gputask.ledger.claims import next_attempt
from gputask.ledger.nodes import NodeLedgers
from gputask.ledger.outcome import Kind, Outcome
from gputask.ledger.pods import Literals, Manifest
from gputask.planner.model import Decision
from gputask.resources.amounts import is_memory
from gputask.translate.nodes import extended_resources
from gputask.translate.podspec import SpecError
from gputask.translate.tasks import read_task

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Begun:
    """When an admission began, and how often something had been released on its node by then."""

    at: float
    releases: int


class Placements:
    """``changed(task UID, node)`` is told whenever the room assumed for a task comes or goes."""

    def __init__(
        self,
        *,
        store: Store,
        admission: Admission,
        ledgers: NodeLedgers,
        backoff: Backoff,
        events: Events,
        metrics: Metrics,
        clock: Callable[[], float],
        changed: Callable[[str, str], None],
    ) -> None:
        self._store = store
        self._admission = admission
        self._ledgers = ledgers
        self._backoff = backoff
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._changed = changed

    def start(self, decision: Decision) -> None:
        """Begin to carry out a decision. Synchronous: its room is assumed when this returns (protocol line 1), or the
        task pauses on that node."""
        manifest = self._store.tasks[decision.task.uid]
        node = self._store.nodes[decision.node]
        literals = Literals(decision.node, decision.variant, decision.variant_index, decision.allocation)
        task = read_task(manifest)  # it can be read: what could not be is not planned

        def build(attempt: int) -> Manifest:
            return pods.manifest(task, attempt=attempt, literals=literals, extended=extended_resources(node))

        attempt = next_attempt(manifest)
        try:
            if task.spec.lease is None:
                build(attempt)
        except SpecError as error:  # right in itself, but this node has a whole-numbered resource of that name (B48)
            field = f"spec.variants[{decision.variant_index}].{error.field}"
            refusal = Refusal(ReservedReason.POD_REFUSED, f"on {decision.node} {field}: {error}")
            self._backoff.refuse_on(decision.task.uid, decision.node, refusal)
            self._events.emit(manifest, refusal.reason.value, refusal.message, warning=True)
            self._changed(decision.task.uid, decision.node)
            return
        placement = Placement(
            task=manifest, attempt=attempt, literals=literals, build=build if task.spec.lease is None else None
        )
        admitted = self._admission.begin(placement)
        self._changed(decision.task.uid, decision.node)
        begun = _Begun(self._clock(), self._backoff.releases_on(decision.node))
        admitted.add_done_callback(lambda task: self._ended(decision, task, begun))

    def _ended(self, decision: Decision, admitted: asyncio.Task[Outcome], begun: _Begun) -> None:
        uid, node = decision.task.uid, decision.node
        try:
            if not admitted.cancelled():
                self._draw(decision, admitted.result(), begun)
        except Exception:
            log.exception("admission of %s failed", decision.task.key)
            self._metrics.errors.labels("admission").inc()
            self._backoff.refuse(uid, Refusal(ReservedReason.BACK_OFF, "an unexpected error; see the operator's log"))
        finally:
            self._changed(uid, node)

    def _draw(self, decision: Decision, outcome: Outcome, begun: _Begun) -> None:
        uid, task = decision.task.uid, self._store.tasks.get(decision.task.uid)
        self._metrics.admissions.labels(outcome.kind.value).inc()
        match outcome.kind:
            case Kind.BOUND:
                self._backoff.forget(uid)
                self._metrics.bind_seconds.observe(self._clock() - begun.at)
                if task is not None:
                    self._say_bound(task, decision)
            case Kind.POD_REFUSED:
                self._pause(task, uid, Refusal(ReservedReason.POD_REFUSED, outcome.message))
            case Kind.BIND_REFUSED:
                self._pause(task, uid, Refusal(ReservedReason.BACK_OFF, f"the bind was refused: {outcome.message}"))
            case Kind.UNKNOWN:
                self._pause(task, uid, Refusal(ReservedReason.BACK_OFF, outcome.message))
            case Kind.NO_ROOM:
                # The ledger knew better than the snapshot. Elsewhere the task may start at once.
                refusal = Refusal(ReservedReason.BACK_OFF, outcome.message)
                self._backoff.no_room_on(uid, decision.node, refusal, since=begun.releases)
            case Kind.CLAIM_LOST | Kind.TASK_GONE | Kind.POD_GONE | Kind.POD_ELSEWHERE:
                pass  # whatever made it so is on its way to the store

    def _pause(self, task: Manifest | None, uid: str, refusal: Refusal) -> None:
        """The whole task backs off: meanwhile it neither starts nor holds."""
        seconds = self._backoff.refuse(uid, refusal)
        log.info("task %s: %s: %s; next try in %g s", uid, refusal.reason, refusal.message, seconds)
        if task is not None:
            self._events.emit(task, refusal.reason.value, refusal.message, warning=True)

    def _say_bound(self, task: Manifest, decision: Decision) -> None:
        devices = ", ".join(decision.allocation.devices) or "no device"
        self._events.emit(task, "Bound", f"variant {decision.variant} on {decision.node} ({devices})")
        if without := self._devices_without_memory(decision):
            text = f"variant {decision.variant} asks for no memory of {without}, so none is kept for it there"
            self._events.emit(task, "NoMemoryPromised", text, warning=True)

    def _devices_without_memory(self, decision: Decision) -> str:
        """Devices given to a task that has memory of its own and of which the task takes none (B44)."""
        ledger = self._ledgers.known(decision.node)
        taken = decision.allocation.amounts
        return ", ".join(
            device.id
            for device in (ledger.resources.devices if ledger is not None else ())
            if device.id in decision.allocation.devices
            and any(is_memory(name) for name in device.pools)
            and not any(is_memory(name) and f"{name}/{device.id}" in taken for name in device.pools)
        )
