"""What must hold in every state."""

from __future__ import annotations

from .state import CANCELLED, FINISHED, LIVE, SUCCEEDED, State


def violation(state: State) -> str | None:
    """The first broken promise, in words; None if all hold."""
    live = [pod for pod in state.pods if pod.phase in LIVE]
    if not live:
        return None
    if len({pod.node for pod in live}) < len(live):
        return "two live owners of one device"
    owners = [pod.uid[0] for pod in live]
    if len(set(owners)) < len(owners):
        return "one task runs twice"
    if state.tasks and any(state.tasks[number].phase in (FINISHED, CANCELLED) for number in owners):
        return "an ended task runs again"
    if any(pod.phase == SUCCEEDED and pod.uid[0] in owners for pod in state.pods):
        return "a task that has succeeded runs again"
    for pod in live:
        node = state.nodes[pod.node]
        if node.rebuilt and all(entry.uid != pod.uid for entry in node.entries):
            return "a bound pod is not booked"
    return None
