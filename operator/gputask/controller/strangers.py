"""Tells of pods that bear marks of ours and that no claim names (B67): the marks count for nothing.

What such a pod asks for counts as the use of others (:mod:`gputask.controller.snapshot`); nothing is done to it.
"""

from __future__ import annotations

from gputask.api import names
from gputask.controller.events import Events
from gputask.controller.metrics import Metrics
from gputask.controller.store import Store
from gputask.controller.workqueue import WorkQueue
from gputask.ledger.claims import Claims, claim_of
from gputask.ledger.nodes import NodeLedgers
from gputask.ledger.pods import ALLOCATION_ENV, Manifest, is_terminal, task_name_of, task_uid_of, uid_of

IGNORED = "MarksIgnored"
"""Reason of the Event."""


class Strangers:
    """One Event for each such pod that is bound to a node of ours."""

    def __init__(self, *, store: Store, ledgers: NodeLedgers, claims: Claims, events: Events, metrics: Metrics) -> None:
        self._store = store
        self._ledgers = ledgers
        self._claims = claims
        self._events = events
        self._work = WorkQueue("stranger", self._judge, metrics=metrics, workers=1)
        self._judged: dict[str, set[str]] = {}
        """By node: UIDs of pods that are told of, or turned out to be ours."""

    async def run(self) -> None:
        """Tell until cancelled."""
        await self._work.run()

    def look(self, node: str) -> None:
        """Something changed on this node; never waits."""
        if any(uid not in self._judged.get(node, ()) for uid in self._suspects(node)):
            self._work.add(node)

    async def _judge(self, node: str) -> None:
        """:raises KubeError: to be tried again."""
        suspects = self._suspects(node)
        judged = self._judged[node] = self._judged.get(node, set()) & suspects.keys()
        for uid, pod in suspects.items():
            if uid not in judged and not await self._is_claimed(pod):
                text = f"no GpuTask claims this pod: its {_mark(pod)} is ignored; what it asks for is foreign use"
                self._events.emit(pod, IGNORED, text, warning=True)
            judged.add(uid)

    def _suspects(self, node: str) -> dict[str, Manifest]:
        """By UID: live pods bound there that bear marks and have no entry."""
        ledger = self._ledgers.known(node)
        if ledger is None or not ledger.node_uid or ledger.rebuilt != ledger.node_uid:
            return {}  # all of ours may lack their entries
        return {
            uid_of(pod): pod
            for pod in self._store.pods_on(node)
            if uid_of(pod) not in ledger.entries and _mark(pod) and pod["spec"].get("nodeName") and not is_terminal(pod)
        }

    async def _is_claimed(self, pod: Manifest) -> bool:
        """Read live: a cache may show a pod of ours before its entry and its claim. One whose task is gone is not
        judged: whose it was cannot be told any more."""
        uid, name = task_uid_of(pod), task_name_of(pod)
        if uid is None or name is None:
            return False  # all pods of ours have their task as controller
        metadata = {"namespace": pod["metadata"]["namespace"], "name": name, "uid": uid}
        task = await self._claims.live({"metadata": metadata})
        claim = claim_of(task) if task is not None else None
        return task is None or (claim is not None and claim.pod_uid == uid_of(pod))


def _mark(pod: Manifest) -> str | None:
    """What of a pod only pods that we made have; None if it has nothing of it."""
    metadata = pod["metadata"]
    if task_uid_of(pod) is not None:
        return "controller"
    for label in (names.TASK_UID_LABEL, names.TASK_LABEL):
        if label in (metadata.get("labels") or {}):
            return f"label {label}"
    for annotation in metadata.get("annotations") or ():
        if annotation.startswith(names.ALLOC_PREFIX):
            return f"annotation {annotation}"
    for container in pod["spec"].get("containers") or ():
        if any(env.get("name") == ALLOCATION_ENV for env in container.get("env") or ()):
            return f"environment {ALLOCATION_ENV}"
    return f"scheduler {names.SCHEDULER_NAME}" if pod["spec"].get("schedulerName") == names.SCHEDULER_NAME else None
