"""All next states: the writers' steps, requests that land or are lost, third parties, kubelets, users, lost GpuNodes.

Writers keep nothing between two steps. What a step may take from a cache it takes from *any* version that ever
existed, which covers caches of any age, lost replies, and a restart at every point; what must be read live, or held in
hand, is. A write to a GpuTask or GpuNode is prepared in one step and lands in another, or never: between the two its
sender may sleep or be dead. Creates, patches, deletes and Binds carry nothing that an old cache could not yield, so for
the server a late one and one sent now are the same: they are taken to be under way at any time, and land in one step.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import claims, ledger, rebuild, server, variations
from .naming import canonical
from .rules import Bounds, RebuildOrder, Rules
from .state import ANY_NODE, GONE, LIVE, GpuNode, Pod, PutNode, PutTask, Rebuild, State, Task
from .steps import Label, Step, without


def initial(bounds: Bounds) -> State:
    """No GpuNode is rebuilt yet. Extender: the pods are there already and are their own claims."""
    nodes = (GpuNode(),) * bounds.nodes
    if bounds.extender:
        pods = tuple(Pod((number, 1, 0), ANY_NODE, claimed=True) for number in range(bounds.tasks))
        return State((), pods, nodes)
    return State((Task(),) * bounds.tasks, (), nodes)


def successors(state: State, bounds: Bounds, rules: Rules, *, exact: bool = False) -> Iterator[tuple[Label, State]]:
    """Each step that the server lets happen, with the canonical state after it."""
    unchecked = _unchecked(rules)
    for label, after in _steps(state, bounds, rules):
        if after is not None:
            yield label, canonical(after, unchecked=unchecked, exact=exact)


def _unchecked(rules: Rules) -> tuple[type, ...]:
    kinds: list[type] = []
    if not rules.ledger_version_checked:
        kinds.append(PutNode)
    if not rules.claim_version_checked:
        kinds.append(PutTask)
    if rules.rebuild in (RebuildOrder.VERSION_AFTER_BUMPS, RebuildOrder.VERSION_LAST):
        kinds.append(Rebuild)
    return tuple(kinds)


def _steps(state: State, bounds: Bounds, rules: Rules) -> Iterator[Step]:
    yield from claims.create(state, bounds)
    yield from ledger.bind(state)
    yield from rebuild.go_on(state, rules)
    yield from variations.late_uses(state, rules)
    yield from requests(state, rules)
    yield from pods_written(state)
    yield from users(state)
    if bounds.batched:
        for write in state.writes:
            if isinstance(write, PutNode):
                yield from ledger.changes(state, write, rules, unsent=True)
    if len(state.writes) < bounds.writes:
        yield from claims.claim(state)
        yield from claims.end(state, rules)
        for number, node in enumerate(state.nodes):
            yield from ledger.changes(state, PutNode("", number, node.rv, node), rules, unsent=False)
            yield from rebuild.start(state, number, rules)
            yield from variations.early_reads(state, number, rules)


def requests(state: State, rules: Rules) -> Iterator[Step]:
    """A PUT under way lands; or it is lost, or its sender was killed before it was sent."""
    for write in state.writes:
        rest = state._replace(writes=without(state, write))
        yield (write.line, "lost, or its writer is killed:", (write,)), rest
        if isinstance(write, PutTask):
            landed = server.put_task(rest, write, unchecked=not rules.claim_version_checked)
            yield (write.line, "lands:", (write,)), landed
        elif isinstance(write, PutNode):
            landed = server.put_node(rest, write, unchecked=not rules.ledger_version_checked)
            yield (write.line, "lands:", (write,)), landed


def pods_written(state: State) -> Iterator[Step]:
    """Patches and deletes of pods, by writers (lines 10, 12, 13 and 17) and by anybody else; kubelets end pods.

    A delete of an unbound pod that carries UID and resourceVersion may come from a cache of any age, so it may land at
    any time; a delete of a bound pod carries the UID only, and any user may send one.
    """
    for pod in state.pods:
        if pod.phase != GONE:
            yield ("10", "bump, or somebody's write of", (pod.uid,)), server.patch_pod(state, pod.uid)
            yield ("13", "delete", (pod.uid,)), server.delete_pod(state, pod.uid)
        if pod.phase in LIVE:
            yield ("", "the kubelet ends", (pod.uid,)), server.end_pod(state, pod.uid)


def users(state: State) -> Iterator[Step]:
    """Users cancel, suspend and resume; GpuNodes are deleted by somebody, or lost."""
    for number in range(len(state.tasks)):
        yield ("", "the user cancels or suspends", (number,)), server.wish_of_user(state, number, stop=True)
        yield ("", "the user resumes", (number,)), server.wish_of_user(state, number, stop=False)
    for number in range(len(state.nodes)):
        yield ("", "the GpuNode is lost and made anew:", (number,)), server.lose_node(state, number)
