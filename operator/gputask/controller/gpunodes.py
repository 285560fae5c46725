"""One GpuNode for each Node: made, told what the Node declares, rebuilt, and removed when nothing is left of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from gputask.api import names
from gputask.api.conditions import UNDERSTOOD, NodeCondition
from gputask.controller.events import Events
from gputask.controller.store import Store
from gputask.kube.errors import AlreadyExists, Conflict, NotFound
from gputask.kube.together import for_each
from gputask.kube.writes import Writes
from gputask.ledger.changes import Declare
from gputask.ledger.entries import NodeLedger
from gputask.ledger.nodes import NodeLedgers
from gputask.ledger.pods import Manifest, uid_of
from gputask.ledger.rebuild import Rebuilder
from gputask.resources.pools import NodeResources
from gputask.translate.nodes import declared

MESSAGE_LENGTH = 1024
AT_ONCE = 16
"""GpuNodes written beside each other at start."""


class GpuNodes:
    """:meth:`reconcile` makes right what is not right with one node; it may be called at any time, for any name."""

    def __init__(
        self,
        *,
        store: Store,
        ledgers: NodeLedgers,
        writes: Writes,
        rebuilder: Rebuilder,
        events: Events,
        timestamp: Callable[[], str],
    ) -> None:
        self._store = store
        self._ledgers = ledgers
        self._writes = writes
        self._rebuilder = rebuilder
        self._events = events
        self._timestamp = timestamp

    async def start(self) -> None:
        """All nodes that are known now: their GpuNodes, their declarations, and then all rebuilds in one go (line 17).

        :raises KubeError: start again.
        """

        async def prepare(name: str) -> None:
            if name not in self._store.gpunodes:
                await self._create(name)
            if self._is_rebuilt(name, nodes[name]):
                await self._declare(name, nodes[name])
            else:
                fresh[name] = self._declaration(nodes[name])

        nodes, fresh = dict(self._store.nodes), dict[str, Declare]()
        await for_each(nodes, prepare, at_once=AT_ONCE)
        await self._rebuilder.rebuild(fresh, declared=fresh)

        async def tell(name: str) -> None:
            self._tell_problems(nodes[name])

        await for_each(fresh, tell, at_once=AT_ONCE)

    async def reconcile(self, name: str) -> None:
        """:raises KubeError: to be tried again."""
        node, gpunode = self._store.nodes.get(name), self._store.gpunodes.get(name)
        if node is None:
            if gpunode is not None:
                await self._wind_up(name, gpunode)
            return
        if gpunode is None:
            await self._create(name)
        elif gpunode["metadata"].get("deletionTimestamp"):
            await self._let_go(name, gpunode)
        else:
            await self._declare(name, node)
            if not self._is_rebuilt(name, node):
                await self._rebuilder.rebuild([name])

    async def _create(self, name: str) -> None:
        manifest = {
            "apiVersion": names.API_VERSION,
            "kind": names.GPUNODE_KIND,
            # No owner reference: with one it would be garbage-collected while pods still run.
            "metadata": {"name": name, "finalizers": [names.FINALIZER]},
        }
        with suppress(AlreadyExists):  # the informer brings it
            self._ledgers.observe(await self._writes.create_gpunode(manifest))

    async def _declare(self, name: str, node: Manifest) -> None:
        """What the Node offers now goes into the ledger; running work is never touched by it."""
        known, change = self._ledgers.known(name), self._declaration(node)
        if known is None or _changes(change, known):
            await self._ledgers.apply(name, change)
            self._tell_problems(node)

    def _tell_problems(self, node: Manifest) -> None:
        for problem in declared(node).problems:
            self._events.emit(node, NodeCondition.DECLARED.value, str(problem), warning=True)

    def _declaration(self, node: Manifest) -> Declare:
        resources = declared(node)
        return Declare(uid_of(node), replace(resources, problems=()), self._condition(node, resources))

    def _is_rebuilt(self, name: str, node: Manifest) -> bool:
        known = self._ledgers.known(name)
        return known is not None and known.rebuilt == uid_of(node)

    async def _wind_up(self, name: str, gpunode: Manifest) -> None:
        """The Node is gone: nothing is admitted any more, entries go as their pods are proven gone, then the object."""
        known = self._ledgers.known(name)
        change = Declare("", NodeResources())
        if known is None or _changes(change, known):
            await self._ledgers.apply(name, change)
            known, gpunode = self._ledgers.known(name), self._store.gpunodes.get(name, gpunode)
        if known is None or known.entries:
            return
        if gpunode["metadata"].get("deletionTimestamp"):
            await self._let_go(name, gpunode)
            return
        with suppress(NotFound, Conflict):  # gone, or somebody wrote it: the informer brings what it is now
            await self._writes.delete_gpunode(name, uid=known.uid, resource_version=known.version)

    async def _let_go(self, name: str, gpunode: Manifest) -> None:
        """Somebody deleted the GpuNode: it may go once it has no entry, under the version that says so."""
        known = self._ledgers.known(name)
        if known is None or known.entries or known.version != gpunode["metadata"]["resourceVersion"]:
            return
        kept = [name for name in gpunode["metadata"].get("finalizers") or () if name != names.FINALIZER]
        with suppress(NotFound, Conflict):
            await self._writes.set_finalizers(gpunode, kept)

    def _condition(self, node: Manifest, resources: NodeResources) -> Mapping[str, Mapping[str, str]]:
        """The condition Declared; its transition time moves only with its status."""
        name = node["metadata"]["name"]
        known = self._ledgers.known(name)
        before = known.conditions.get(NodeCondition.DECLARED) if known is not None else None
        status = "False" if resources.problems else "True"
        since = before["lastTransitionTime"] if before and before["status"] == status else self._timestamp()
        return {
            NodeCondition.DECLARED.value: {
                "type": NodeCondition.DECLARED.value,
                "status": status,
                "reason": resources.problems[0].fault if resources.problems else UNDERSTOOD,
                "message": "; ".join(map(str, resources.problems))[:MESSAGE_LENGTH],
                "lastTransitionTime": since,
            }
        }


def _changes(change: Declare, known: NodeLedger) -> bool:
    return change.apply(known) is not known
