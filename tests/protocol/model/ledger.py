"""Lines 4 to 10: entries, compared-and-swapped on the GpuNode, and the Bind that they allow."""

from __future__ import annotations

from collections.abc import Iterator

from . import server
from .rules import Release, Rules
from .state import (
    ANY_NODE,
    DEAD,
    LIVE,
    STOPPING,
    UNBOUND,
    Entry,
    GpuNode,
    Pod,
    PutNode,
    State,
    Uid,
    pod_of,
)
from .steps import Step, prepared

Change = tuple[str, str, Uid, tuple[Entry, ...]]
"""Protocol line, what is done, to which pod, and the entries after it."""


def changes(state: State, in_hand: PutNode, rules: Rules, *, unsent: bool) -> Iterator[Step]:
    """Prepare a PUT that makes one change more than the ledger version in hand, or than a PUT not yet sent.

    `unsent`: `in_hand` is one of `state.writes` and is replaced; a pass writes all changes of a node at once.
    """
    for line, verb, uid, entries in _changes(state, in_hand.number, in_hand.body, rules):
        body = in_hand.body._replace(entries=tuple(sorted(entries)))
        put = PutNode(line, in_hand.number, in_hand.rv, body)
        yield (line, verb, (uid, in_hand.number)), prepared(state, put, in_place_of=in_hand if unsent else None)


def _changes(state: State, number: int, node: GpuNode, rules: Rules) -> Iterator[Change]:
    for pod in state.pods:
        for entry in reserve(state, pod, number, node, rules):
            yield "5", "prepare the reservation", pod.uid, (entry,)
    for entry in node.entries:
        pod = pod_of(state, entry.uid)
        others = tuple(other for other in node.entries if other.uid != entry.uid)
        for renewed in renew(entry, pod, rules):
            yield "8", "GET and prepare the renewal", pod.uid, (*others, renewed)
        for confirmed in confirm(entry, pod, number):
            yield "9", "prepare the confirmation", pod.uid, (*others, confirmed)
        if may_release(entry, pod, number, rules):
            yield "10", "prepare the release", pod.uid, others


def reserve(state: State, pod: Pod, number: int, node: GpuNode, rules: Rules) -> Iterator[Entry]:
    """Line 5: an entry for a claimed UID (line 4), at any resourceVersion that some cache shows of the unbound pod.

    The node must be rebuilt (line 17) and its one device free in the version in hand.
    """
    if pod.node in (number, ANY_NODE) and node.rebuilt and not node.entries and known_as_claimed(state, pod, rules):
        if pod.phase == UNBOUND:
            yield Entry(pod.uid, pod.rv)
        yield Entry(pod.uid, pod.rv - 1)


def known_as_claimed(state: State, pod: Pod, rules: Rules) -> bool:
    """Line 4: some version of the GpuTask names this UID (extender: the pod itself is the claim)."""
    if not rules.claim_names_uid:
        number, attempt = pod.uid[:2]
        return attempt <= state.tasks[number].attempt
    return pod.claimed or not rules.claim_needed


def bind(state: State) -> Iterator[Step]:
    """Line 6: a Bind of any writer that ever saw the entry lands, with exactly the resourceVersion stored in it."""
    for pod in state.pods:
        if pod.phase == UNBOUND and pod.aimed:
            for number in range(len(state.nodes)):
                if pod.aimed >> number & 1:
                    yield ("6", "a Bind lands", (pod.uid, number)), server.bind(state, pod.uid, pod.rv, number)


def renew(entry: Entry, pod: Pod, rules: Rules) -> Iterator[Entry]:
    """Line 8: the ledger version is in hand; a live GET *now* shows the pod unbound at another resourceVersion."""
    if rules.renewal_reads_ledger_first and not entry.bound and pod.phase == UNBOUND and pod.rv != entry.rv:
        yield entry._replace(rv=pod.rv)


def confirm(entry: Entry, pod: Pod, number: int) -> Iterator[Entry]:
    """Line 9: the pod has been seen bound here."""
    if not entry.bound and pod.phase in LIVE and pod.node == number:
        yield entry._replace(bound=True)


def may_release(entry: Entry, pod: Pod, number: int, rules: Rules) -> bool:
    """Line 10: terminal, gone, bound elsewhere (all for ever), or fenced: unbound at another resourceVersion.

    To bump an equal version first is a step of its own (a patch by anyone). TTL expiry proves nothing (line 11).
    """
    if pod.phase in DEAD or (pod.phase in LIVE and pod.node != number):
        return True
    if pod.phase == UNBOUND and pod.rv != entry.rv and rules.release is not Release.OLD_PROOF:
        return True
    if pod.phase == STOPPING and not rules.terminating_holds:
        return True
    return rules.release is Release.ABSENCE or (rules.release is Release.TTL and not entry.bound)
