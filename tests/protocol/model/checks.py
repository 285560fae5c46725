"""What must hold in every state."""

from __future__ import annotations

from typing import Final

from .state import CANCELLED, FINISHED, LIVE, SUCCEEDED, State

TWO_OWNERS: Final = "two live owners of one device"
RUNS_TWICE: Final = "one task runs twice"
ENDED_RUNS: Final = "an ended task runs again"
NOT_BOOKED: Final = "a bound pod is not booked"


def violation(state: State) -> str | None:
    """The first broken promise, in words; None if all hold."""
    live = [pod for pod in state.pods if pod.phase in LIVE]
    if not live:
        return None
    if len({pod.node for pod in live}) < len(live):
        return TWO_OWNERS
    owners = [pod.uid[0] for pod in live]
    if len(set(owners)) < len(owners):
        return RUNS_TWICE
    if state.tasks and any(state.tasks[number].phase in (FINISHED, CANCELLED) for number in owners):
        return ENDED_RUNS
    if any(pod.phase == SUCCEEDED and pod.uid[0] in owners for pod in state.pods):
        return ENDED_RUNS
    for pod in live:
        node = state.nodes[pod.node]
        if node.rebuilt and all(entry.uid != pod.uid for entry in node.entries):
            return NOT_BOOKED
    return None
