"""The mutations: natural variations of the protocol, and the steps that only they take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import server
from .checks import ENDED_RUNS, NOT_BOOKED, RUNS_TWICE, TWO_OWNERS
from .rules import Bounds, RebuildOrder, Release, Rules
from .state import UNBOUND, Entry, PutNode, Seen, State, pod_of
from .steps import Step, prepared

ONE_NODE = Bounds(tasks=2, nodes=1, attempts=1)
TWO_NODES = Bounds(tasks=1, nodes=2, attempts=2)


@dataclass(frozen=True)
class Mutation:
    """One rule dropped, bounds within which that must show, the promise that breaks first, and the worst that does."""

    name: str
    line: str
    rules: Rules
    bounds: Bounds = ONE_NODE
    first: str = NOT_BOOKED
    worst: str = TWO_OWNERS


def _on_claims(name: str, line: str, rules: Rules, worst: str = RUNS_TWICE) -> Mutation:
    return Mutation(name, line, rules, TWO_NODES, first=ENDED_RUNS, worst=worst)


MUTATIONS = (
    _on_claims("no claim", "4", Rules(claim_needed=False)),
    _on_claims("claim without pod UID", "3", Rules(claim_names_uid=False)),
    _on_claims("claim without version check", "3", Rules(claim_version_checked=False), worst=ENDED_RUNS),
    _on_claims("attempt advanced from a live pod", "12", Rules(attempt_needs_death=False)),
    Mutation("no ledger version check", "5", Rules(ledger_version_checked=False)),
    Mutation("bind with a resourceVersion read live", "6", Rules(bind_names_stored_version=False)),
    Mutation("renewal with an older resourceVersion", "8", Rules(renewal_reads_ledger_first=False)),
    Mutation("release on TTL", "11", Rules(release=Release.TTL)),
    Mutation("release on cache absence", "10", Rules(release=Release.ABSENCE)),
    Mutation("release on the proof of an earlier pair", "10", Rules(release=Release.OLD_PROOF)),
    Mutation("release of a terminating pod", "10", Rules(terminating_holds=False)),
    Mutation("rebuilt from bound pods only", "17", Rules(rebuild=RebuildOrder.LIST_ONLY)),
    Mutation("rebuilt from a list older than the bumps", "17", Rules(rebuild=RebuildOrder.LIST_THEN_BUMP)),
    Mutation("rebuilt under a version newer than the bumps", "17", Rules(rebuild=RebuildOrder.VERSION_AFTER_BUMPS)),
    Mutation("rebuilt under a version newer than the list", "17", Rules(rebuild=RebuildOrder.VERSION_LAST)),
)


def early_reads(state: State, number: int, rules: Rules) -> Iterator[Step]:
    """Variations of lines 6, 8 and 10: something is read, kept in memory, and used when it may be true no more."""
    for entry in state.nodes[number].entries:
        pod = pod_of(state, entry.uid)
        if pod.phase == UNBOUND and not rules.bind_names_stored_version:
            seen = Seen("6 entry", number, pod.uid, pod.rv)
            yield ("6", "see the entry", (pod.uid, number)), prepared(state, seen)
        if pod.phase == UNBOUND and pod.rv != entry.rv and _keeps_pod(rules):
            seen = Seen("7 pod", number, pod.uid, pod.rv)
            yield ("7", "GET, too early", (pod.uid, number)), prepared(state, seen)


def late_uses(state: State, rules: Rules) -> Iterator[Step]:
    """What was read early is used now: for a Bind under the pod's live version, or for a ledger PUT."""
    for seen in state.writes:
        if isinstance(seen, Seen):
            if seen.line == "6 entry":
                pod = pod_of(state, seen.uid)
                bound = server.bind(state, pod.uid, pod.rv, seen.number)
                yield ("6", "GET, and a Bind under that version lands", (pod.uid, seen.number)), bound
            for entry in state.nodes[seen.number].entries:
                if seen.line == "7 pod" and entry.uid == seen.uid and not entry.bound:
                    yield _put_late(state, seen, entry, rules)


def _keeps_pod(rules: Rules) -> bool:
    return not rules.renewal_reads_ledger_first or rules.release is Release.OLD_PROOF


def _put_late(state: State, seen: Seen, entry: Entry, rules: Rules) -> Step:
    node = state.nodes[seen.number]
    entries = tuple(other for other in node.entries if other.uid != entry.uid)
    line, verb = "10", "prepare the release"
    if not rules.renewal_reads_ledger_first:
        line, verb = "8", "prepare the renewal"
        entries = tuple(sorted((*entries, entry._replace(rv=seen.rv))))
    put = PutNode(line, seen.number, node.rv, node._replace(entries=entries))
    return (line, verb, (entry.uid, seen.number)), prepared(state, put, in_place_of=seen)
