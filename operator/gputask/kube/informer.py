"""List, then watch: a local copy of one resource, with callbacks on every change.

The copy may be old. It wakes and it informs; nothing of the protocol is proven by it (line 10: never by absence from a
cache).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

from gputask.kube.client import Client, Object
from gputask.kube.errors import Gone, KubeError
from gputask.kube.packed import Packed
from gputask.kube.resources import Resource

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0
SLICE = 100
"""So many objects of a list are told of before the event loop gets its turn."""

OnAdd = Callable[[Object], None]
OnUpdate = Callable[[Object, Object], None]


def _ignore(*_: Object) -> None: ...


def _all_of_it(new: Object) -> Object:
    return new


class Informer:
    """Callbacks run in the event loop, one after another, and must not block; ``on_update`` gets (old, new).

    ``transform`` makes of each object what is kept of it and what the callbacks get.
    A change missed while the watch was down shows up as its net effect at the next list.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        transform: Callable[[Object], Object] = _all_of_it,
        on_add: OnAdd = _ignore,
        on_update: OnUpdate = _ignore,
        on_delete: OnAdd = _ignore,
    ) -> None:
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._selectors = {"label_selector": label_selector, "field_selector": field_selector}
        self._on_add = on_add
        self._on_update = on_update
        self._on_delete = on_delete
        self._transform = transform
        self._objects = Packed()
        self._versions: dict[str, str] = {}
        self._version: str | None = None
        self._asked = 0
        """How many lists were asked for by :meth:`refresh`."""
        self._watching: asyncio.Task[None] | None = None
        self.synced = asyncio.Event()

    @property
    def objects(self) -> Mapping[str, Object]:
        """The copy, by UID."""
        return MappingProxyType(self._objects)

    async def run(self) -> None:
        """Until cancelled. Failures are logged and retried with a growing pause."""
        clock = asyncio.get_running_loop().time
        pause = FIRST_PAUSE
        while True:
            before, since = self._version, clock()
            try:
                while self._version is None:
                    await self._relist()
                await self._watch_until_refreshed()
                if self._version is None:
                    continue  # somebody wants a new list, at once
            except Gone:
                # The pause below also covers a server that says 410 to the version it has just given (B99).
                self._version = None
            except KubeError as error:
                logger.warning("watch of %s: %s", self._resource.plural, error)
            if self._version not in (None, before) or clock() - since > LONGEST_PAUSE:
                pause = FIRST_PAUSE  # it brought something, or it lived: what ended it is no fault that repeats
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def refresh(self) -> None:
        """List again, now: afterwards the copy shows what was stored after this call."""
        self._version = None
        self._asked += 1
        self.synced.clear()
        if self._watching is not None:
            self._watching.cancel()
        await self.synced.wait()

    async def _watch_until_refreshed(self) -> None:
        self._watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait((self._watching,))
        finally:
            watching, self._watching = self._watching, None
            if not watching.done():
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        if not watching.cancelled():
            watching.result()

    async def _relist(self) -> None:
        asked, present, fresh, version = self._asked, set(), [], ""
        async for page in self._client.pages(self._resource, self._namespace, **self._selectors):
            present |= {item["metadata"]["uid"] for item in page.items}
            fresh += [self._transform(item) for item in page.items if self._is_new(item)]
            version = page.resource_version
        # First what is gone: its name may be taken anew by now.
        for uid in self._objects.keys() - present:
            self._drop(uid)
        for number, item in enumerate(fresh, 1):
            self._store(item)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        if self._asked == asked:  # else somebody wants a list that begins after this one began
            self._version = version
            self.synced.set()

    def _is_new(self, item: Object) -> bool:
        version: str = item["metadata"]["resourceVersion"]
        return self._versions.get(item["metadata"]["uid"]) != version

    async def _watch(self) -> None:
        assert self._version is not None
        async for event in self._client.watch(
            self._resource, self._namespace, resource_version=self._version, **self._selectors
        ):
            if event.type == "DELETED":
                self._drop(event.object["metadata"]["uid"], self._transform(event.object))
            elif event.type != "BOOKMARK":
                self._store(self._transform(event.object))
            # Kept event by event: a watch that breaks goes on where it was, and nothing is told twice.
            self._version = event.object["metadata"]["resourceVersion"]

    def _store(self, new: Object) -> None:
        if self._is_new(new):
            uid, old = new["metadata"]["uid"], self._objects.get(new["metadata"]["uid"])
            self._objects[uid], self._versions[uid] = new, new["metadata"]["resourceVersion"]
            if old is None:
                self._on_add(new)
            else:
                self._on_update(old, new)

    def _drop(self, uid: str, last: Object | None = None) -> None:
        """``last`` is its last state, if that is known."""
        known = self._objects.pop(uid, None)
        if known is not None:
            del self._versions[uid]
            self._on_delete(last or known)
