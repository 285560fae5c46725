"""A GpuNode that is new or was lost (protocol line 17): nothing is admitted there until all live owners are booked.

First every unbound pod that could be aimed there gets a new resourceVersion, so that a bind sent before the loss
cannot land any more; *then* the bound pods are listed. The other way round, a bind could land between the two and its
pod would be in no list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from gputask.kube.client import Client, Object
from gputask.kube.errors import Conflict, NotFound
from gputask.kube.resources import GPUTASKS, PODS
from gputask.kube.together import for_each
from gputask.kube.writes import Writes
from gputask.ledger.changes import Change, Declare, Rebuild
from gputask.ledger.claims import Claims, claim_of
from gputask.ledger.entries import Entry
from gputask.ledger.leases import Leases
from gputask.ledger.nodes import NodeLedgers
from gputask.ledger.pods import bound_entry, is_terminal, literals_of, task_name_of, task_uid_of, uid_of
from gputask.ledger.recovery import Cache

AT_ONCE = 16
"""GpuNodes written beside each other."""


class Rebuilder:
    """Rebuilds many ledgers in one go: the two lists are made once for all of them."""

    def __init__(
        self,
        *,
        client: Client,
        writes: Writes,
        ledgers: NodeLedgers,
        claims: Claims,
        leases: Leases,
        cache: Cache,
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._writes = writes
        self._ledgers = ledgers
        self._claims = claims
        self._leases = leases
        self._cache = cache
        self._now = now

    async def rebuild(
        self, nodes: Iterable[str], *, declared: Mapping[str, Declare] = MappingProxyType({})
    ) -> frozenset[str]:
        """Rebuild the ledgers of ``nodes`` whose mark is not that of their Node; those that are rebuilt now.

        The caller has created the GpuNodes and declared their Nodes, except for those in ``declared``, which are
        declared in the same write. A node left out was replaced meanwhile: its next event starts again.

        :raises KubeError: start again.
        """
        # The GpuNode's UID before anything else: see changes.Rebuild.
        known = {node: ledger for node in nodes if (ledger := self._ledgers.known(node))}
        marks = {
            node: (ledger.uid, declared[node].node_uid if node in declared else ledger.node_uid)
            for node, ledger in known.items()
        }
        todo = {node: mark for node, mark in marks.items() if mark[1] and not self._is_marked(node, mark[1])}
        if todo:
            await self._fence(todo.keys())
            owners = await self._owners(todo.keys())
            await self._add_leases(owners)

            async def mark(node: str) -> None:
                changes: list[Change] = [declared[node]] if node in declared else []
                gpunode_uid, node_uid = todo[node]
                changes.append(Rebuild(gpunode_uid=gpunode_uid, node_uid=node_uid, entries=owners[node]))
                await asyncio.gather(*(self._ledgers.apply(node, change) for change in changes))  # one batch, one PUT

            await for_each(todo, mark, at_once=AT_ONCE)
        return frozenset(node for node, mark in marks.items() if self._is_marked(node, mark[1]))

    def _is_marked(self, node: str, node_uid: str) -> bool:
        ledger = self._ledgers.known(node)
        return ledger is not None and ledger.rebuilt == node_uid == ledger.node_uid != ""

    async def _fence(self, nodes: Iterable[str]) -> None:
        """Bump every unbound pod aimed at one of ``nodes``; the aim is in its spec, where nobody can change it."""
        aimed = set(nodes)
        for pod in (await self._client.list(PODS, field_selector="spec.nodeName=")).items:
            literals = literals_of(pod)
            if literals is not None and literals.node in aimed and not is_terminal(pod):
                try:
                    await self._writes.bump_pod(pod["metadata"]["namespace"], pod["metadata"]["name"], uid=uid_of(pod))
                except (NotFound, Conflict):
                    continue  # that UID is gone: nothing can bind it
        # An unknown outcome is raised: what may not be fenced must not be rebuilt around.

    async def _owners(self, nodes: Iterable[str]) -> Mapping[str, list[Entry]]:
        """The entries of the live pods bound to ``nodes``, which are the keys."""
        wanted = set(nodes)
        selector = f"spec.nodeName={next(iter(wanted))}" if len(wanted) == 1 else ""
        found: dict[str, list[Entry]] = {node: [] for node in wanted}
        for pod in (await self._client.list(PODS, field_selector=selector)).items:
            node = pod["spec"].get("nodeName")
            if node in wanted and not is_terminal(pod):
                entry = await self._entry(pod)
                if entry is not None:
                    found[node].append(entry)
        return found

    async def _add_leases(self, owners: Mapping[str, list[Entry]]) -> None:
        """The leases that live on these nodes. A claim that is not in this list cannot be reserved before the mark: the
        ledger version in hand would have changed."""
        selector = f"status.reservation.node={next(iter(owners))}" if len(owners) == 1 else ""
        for task in (await self._client.list(GPUTASKS, field_selector=selector)).items:
            claim = claim_of(task)
            if claim is not None and claim.is_lease and claim.literals.node in owners:
                entry = await self._leases.after_loss(task, claim)
                owners[claim.literals.node] += [entry] if entry is not None else []

    async def _entry(self, pod: Object) -> Entry | None:
        literals = literals_of(pod)
        if literals is None or not await self._is_claimed(pod):
            return None
        return bound_entry(pod, literals, now=self._now())

    async def _is_claimed(self, pod: Object) -> bool:
        """Whether the pod's task claims it; also where the task is gone, as nobody can say then that it never did."""
        uid, name = task_uid_of(pod), task_name_of(pod)
        if uid is None or name is None:
            return False
        cached = self._cache.task(uid)
        claim = claim_of(cached) if cached is not None else None
        if claim is not None and claim.pod_uid == uid_of(pod):
            return True  # from an old cache too: a claim moves on only from a dead UID (line 4)
        namespace = pod["metadata"]["namespace"]
        task = await self._claims.live({"metadata": {"namespace": namespace, "name": name, "uid": uid}})
        if task is None:
            return True
        claim = claim_of(task)
        return claim is not None and claim.pod_uid == uid_of(pod)
