"""What feeds the store: Kopf for GpuTasks and nodes, informers for GpuNodes and pods, and lists that close the gaps.

After a gap in its watch Kopf does not tell what was deleted meanwhile. So both are read by a list of our own from time
to time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from gputask.api.names import AGENT_LABEL
from gputask.controller.agents import Agents
from gputask.controller.handlers import KopfWatch, Sink
from gputask.controller.store import Store
from gputask.controller.trim import trim_node, trim_pod
from gputask.kube.client import Client
from gputask.kube.errors import KubeError, NotFound
from gputask.kube.informer import Informer
from gputask.kube.resources import (
    BUDGETS,
    GPUNODES,
    GPUTASKS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Resource,
)
from gputask.ledger.nodes import NodeLedgers
from gputask.ledger.pods import Manifest, uid_of

log = logging.getLogger(__name__)

RESYNC_SECONDS = 60.0


class Feeds:
    """All that comes in from the API server."""

    def __init__(
        self,
        client: Client,
        *,
        store: Store,
        ledgers: NodeLedgers,
        agents: Agents,
        on_node: Callable[[Manifest], None],
        on_budget: Callable[[], None],
    ) -> None:
        """``on_node`` is told of each version of a node, and ``on_budget`` when evictions may be allowed that were not
        before, or the other way round."""
        self._client = client
        self._store = store
        # The ledgers know which versions are older than their own writes, and pass the rest on to the store.
        self._gpunodes = Informer(
            client,
            GPUNODES,
            on_add=ledgers.observe,
            on_update=lambda _, new: ledgers.observe(new),
            on_delete=ledgers.drop,
        )
        # All pods, not only ours: whoever runs on a node uses its cpu and memory.
        self._pods = Informer(
            client,
            PODS,
            transform=trim_pod,
            on_add=store.put_pod,
            on_update=lambda _, new: store.put_pod(new),
            on_delete=store.drop_pod,
        )
        self._priority_classes = Informer(
            client,
            PRIORITY_CLASSES,
            on_add=store.put_priority_class,
            on_update=lambda _, new: store.put_priority_class(new),
            on_delete=store.drop_priority_class,
        )
        self._budgets = Informer(
            client,
            BUDGETS,
            on_add=_then(store.put_budget, on_budget),
            on_update=lambda _, new: _then(store.put_budget, on_budget)(new),
            on_delete=_then(store.drop_budget, on_budget),
        )
        self._namespaces = Informer(
            client,
            NAMESPACES,
            on_add=store.put_namespace,
            on_update=lambda _, new: store.put_namespace(new),
            on_delete=store.drop_namespace,
        )
        self._agents = Informer(
            client,
            LEASES,
            label_selector=AGENT_LABEL,
            on_add=agents.put,
            on_update=lambda _, new: agents.put(new),
            on_delete=agents.drop,
        )
        self._listed = asyncio.Event()
        self._tasks = Sink(store.put_task, store.drop_task, self._listed.set)
        self._nodes = Sink(self._put_node, store.drop_node, self._listed.set)
        self._on_node = on_node
        self._informers = (self._pods, self._priority_classes, self._budgets, self._namespaces, self._agents)
        self._kopf = KopfWatch(client.connection, tasks=self._tasks, nodes=self._nodes)

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Returns when the store shows the cluster as it was after this call (protocol line 18)."""
        group.create_task(self._kopf.run())  # it takes a while until it lists
        group.create_task(self._gpunodes.run())
        await self._gpunodes.synced.wait()  # first: every pod that the ledgers name is then in the later list
        for informer in self._informers:
            group.create_task(informer.run())
            await informer.synced.wait()
        await self._tasks.listed.wait()
        await self._nodes.listed.wait()
        self._listed.clear()  # these lists followed no gap
        group.create_task(self._keep_in_sync())

    async def refresh(self) -> None:
        """The same later on, for one that begins to act: all lists anew.

        :raises KubeError: not done; to be tried again.
        """
        for informer in (self._gpunodes, *self._informers):
            await informer.refresh()
        await self.resync()

    async def resync(self) -> None:
        """Take in what the store lacks, and drop what a live read shows to be gone.

        :raises KubeError: not done; to be tried again.
        """
        await self._compare(GPUTASKS, self._tasks, self._store.tasks, {uid: uid for uid in self._store.tasks})
        nodes = self._store.nodes
        await self._compare(NODES, self._nodes, nodes, {uid_of(node): name for name, node in nodes.items()})

    def _put_node(self, node: Manifest) -> None:
        self._on_node(node)
        self._store.put_node(trim_node(node))

    async def _keep_in_sync(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RESYNC_SECONDS):
                    await self._after_a_list()
            try:
                await self.resync()
            except KubeError as error:
                log.warning("resync: %s", error)

    async def _after_a_list(self) -> None:
        """Until Kopf has listed again: its watch had a gap, in which something may have been deleted (B99)."""
        await self._listed.wait()
        self._listed.clear()

    async def _compare(
        self, resource: Resource, sink: Sink, known: Mapping[str, Manifest], keys: Mapping[str, str]
    ) -> None:
        """``keys`` are the UIDs that are known, with their keys in ``known``."""
        present = set()
        async for page in self._client.pages(resource):
            for item in page.items:
                present.add(uid_of(item))
                if uid_of(item) not in keys:
                    sink.put(item)
        for uid in keys.keys() - present:
            manifest = known.get(keys[uid])
            # It may also have been made after the list.
            if manifest is not None and uid_of(manifest) == uid and await self._is_gone(resource, manifest):
                sink.drop(manifest)

    async def _is_gone(self, resource: Resource, manifest: Manifest) -> bool:
        metadata = manifest["metadata"]
        try:
            live = await self._client.get(resource, metadata["name"], metadata.get("namespace"))
        except NotFound:
            return True
        return uid_of(live) != uid_of(manifest)


def _then(put: Callable[[Manifest], None], tell: Callable[[], None]) -> Callable[[Manifest], None]:
    def both(manifest: Manifest) -> None:
        put(manifest)
        tell()

    return both
