"""Which nodes we can trust about pods that are gone (protocol line 10).

A pod object that is deleted by force leaves its containers where the kubelet does not hear of it. While a node is not
Ready, and for a while after, the end of an object is no end of the work; then its devices are quarantined. They come
back once the node has been Ready for so long that its kubelet has ended what nobody knows any more; or with the node
itself: its Node is deleted, or marked as out of service (KEP-2268), by which an admin vouches that it is shut down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gputask.controller.store import Store
from gputask.ledger.entries import State
from gputask.ledger.nodes import NodeLedgers
from gputask.ledger.pods import Manifest
from gputask.translate.nodes import is_ready

SETTLE_SECONDS = 60.0
"""A kubelet that is back lists its pods at once and gives unknown ones their grace, by default 30 s."""

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class Contact:
    """``sweep(task UID)`` is told of quarantined reservations whose node may be in contact again.

    ``clock`` is monotonic, in seconds: how long a node has been Ready is judged by what we saw, on one clock. Of the
    time before our start we know nothing; a node that is Ready then is in contact.
    """

    def __init__(
        self, *, store: Store, ledgers: NodeLedgers, sweep: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._ledgers = ledgers
        self._sweep = sweep
        self._clock = clock
        self._lost: dict[str, float] = {}

    def see(self, node: Manifest) -> None:
        """A version of a node was seen. Each of them, as one that was not Ready for a moment only matters too."""
        if not is_ready(node):
            self._lost[node["metadata"]["name"]] = self._clock()

    def look(self, name: str) -> None:
        """Something about this node changed: what is quarantined there may come back."""
        node, ledger = self._store.nodes.get(name), self._ledgers.known(name)
        if node is None:
            self._lost.pop(name, None)
        quarantined = [e for e in (ledger.entries if ledger else {}).values() if e.state is State.QUARANTINED]
        if quarantined and self.is_kept(name):
            for entry in quarantined:
                self._sweep(entry.task_uid)
        elif quarantined and node is not None and is_ready(node):
            asyncio.get_running_loop().call_later(self._settles_in(name), self.look, name)

    def is_kept(self, name: str) -> bool:
        """Whether a pod that vanished on this node has ended there too."""
        node = self._store.nodes.get(name)
        if node is None or _is_out_of_service(node):
            return True
        return is_ready(node) and self._settles_in(name) <= 0

    def _settles_in(self, name: str) -> float:
        lost = self._lost.get(name)
        return lost + SETTLE_SECONDS - self._clock() if lost is not None else 0.0


def _is_out_of_service(node: Manifest) -> bool:
    return any(taint["key"] == OUT_OF_SERVICE for taint in (node.get("spec") or {}).get("taints") or ())
