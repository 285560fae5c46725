"""Lines 2, 3 and 12: pods, claims and ends, compared-and-swapped on the GpuTask."""

from __future__ import annotations

from collections.abc import Iterator

from . import server
from .rules import Bounds, Rules
from .state import (
    CANCELLED,
    CLAIMED,
    DEAD,
    FINISHED,
    GONE,
    NO_UID,
    SUCCEEDED,
    UNBOUND,
    WAITING,
    PutTask,
    State,
    Task,
    pod_of,
)
from .steps import Step, prepared


def create(state: State, bounds: Bounds) -> Iterator[Step]:
    """Line 2: a pod for the attempt after the claimed one, as some cache of the GpuTask, of any age, shows it.

    AlreadyExists needs no step of its own: to go on with the pod that is there is :func:`claim`, to delete it is a
    delete like any other.
    """
    for number, task in enumerate(state.tasks):
        next_known = task.attempt + (task.phase in (WAITING, CANCELLED))
        for attempt in range(1, min(next_known, bounds.attempts) + 1):
            if sum(pod.uid[:2] == (number, attempt) for pod in state.pods) < bounds.namesakes:
                for node in range(bounds.nodes):
                    label = ("2", "create a pod", ((number, attempt, 0), node))
                    yield label, server.create_pod(state, number, attempt, node)


def claim(state: State) -> Iterator[Step]:
    """Line 3: prepare the claim of an unbound pod. The end of the attempt before is recorded (WAITING)."""
    for pod in state.pods:
        number, attempt = pod.uid[:2]
        if pod.phase == UNBOUND and number < len(state.tasks):
            task = state.tasks[number]
            if task.phase == WAITING and not task.stop and attempt == task.attempt + 1:
                body = task._replace(attempt=attempt, uid=pod.uid, phase=CLAIMED)
                yield ("3", "prepare the claim", (pod.uid,)), prepared(state, PutTask("3", number, task.rv, body))


def end(state: State, rules: Rules) -> Iterator[Step]:
    """Line 12: prepare the record of an end, once the claimed UID is proven dead. A waiting task has no live UID."""
    for number, task in enumerate(state.tasks):
        after = None
        if task.phase == CLAIMED:
            phase = claimed_phase(state, task, rules)
            if phase in DEAD or not rules.attempt_needs_death:
                after = FINISHED if phase == SUCCEEDED else CANCELLED if task.stop else WAITING
        elif task.phase == WAITING and task.stop:
            after = CANCELLED
        if after is not None:
            body = task._replace(uid=NO_UID, phase=after)
            put = PutTask("12", number, task.rv, body)
            yield ("12", "prepare the record of the end", (number,)), prepared(state, put)


def claimed_phase(state: State, task: Task, rules: Rules) -> int:
    """What a live GET proves about the claimed pod."""
    if rules.claim_names_uid:
        return pod_of(state, task.uid).phase
    by_name = (pod.phase for pod in state.pods if pod.uid[:2] == task.uid[:2] and pod.phase != GONE)
    return next(by_name, GONE)
