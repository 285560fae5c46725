"""One writer for each GpuNode, with group commit: all changes that wait for a node go in one PUT (protocol line 5).

Changes are judged inside the compare-and-swap: each is applied to the very version that the PUT replaces. Anything
that is decided *without* a PUT (refused, or there already) is judged on a version that was read live after the change
was asked for, never on a remembered one.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from gputask.kube.client import Client, Object
from gputask.kube.errors import (
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    OutcomeUnknown,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from gputask.kube.resources import GPUNODES
from gputask.kube.writes import Writes
from gputask.ledger.changes import Change, Refused
from gputask.ledger.documents import read_ledger, write_ledger
from gputask.ledger.entries import Entry, NodeLedger, RoomKept

SUPERSEDED = 64
"""So many versions that our own writes replaced are known as such."""

TRIES = 8
"""PUTs of one batch before its callers are told that the outcome is unknown."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The change is in the ledger, at this version or an earlier one."""

    ledger: NodeLedger


@dataclass(frozen=True, slots=True)
class Rejected:
    """The change is not in the ledger, and was not right for the version it was judged on."""

    reason: str


Result = Applied | Rejected


@dataclass(slots=True)
class _Waiting:
    change: Change
    result: asyncio.Future[Result]


@dataclass(slots=True)
class _Version:
    """One stored version: parsed, and as JSON the object that a PUT must send back."""

    ledger: NodeLedger
    text: bytes

    @property
    def gpunode(self) -> Object:
        found: Object = msgspec.json.decode(self.text)
        return found


@dataclass(slots=True)
class _Home:
    """All that is kept for one node."""

    version: _Version | None = None
    waiting: list[_Waiting] = field(default_factory=list)
    writer: asyncio.Task[None] | None = None
    superseded: tuple[str, ...] = ()
    """Our own versions that a later PUT of ours replaced: their watch events arrive late and mean nothing."""


class NodeLedgers:
    """The ledgers of all nodes, as far as this process knows them.

    ``on_change(node, gpunode)`` is called for every version that becomes known, before the callers of its changes go
    on, and with None when the GpuNode is gone. ``foreign(node)`` is what others use there, in units by flat key.
    """

    def __init__(
        self,
        *,
        client: Client,
        writes: Writes,
        on_change: Callable[[str, Object | None], None],
        foreign: Callable[[str], Mapping[str, int]],
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._writes = writes
        self._on_change = on_change
        self._foreign = foreign
        self._now = now
        self._sleep = sleep
        self._homes: dict[str, _Home] = {}
        self._by_task: defaultdict[str, dict[tuple[str, str], Entry]] = defaultdict(dict)
        """By task UID, then by node and pod UID."""
        self._holds: defaultdict[str, dict[str, RoomKept]] = defaultdict(dict)
        """By task UID, then by node."""

    # --- what is known; may be old ---

    def known(self, node: str) -> NodeLedger | None:
        home = self._homes.get(node)
        return home.version.ledger if home is not None and home.version is not None else None

    def entries_of(self, task_uid: str) -> Iterable[Entry]:
        """The entries of a task on all nodes."""
        return tuple(self._by_task.get(task_uid, {}).values())

    def task_uids(self) -> Iterable[str]:
        """All tasks that have an entry somewhere."""
        return tuple(self._by_task)

    def rooms_kept(self, task_uid: str) -> Mapping[str, RoomKept]:
        """The room that is kept for a task (protocol line 16), by node."""
        return dict(self._holds.get(task_uid, {}))

    def preemptors(self) -> Iterable[str]:
        """UIDs of all tasks for which room is kept somewhere."""
        return tuple(self._holds)

    def observe(self, gpunode: Object) -> None:
        """A version seen by a list or a watch."""
        home = self._home(gpunode["metadata"]["name"])
        version = gpunode["metadata"]["resourceVersion"]
        if version in home.superseded or (home.version is not None and home.version.ledger.version == version):
            return
        self._keep(gpunode["metadata"]["name"], read_ledger(gpunode), gpunode)

    def drop(self, gpunode: Object) -> None:
        """The GpuNode was seen deleted."""
        name = gpunode["metadata"]["name"]
        known = self.known(name)
        if known is not None and known.uid == gpunode["metadata"]["uid"]:
            self._lose(name)

    # --- changes ---

    async def apply(self, node: str, change: Change) -> Result:
        """Carry out a change, together with all others that wait for this node.

        Cancelling the caller takes the change out if it is not on its way yet.

        :raises OutcomeUnknown: it may be in the ledger, or still get there.
        :raises ApiError, Unreachable: the ledger could not be written; the change is not in it.
        """
        home = self._home(node)
        waiting = _Waiting(change, asyncio.get_running_loop().create_future())
        home.waiting.append(waiting)
        if home.writer is None:
            home.writer = asyncio.create_task(self._write_all(node, home), name=f"ledger {node}")
        return await waiting.result

    async def close(self) -> None:
        """Stop all writers; what they have sent may still take effect."""
        writers = [home.writer for home in self._homes.values() if home.writer is not None]
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)

    # --- one writer ---

    async def _write_all(self, node: str, home: _Home) -> None:
        batch: list[_Waiting] = []
        try:
            while home.waiting:
                batch, home.waiting = home.waiting, []
                await self._commit(node, home, batch)
        finally:
            home.writer = None
            for waiting in batch + home.waiting:  # only when we are cancelled
                waiting.result.cancel()

    async def _commit(self, node: str, home: _Home, batch: list[_Waiting]) -> None:
        try:
            await self._put(node, home, batch)
        except Invalid as error:
            # One bad change must not take the others with it (R10).
            if len(batch) == 1:
                _fail(batch, error)
            for waiting in batch if len(batch) > 1 else ():
                await self._commit(node, home, [waiting])
        except Exception as error:
            _fail(batch, error)

    async def _put(self, node: str, home: _Home, batch: list[_Waiting]) -> None:
        version, live = home.version, False
        unknown: OutcomeUnknown | None = None
        for turn in range(TRIES):
            try:
                if version is None:
                    version, live = await self._read(node), True
                if version is None:
                    _settle(batch, {}, Rejected(f"there is no GpuNode {node}"))
                    return
                ledger, rejected = self._fold(version.ledger, batch)
                if ledger is None:
                    if live:
                        _settle(batch, rejected, Applied(version.ledger))
                        return
                    version = None  # decided without a PUT: only on what is stored now
                    continue
                version = await self._write(node, home, version, ledger)
                _settle(batch, rejected, Applied(version.ledger))
                return
            except Conflict:
                version = None
            except (OutcomeUnknown, Unreachable, ServerError, TooManyRequests) as error:
                unknown = error if isinstance(error, OutcomeUnknown) else unknown
                version = None
                await self._sleep(0.05 * 2**turn)
            except ApiError as error:
                if unknown is not None:
                    raise unknown from error  # this refusal says nothing about the write before it
                raise
        raise unknown or Unreachable(f"the ledger of {node} could not be written in {TRIES} tries")

    def _fold(self, ledger: NodeLedger, batch: list[_Waiting]) -> tuple[NodeLedger | None, dict[int, Rejected]]:
        """The value after all changes (None: nothing to write), and which of them are not right for it."""
        current = before = replace(ledger, foreign=self._foreign(ledger.name))
        rejected: dict[int, Rejected] = {}
        for number, waiting in enumerate(batch):
            if waiting.result.done():
                continue  # its caller was cancelled
            try:
                current = waiting.change.apply(current)
            except Refused as refusal:
                rejected[number] = Rejected(str(refusal))
        return (None if current is before else replace(current, foreign={})), rejected

    async def _read(self, node: str) -> _Version | None:
        try:
            gpunode = await self._client.get(GPUNODES, node)
        except NotFound:
            self._lose(node)
            return None
        return self._keep(node, read_ledger(gpunode), gpunode)

    async def _write(self, node: str, home: _Home, before: _Version, ledger: NodeLedger) -> _Version:
        reply = await self._writes.put_ledger(write_ledger(before.gpunode, ledger, now=self._now()))
        home.superseded = (*home.superseded[1 - SUPERSEDED :], before.ledger.version)
        return self._keep(node, replace(ledger, version=reply["metadata"]["resourceVersion"]), reply)

    # --- what is known ---

    def _home(self, node: str) -> _Home:
        return self._homes.setdefault(node, _Home())

    def _keep(self, node: str, ledger: NodeLedger, gpunode: Object) -> _Version:
        home = self._home(node)
        self._index(node, home, ledger)
        home.version = _Version(ledger, msgspec.json.encode(gpunode))
        self._on_change(node, gpunode)
        return home.version

    def _lose(self, node: str) -> None:
        home = self._home(node)
        if home.version is not None:
            self._index(node, home, None)
            home.version = None
            self._on_change(node, None)

    def _index(self, node: str, home: _Home, ledger: NodeLedger | None) -> None:
        before_ledger = home.version.ledger if home.version is not None else None
        before = before_ledger.entries if before_ledger is not None else {}
        after = ledger.entries if ledger is not None else {}
        for pod_uid, entry in before.items():
            if pod_uid not in after:
                del self._by_task[entry.task_uid][node, pod_uid]
                if not self._by_task[entry.task_uid]:
                    del self._by_task[entry.task_uid]
        for pod_uid, entry in after.items():
            self._by_task[entry.task_uid][node, pod_uid] = entry
        self._keep_holds(node, before_ledger, ledger)

    def _keep_holds(self, node: str, before: NodeLedger | None, after: NodeLedger | None) -> None:
        for task_uid in before.holds if before is not None else ():
            del self._holds[task_uid][node]
            if not self._holds[task_uid]:
                del self._holds[task_uid]
        for task_uid, hold in (after.holds if after is not None else {}).items():
            self._holds[task_uid][node] = hold


def _settle(batch: list[_Waiting], rejected: Mapping[int, Rejected], others: Result) -> None:
    for number, waiting in enumerate(batch):
        if not waiting.result.done():
            waiting.result.set_result(rejected.get(number, others))


def _fail(batch: list[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.result.done():
            waiting.result.set_exception(error)
