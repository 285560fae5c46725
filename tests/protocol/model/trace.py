"""Traces as readable lines: protocol line, what happened, and the state in which it ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .state import POD_PHASES, TASK_PHASES, Entry, PutNode, PutTask, State, Task, Uid, pod_of
from .steps import Label


def lines(trace: Sequence[tuple[Label, State]], broken: str | None) -> Iterator[str]:
    """One line for each step, the last state, and what is broken in it."""
    for index, ((line, verb, things), state) in enumerate(trace, start=1):
        place = f"line {line.split()[0]}" if line else ""
        yield f"{index:3}  {place:8} {verb} {_things(verb, things, state)}".rstrip()
    if trace:
        yield from _state(trace[-1][1])
        yield f"     broken: {broken}"


def _things(verb: str, things: tuple[object, ...], state: State) -> str:
    words = []
    for thing in things:
        if isinstance(thing, PutTask):
            words.append(f"PUT GpuTask t{thing.number} ({_task(thing.body)})")
        elif isinstance(thing, PutNode):
            words.append(f"PUT GpuNode n{thing.number} [{_entries(thing.body.entries, state)}]")
        elif isinstance(thing, tuple):
            words.append(_uid(thing))
        else:
            of_task = "user" in verb or "end" in verb.split()
            words.append(f"t{thing}" if of_task else f"on n{thing}" if words else f"n{thing}")
    return " ".join(words)


def _uid(uid: Uid) -> str:
    task, attempt, generation = uid
    return f"t{task}-{attempt}" + "'" * generation


def _task(task: Task) -> str:
    claim = f" {_uid(task.uid)}" if task.uid else ""
    return TASK_PHASES[task.phase] + claim + (", to stop" if task.stop else "")


def _entries(entries: tuple[Entry, ...], state: State) -> str:
    words = []
    for entry in entries:
        version = "current" if pod_of(state, entry.uid).rv == entry.rv else "superseded"
        words.append(f"{_uid(entry.uid)} {'Bound' if entry.bound else 'InFlight'} at {version} version")
    return ", ".join(words)


def _state(state: State) -> Iterator[str]:
    for number, task in enumerate(state.tasks):
        yield f"     t{number}: {_task(task)}"
    for pod in state.pods:
        yield f"     {_uid(pod.uid)}: {POD_PHASES[pod.phase]}, node n{pod.node}"
    for number, node in enumerate(state.nodes):
        yield f"     n{number}: {'' if node.rebuilt else 'not '}rebuilt [{_entries(node.entries, state)}]"
