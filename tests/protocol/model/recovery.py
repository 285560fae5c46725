"""A fresh leader, alone, with fresh reads: the recovery table, row by row, in the order of protocol line 18.

Deterministic, and made of the server's writes only. Each step that the writers of the model could not take as well
would be a gap in the table or in the model; a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import server
from .checks import violation
from .naming import canonical
from .rebuild import bound_here
from .state import (
    ANY_NODE,
    CANCELLED,
    CLAIMED,
    DEAD,
    FINISHED,
    GONE,
    LIVE,
    NO_UID,
    RUNNING,
    STOPPING,
    SUCCEEDED,
    UNBOUND,
    WAITING,
    Entry,
    GpuNode,
    Pod,
    PutNode,
    PutTask,
    State,
    Uid,
    pod_of,
)

Action = tuple[str, State]
"""A row of the recovery table, in words, and the state after it."""

Rows = tuple[Callable[[State], Iterator[Action]], ...]

LONGEST = 60
"""Steps after which a recovery counts as stuck: some three times what any state of the quick bounds needs."""


def recover(state: State, known_good: set[State], rows: Rows | None = None) -> str | None:
    """Run to the end. The reason if something breaks or gets stuck; else None, and the path joins `known_good`.

    `rows`: :data:`ROWS`, or fewer to see that each is needed.
    """
    path = []
    state = canonical(state._replace(writes=()))
    while state not in known_good:
        path.append(state)
        if len(path) > LONGEST:
            return f"no end in sight after {LONGEST} steps"
        action = next_action(state, rows or ROWS)
        if action is None:
            if not at_rest(state):
                return "stuck: something is left and nothing is to be done"
            break
        state = canonical(action[1])
        broken = violation(state)
        if broken:
            return f"{action[0]}: {broken}"
    known_good.update(path)
    return None


def at_rest(state: State) -> bool:
    """All tasks have ended, every entry is released, no pod waits or runs, every GpuNode is rebuilt."""
    return (
        all(task.phase in (FINISHED, CANCELLED) for task in state.tasks)
        and all(node.rebuilt and not node.entries for node in state.nodes)
        and all(pod.phase in DEAD for pod in state.pods)
    )


def next_action(state: State, rows: Rows) -> Action | None:
    """The first action due in the order of `rows`."""
    for row in rows:
        for action in row(state):
            return action
    return None


def rebuild(state: State) -> Iterator[Action]:
    for number, node in enumerate(state.nodes):
        if not node.rebuilt:
            bumped = state
            for pod in state.pods:
                if pod.phase == UNBOUND and pod.node in (number, ANY_NODE):
                    bumped = _done(server.patch_pod(bumped, pod.uid))
            yield "GpuNode not rebuilt: bump, list, book", _put(bumped, number, bound_here(bumped, number))


def release(state: State) -> Iterator[Action]:
    for number, node in enumerate(state.nodes):
        for entry in node.entries:
            pod = pod_of(state, entry.uid)
            others = _without(node, entry.uid)
            if pod.phase in DEAD or (pod.phase in LIVE and pod.node != number):
                yield "entry, pod gone, terminal or bound elsewhere: release", _put(state, number, others)
            elif pod.phase == UNBOUND and not _resumes(state, pod):
                fenced = _done(server.patch_pod(state, pod.uid)) if pod.rv == entry.rv else state
                yield "entry of a pod not to be bound: fence and release", _put(fenced, number, others)


def confirm(state: State) -> Iterator[Action]:
    for number, node in enumerate(state.nodes):
        for entry in node.entries:
            pod = pod_of(state, entry.uid)
            if not entry.bound and pod.phase in LIVE and pod.node == number:
                entries = _with(node, entry._replace(bound=True))
                yield "entry InFlight, pod bound here: confirm", _put(state, number, entries)


def claimed_pods(state: State) -> Iterator[Action]:
    for number, task in enumerate(state.tasks):
        if task.phase == CLAIMED:
            pod = pod_of(state, task.uid)
            if pod.phase == GONE:
                yield "claimed pod missing: record the end", _end(state, number, CANCELLED if task.stop else WAITING)
            elif pod.phase == SUCCEEDED:
                yield "claimed pod terminal: record the end", _end(state, number, FINISHED)
            elif task.stop and pod.phase in (UNBOUND, RUNNING):
                yield "cancelled, claimed pod lives: delete", _done(server.delete_pod(state, pod.uid))
    for pod in state.pods:
        if pod.phase == UNBOUND and _resumes(state, pod):
            yield from _resume(state, pod)


def _resume(state: State, pod: Pod) -> Iterator[Action]:
    for number, node in enumerate(state.nodes):
        for entry in node.entries:
            if entry.uid == pod.uid and entry.rv == pod.rv:
                bound = _done(server.bind(state, pod.uid, entry.rv, number))
                yield "entry, pod unbound, stored = live: bind", bound
            elif entry.uid == pod.uid:
                entries = _with(node, entry._replace(rv=pod.rv))
                yield "entry, pod unbound, stored and live differ: renew", _put(state, number, entries)
    room = [number for number in _free_nodes(state) if pod.node in (number, ANY_NODE)]
    if room:
        yield "claimed pod unbound, no entry: reserve", _put(state, room[0], (Entry(pod.uid, pod.rv),))
    elif state.tasks:
        yield "claimed pod unbound, no entry, no room: delete", _done(server.delete_pod(state, pod.uid))


def unclaimed_pods(state: State) -> Iterator[Action]:
    for pod in state.pods:
        if pod.phase == UNBOUND and not _resumes(state, pod):
            number, attempt = pod.uid[:2]
            task = state.tasks[number]
            waits = task.phase == WAITING and not task.stop and attempt == task.attempt + 1
            if waits and pod.node in _free_nodes(state):
                body = task._replace(attempt=attempt, uid=pod.uid, phase=CLAIMED)
                put = PutTask("3", number, task.rv, body)
                yield "unclaimed pod of the next attempt: claim", _done(server.put_task(state, put))
            else:
                yield "any other unclaimed pod: delete", _done(server.delete_pod(state, pod.uid))


def plan(state: State) -> Iterator[Action]:
    for number, task in enumerate(state.tasks):
        if task.phase == WAITING and task.stop:
            yield "cancelled without a live pod: record the end", _end(state, number, CANCELLED)
        elif task.phase == WAITING:
            for node in _free_nodes(state):
                created = server.create_pod(state, number, task.attempt + 1, node)
                if created:  # else AlreadyExists: the pod of that name is to be claimed or deleted first
                    yield "plan: create", created


def pods_run_on(state: State) -> Iterator[Action]:
    """Not the leader's doing, but what it waits for. A pod that is to be stopped never succeeds by itself."""
    for pod in state.pods:
        stops = bool(state.tasks) and state.tasks[pod.uid[0]].stop
        if pod.phase == STOPPING or (pod.phase == RUNNING and not stops):
            yield "(the kubelet ends a pod)", _done(server.end_pod(state, pod.uid))


ROWS: Rows = (rebuild, release, confirm, claimed_pods, unclaimed_pods, plan, pods_run_on)
"""Protocol line 18: rebuild and book, release, confirm, resume claimed pods, clean up unclaimed pods, then plan."""


def _resumes(state: State, pod: Pod) -> bool:
    """The claim names this UID and the task is still wanted (extender: the pod is its own claim)."""
    if not state.tasks:
        return True
    task = state.tasks[pod.uid[0]]
    return task.phase == CLAIMED and task.uid == pod.uid and not task.stop


def _free_nodes(state: State) -> list[int]:
    return [number for number, node in enumerate(state.nodes) if node.rebuilt and not node.entries]


def _without(node: GpuNode, uid: Uid) -> tuple[Entry, ...]:
    return tuple(entry for entry in node.entries if entry.uid != uid)


def _with(node: GpuNode, entry: Entry) -> tuple[Entry, ...]:
    return tuple(sorted((*_without(node, entry.uid), entry)))


def _put(state: State, number: int, entries: tuple[Entry, ...]) -> State:
    body = GpuNode(rebuilt=True, entries=entries)
    return _done(server.put_node(state, PutNode("", number, state.nodes[number].rv, body)))


def _end(state: State, number: int, phase: int) -> State:
    task = state.tasks[number]
    body = task._replace(uid=NO_UID, phase=phase)
    return _done(server.put_task(state, PutTask("12", number, task.rv, body)))


def _done(after: State | None) -> State:
    """Alone, with fresh reads, nothing is refused."""
    assert after is not None
    return after
