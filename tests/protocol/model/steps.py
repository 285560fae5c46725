"""Words shared by the writers' steps."""

from __future__ import annotations

from .state import Request, State

Label = tuple[str, str, tuple[object, ...]]
"""Protocol line, what is done, and to what; :mod:`.trace` prints it."""

Step = tuple[Label, State | None]
"""None: the server refused, nothing changed."""


def prepared(state: State, write: Request, *, in_place_of: Request | None = None) -> State:
    """A write is ready: from now on it may land, at any time or never, whatever becomes of its sender."""
    others = state.writes if in_place_of is None else without(state, in_place_of)
    return State(state.tasks, state.pods, state.nodes, (*others, write))


def without(state: State, write: Request) -> tuple[Request, ...]:
    """The other writes under way."""
    index = state.writes.index(write)
    return (*state.writes[:index], *state.writes[index + 1 :])
