"""Canonical names of resourceVersions and UIDs: what makes the space finite without a limit on writes.

ResourceVersions are compared for equality only, so all that a stored one can ever tell is whether the object was
written since. The current one becomes 1 and every superseded one 0. `exact=True` keeps superseded versions apart; a
test shows that both namings reach the same states.
"""

from __future__ import annotations

from collections.abc import Iterator

from .state import GONE, Entry, Pod, PutNode, PutTask, Rebuild, Request, Seen, State, Uid


def canonical(state: State, *, unchecked: tuple[type, ...] = (), exact: bool = False) -> State:
    """One name for states that no step can tell apart.

    A PUT under a superseded resourceVersion can only end in 409, after which its sender reads again: it is dropped at
    once. (Not so the kinds in `unchecked`, for the variations in which the version is not compared.)
    """
    if state.writes:
        kept = [w for w in state.writes if isinstance(w, unchecked) or not _is_stale(state, w)]
        state = State(state.tasks, state.pods, state.nodes, tuple(sorted(kept)))
    state = _forget_unnamed(state)
    renamed = {pod.uid: _names(state, pod, exact) for pod in state.pods if exact or pod.rv != 1}
    if renamed:
        state = _rename(state, renamed)
    return _reset_object_versions(state)


def _is_stale(state: State, write: Request) -> bool:
    if isinstance(write, Seen):
        return False
    current = state.tasks if isinstance(write, PutTask) else state.nodes
    return current[write.number].rv != write.rv


def _entry_lists(state: State) -> Iterator[tuple[Entry, ...]]:
    for node in state.nodes:
        yield node.entries
    for write in state.writes:
        if isinstance(write, PutNode):
            yield write.body.entries
        elif isinstance(write, Rebuild) and write.listed:
            yield write.listed


def _forget_unnamed(state: State) -> State:
    """A UID that is gone and that nothing names any more may be forgotten, and its number used again."""
    gone = [pod.uid for pod in state.pods if pod.phase == GONE]
    if not gone:
        return state
    named = set(_named(state))
    if named.issuperset(gone):
        return state
    pods = tuple(pod for pod in state.pods if pod.phase != GONE or pod.uid in named)
    return State(state.tasks, pods, state.nodes, state.writes)


def _named(state: State) -> Iterator[Uid]:
    for task in state.tasks:
        yield task.uid
    for entries in _entry_lists(state):
        for entry in entries:
            yield entry.uid
    for write in state.writes:
        if isinstance(write, PutTask):
            yield write.body.uid
        elif isinstance(write, Seen):
            yield write.uid
        elif isinstance(write, Rebuild):
            yield from write.to_bump


def _names(state: State, pod: Pod, exact: bool) -> dict[int, int]:
    versions = {pod.rv}
    for entries in _entry_lists(state):
        versions.update(entry.rv for entry in entries if entry.uid == pod.uid)
    versions.update(w.rv for w in state.writes if isinstance(w, Seen) and w.uid == pod.uid)
    if exact:
        return {version: rank for rank, version in enumerate(sorted(versions))}
    return {version: int(version == pod.rv) for version in versions}


def _rename(state: State, names: dict[Uid, dict[int, int]]) -> State:
    def entries_of(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        return tuple(e._replace(rv=names[e.uid][e.rv]) if e.uid in names else e for e in entries)

    def write_of(write: Request) -> Request:
        if isinstance(write, PutNode):
            return write._replace(body=write.body._replace(entries=entries_of(write.body.entries)))
        if isinstance(write, Rebuild) and write.listed:
            return write._replace(listed=entries_of(write.listed))
        if isinstance(write, Seen) and write.uid in names:
            return write._replace(rv=names[write.uid][write.rv])
        return write

    return State(
        state.tasks,
        tuple(p._replace(rv=names[p.uid][p.rv]) if p.uid in names else p for p in state.pods),
        tuple(node._replace(entries=entries_of(node.entries)) if node.entries else node for node in state.nodes),
        tuple(sorted(write_of(write) for write in state.writes)),
    )


def _reset_object_versions(state: State) -> State:
    """Of GpuTasks and GpuNodes only current versions are left in `writes`, or (no check) versions mean nothing."""
    tasks, nodes, writes = state.tasks, state.nodes, state.writes
    if not any(thing.rv != 1 for things in (tasks, nodes) for thing in things):
        return state
    tasks = tuple(task if task.rv == 1 else task._replace(rv=1) for task in tasks)
    nodes = tuple(node if node.rv == 1 else node._replace(rv=1) for node in nodes)
    writes = tuple(sorted(w if isinstance(w, Seen) or w.rv == 1 else w._replace(rv=1) for w in writes))
    return State(tasks, state.pods, nodes, writes)
