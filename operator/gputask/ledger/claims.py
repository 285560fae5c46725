"""The claim of a task: its status says which pod UID is attempt n (protocol lines 3, 4 and 12).

The claim stops two writers from placing one task twice. It is written only here, and always under the GpuTask's
resourceVersion. It moves on only from a UID that is proven dead, after that end was recorded (state ``Ended``); so a
claim read from an old cache still names a UID that may be bound, or one that is dead for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gputask.api.conditions import Phase
from gputask.api.times import epoch
from gputask.kube.client import Client, Object
from gputask.kube.errors import Conflict, NotFound, OutcomeUnknown, ServerError, TooManyRequests, Unreachable
from gputask.kube.resources import GPUTASKS
from gputask.kube.writes import Writes
from gputask.ledger.pods import Literals, Manifest, uid_of
from gputask.planner.model import Rank
from gputask.translate.reservations import allocation_from_json, allocation_to_json

TRIES = 8

StatusOf = Callable[[Manifest], Mapping[str, Any]]
"""What else the status should say, for the very version of the task that it is written under."""


def nothing_else(_task: Manifest) -> Mapping[str, Any]:
    return {}


class ClaimState(StrEnum):
    CLAIMED = "Claimed"
    ENDED = "Ended"
    """The pod is dead and this was recorded: the next attempt may be claimed."""
    QUARANTINED = "Quarantined"
    """A lease that expired: nothing is claimed after it, and its entry stays until the task is gone."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Attempt ``attempt`` of a task is the pod ``pod_uid``; of a lease, which has no pod, the grant of this UID."""

    attempt: int
    pod: str
    pod_uid: str
    literals: Literals
    state: ClaimState = ClaimState.CLAIMED

    @property
    def live(self) -> bool:
        return self.state is not ClaimState.ENDED

    @property
    def is_lease(self) -> bool:
        return not self.pod


@dataclass(frozen=True, slots=True)
class Won:
    """The claim is written; ``task`` is the version that holds it."""

    task: Object


class Loss(StrEnum):
    """Why a claim is not to be had."""

    GONE = "the task is gone"
    DELETING = "the task is being deleted"
    FINISHED = "the task has finished"
    SUSPENDED = "the task is suspended"
    OTHER = "another pod was claimed"
    WANTED = "the task is wanted after all"
    HELD = "its holder was told that it has it"


def claim_of(task: Manifest) -> Claim | None:
    """The claim that a GpuTask's status records, live or ended; None before the first attempt."""
    record = (task.get("status") or {}).get("reservation")
    if not record or not record.get("podUID"):
        return None
    literals = Literals(
        node=record["node"],
        variant=record["variant"],
        variant_index=record.get("variantIndex") or 0,
        allocation=allocation_from_json(record),
    )
    state = record.get("state")
    return Claim(
        attempt=record["attempt"],
        pod=record.get("pod") or "",
        pod_uid=record["podUID"],
        literals=literals,
        state=ClaimState(state) if state in tuple(ClaimState) else ClaimState.CLAIMED,
    )


def rank_of(task: Manifest) -> Rank:
    """The rank of a task (R1), as the API server shows it."""
    spec, status, created = task.get("spec") or {}, task.get("status") or {}, task["metadata"].get("creationTimestamp")
    priority = spec.get("priority")
    if priority is None:
        priority = status.get("priority") or 0  # of priorityClassName, resolved once
    return (-int(priority), epoch(created) if created else 0.0, uid_of(task))


def next_attempt(task: Manifest) -> int:
    """The number of the attempt after the claimed one (protocol line 2). It is not the crash counter (line 12)."""
    claim = claim_of(task)
    return claim.attempt + 1 if claim is not None else 1


def why_not_wanted(task: Manifest) -> Loss | None:
    """Why this task must not get, or keep, a place (protocol line 3); None if it may."""
    if task["metadata"].get("deletionTimestamp"):
        return Loss.DELETING
    if (task.get("status") or {}).get("phase") in (Phase.SUCCEEDED, Phase.FAILED):
        return Loss.FINISHED
    return Loss.SUSPENDED if (task.get("spec") or {}).get("suspend") else None


class Claims:
    """Compare-and-swap of the claim. Unknown outcomes are settled by live reads; what remains is raised."""

    def __init__(
        self, *, client: Client, writes: Writes, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._client = client
        self._writes = writes
        self._sleep = sleep

    async def claim(self, task: Manifest, claim: Claim, *, status: StatusOf = nothing_else) -> Won | Loss:
        """Protocol line 3. ``task`` may be an old version; a loss is judged on a live one only.

        :raises KubeError: not settled; it may have taken effect, and the caller may simply call again.
        """

        def judge(version: Manifest) -> Loss | bool:
            current = claim_of(version)
            if current is not None and current.pod_uid == claim.pod_uid:
                return True if current.live else Loss.OTHER
            return why_not_wanted(version) or (Loss.OTHER if current is not None and current.live else False)

        return await self._swap(task, judge=judge, record=_to_json(claim), status=status)

    async def end(
        self,
        task: Manifest,
        pod_uid: str,
        *,
        status: StatusOf,
        state: ClaimState = ClaimState.ENDED,
        unless: Callable[[Manifest], Loss | None] = lambda version: None,
    ) -> Won | Loss:
        """Protocol line 12: record the end of the attempt ``pod_uid``, **which the caller has proven dead**. A lease is
        dead by this very write (line 20), so it depends on what the version says: ``unless`` it says why not.

        :raises KubeError: not settled; call again.
        """

        def judge(version: Manifest) -> Loss | bool:
            current = claim_of(version)
            if current is None or current.pod_uid != pod_uid:
                return Loss.OTHER
            return True if current.state is not ClaimState.CLAIMED else unless(version) or False

        return await self._swap(task, judge=judge, record={"state": state.value}, status=status)

    async def live(self, task: Manifest) -> Object | None:
        """The task as stored now; None if it is gone, or another has its name."""
        metadata = task["metadata"]
        try:
            stored = await self._client.get(GPUTASKS, metadata["name"], metadata["namespace"])
        except NotFound:
            return None
        return stored if uid_of(stored) == metadata["uid"] else None

    async def _swap(
        self,
        task: Manifest,
        *,
        judge: Callable[[Manifest], Loss | bool],
        record: Mapping[str, Any],
        status: StatusOf,
    ) -> Won | Loss:
        """``judge`` says of one version: lost, there already (True), or to be written (False)."""
        version: Manifest | None = task
        is_live = False
        trouble: Exception | None = None
        for turn in range(TRIES):
            try:
                if version is None:
                    version, is_live = await self.live(task), True
                if version is None:
                    return Loss.GONE
                verdict = judge(version)
                if verdict is False:
                    return Won(await self._write(version, record, status(version)))
                if is_live:
                    return verdict if isinstance(verdict, Loss) else Won(dict(version))
                version = None  # decided without a write: only on what is stored now
            except (Conflict, NotFound):
                version = None
            except (OutcomeUnknown, Unreachable, ServerError, TooManyRequests) as error:
                trouble, version = error, None
                await self._sleep(0.05 * 2**turn)
        raise trouble or Unreachable(f"{task['metadata']['name']} changed {TRIES} times under our writes")

    async def _write(self, version: Manifest, record: Mapping[str, Any], status: Mapping[str, Any]) -> Object:
        metadata = version["metadata"]
        before = (version.get("status") or {}).get("reservation") or {}
        if record["state"] == ClaimState.CLAIMED:
            record = _replacing(before, record)
        return await self._writes.task_status(
            metadata["namespace"],
            metadata["name"],
            {**status, "reservation": record},
            resource_version=metadata["resourceVersion"],
        )


def _replacing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that leaves nothing of ``before``: a merge alone would add the old amounts to the new."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        patch[key] = _replacing(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return patch


def _to_json(claim: Claim) -> dict[str, Any]:
    return {
        "attempt": claim.attempt,
        "pod": claim.pod,
        "podUID": claim.pod_uid,
        "node": claim.literals.node,
        "variant": claim.literals.variant,
        "variantIndex": claim.literals.variant_index,
        **allocation_to_json(claim.literals.allocation),
        "state": claim.state.value,
    }
