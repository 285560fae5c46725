"""Line 17: a GpuNode that is new, or lost and made anew, is rebuilt before anything is admitted there."""

from __future__ import annotations

from collections.abc import Iterator

from . import server
from .rules import RebuildOrder, Rules
from .state import ANY_NODE, LISTED, LISTING, LIVE, UNBOUND, Entry, GpuNode, PutNode, Rebuild, State
from .steps import Step, prepared


def start(state: State, number: int, rules: Rules) -> Iterator[Step]:
    """The version of a GpuNode that is not rebuilt is in hand; a live list shows which unbound pods aim at it."""
    node = state.nodes[number]
    if node.rebuilt:
        return
    aiming = tuple(pod.uid for pod in state.pods if pod.phase == UNBOUND and pod.node in (number, ANY_NODE))
    first = Rebuild(LISTING, number, node.rv, () if rules.rebuild is RebuildOrder.LIST_ONLY else aiming)
    if rules.rebuild is RebuildOrder.LIST_THEN_BUMP:
        first = first._replace(line=LISTED, listed=bound_here(state, number))
    yield ("17", "start to rebuild", (number,)), prepared(state, first)


def go_on(state: State, rules: Rules) -> Iterator[Step]:
    """Bump one pod after the other (404 is as good), then list the bound ones and prepare the PUT of all of them."""
    for write in state.writes:
        if not isinstance(write, Rebuild):
            continue
        if write.to_bump:
            uid, *others = write.to_bump
            bumped = server.patch_pod(state, uid) or state
            after = write._replace(to_bump=tuple(others))
            yield ("17", "bump", (uid,)), prepared(bumped, after, in_place_of=write)
        elif write.line == LISTING and rules.rebuild is RebuildOrder.VERSION_LAST:
            after = write._replace(line=LISTED, listed=bound_here(state, write.number))
            yield ("17", "list the bound pods", (write.number,)), prepared(state, after, in_place_of=write)
        elif not state.nodes[write.number].rebuilt:
            # In the protocol this is the version of the start: with another one the request is gone already.
            version = state.nodes[write.number].rv
            entries = bound_here(state, write.number) if write.line == LISTING else write.listed
            put = PutNode("17", write.number, version, GpuNode(rebuilt=True, entries=entries))
            yield (
                ("17", "list the bound pods, prepare to book them", (write.number,)),
                prepared(state, put, in_place_of=write),
            )


def bound_here(state: State, number: int) -> tuple[Entry, ...]:
    """A live list of the pods of ours that are bound to this node and not terminal."""
    return tuple(Entry(p.uid, p.rv, bound=True) for p in state.pods if p.phase in LIVE and p.node == number)
