"""Which tasks of some files run already, and where: first what pods say, then the ledger, then the tasks' status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gputask.api import names
from gputask.api.gputask import Reservation
from gputask.api.problems import problems as lines_of
from gputask.cli.files import Object, Objects
from gputask.ledger.entries import State
from gputask.translate.pods import is_terminal, task_uid


@dataclass(frozen=True, slots=True)
class Claim:
    """One task that runs on a node. What the files leave out of its record is derived later."""

    source: str
    """Where it stands: file, line, object, field."""
    task: str
    uid: str
    node: str
    variant: str | None
    record: Reservation | None
    start_time: str | None


@dataclass(frozen=True, slots=True)
class Claims:
    """Who runs where, by task key; tasks whose pod has ended; pods that are nobody's."""

    running: dict[str, Claim]
    ended: frozenset[str]
    foreign: tuple[Object, ...]


def find_claims(objects: Objects, problems: list[str]) -> Claims:
    """All running work of some files. What a ledger entry has wrong is a line in ``problems``."""
    return _Finder(objects, problems).find()


def is_over(task: Object) -> bool:
    """Whether a task has ended: nothing of it counts any more."""
    conditions = task.status.get("conditions") or ()
    finished = any(c.get("type") == "Finished" and c.get("status") == "True" for c in conditions)
    return finished or task.status.get("phase") in {"Succeeded", "Failed"}


class _Finder:
    def __init__(self, objects: Objects, problems: list[str]) -> None:
        self._objects = objects
        self._problems = problems
        self._tasks = {task.key: task for task in objects.tasks}
        self._by_uid = {task.uid: task for task in objects.tasks}
        self._pods = {pod.uid: pod for pod in objects.pods}
        self._entries = {uid: (source, record) for source, uid, record in self._ledger()}

    def find(self) -> Claims:
        running: dict[str, Claim] = {}
        ended: set[str] = set()
        foreign: list[Object] = []
        for pod in self._objects.pods:
            task = self._task_of(pod)
            if task is None:
                if pod.uid not in self._entries:
                    foreign.append(pod)
            elif is_terminal(pod.manifest):
                record = self._record(task)
                if record is not None and record.pod_uid == pod.uid:
                    ended.add(task.key)
            elif node := pod.spec.get("nodeName"):
                running.setdefault(task.key, self._of_pod(pod, task, node))
        for claim in (*self._of_ledger(), *self._of_status()):
            if claim.task not in ended:
                running.setdefault(claim.task, claim)
        return Claims(running, frozenset(ended), tuple(foreign))

    # --- pods ---------------------------------------------------------------------------------------

    def _task_of(self, pod: Object) -> Object | None:
        """By label, or by the controller; a task of a file may have no UID yet, then its name must do."""
        labelled = self._by_uid.get(task_uid(pod.manifest) or "")
        if labelled is not None:
            return labelled
        for owner in pod.metadata.get("ownerReferences") or ():
            if owner.get("kind") == names.GPUTASK_KIND and owner.get("controller"):
                task = self._by_uid.get(owner.get("uid")) or self._tasks.get(f"{pod.namespace}/{owner.get('name')}")
                if task is not None:
                    return task
        return None

    def _of_pod(self, pod: Object, task: Object, node: str) -> Claim:
        """Where it runs is the pod's word; what it was given is that of its entry, or of the claim."""
        source, record = self._entries.get(pod.uid, (f"{task}: status.reservation", self._record(task)))
        if record is None or record.node != node:
            source, record = str(pod), None
        variant = record.variant if record else _told(pod, names.VARIANT_ENV)
        start = pod.status.get("startTime") or (record.start_time if record else None)
        return Claim(source, task.key, task.uid, node, variant, record, start)

    # --- ledger and status --------------------------------------------------------------------------

    def _ledger(self) -> Iterator[tuple[str, str, Reservation]]:
        for gpunode in self._objects.gpunodes:
            entries = gpunode.status.get("reservations") or {}
            for uid, entry in entries.items() if isinstance(entries, dict) else ():
                source = f"{gpunode}: status.reservations[{uid}]"
                try:
                    record = Reservation.model_validate({"node": gpunode.name, **entry})
                except (TypeError, ValidationError) as error:
                    found = lines_of(error, Reservation) if isinstance(error, ValidationError) else ["is no mapping"]
                    self._problems += [f"{source}: {line}" for line in found]
                    continue
                if record.task is None:
                    self._problems.append(f"{source}.task: missing; write namespace/name")
                else:
                    yield source, uid, record

    def _of_ledger(self) -> Iterator[Claim]:
        for uid, (source, record) in self._entries.items():
            assert record.task is not None
            pod, task = self._pods.get(uid), self._tasks.get(record.task)
            over = task is not None and is_over(task) and record.state != State.QUARANTINED
            if (pod is None or not is_terminal(pod.manifest)) and not over:
                # An entry whose task is in no file still has its room.
                owner = task.uid if task else f"entry:{uid}"
                yield Claim(source, record.task, owner, record.node, record.variant, record, record.start_time)

    def _of_status(self) -> Iterator[Claim]:
        for task in self._objects.tasks:
            record = self._record(task)
            if record is not None and (not is_over(task) or record.state == State.QUARANTINED):
                source = f"{task}: status.reservation"
                yield Claim(source, task.key, task.uid, record.node, record.variant, record, record.start_time)

    def _record(self, task: Object) -> Reservation | None:
        """The claim in a task's status; a malformed one is reported where the whole task is read."""
        record = task.status.get("reservation")
        try:
            return None if record is None else Reservation.model_validate(record)
        except ValidationError:
            return None


def _told(pod: Object, variable: str) -> str | None:
    """What the containers of a pod of ours were told by a literal."""
    variables: Iterator[Mapping[str, Any]] = (
        variable for container in pod.spec.get("containers") or () for variable in container.get("env") or ()
    )
    return next((env.get("value") for env in variables if env.get("name") == variable), None)
