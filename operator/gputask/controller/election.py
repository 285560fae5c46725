"""Which of several replicas acts: the one that holds a Lease, by the rules of client-go's leader election.

The holder renews the Lease; whoever has seen it unchanged for as long as it says takes it over, under its
resourceVersion. Only our own monotonic clock counts: the times in the Lease are for people, because they were read on
another machine. The holder gives up (``renew_deadline`` after it *sent* its last renewal) before another can take over
(``seconds`` after that one *saw* the renewal).

Nothing of the protocol rests on this. A holder that was stopped and goes on is one of two that act, until it notices;
what it sends then meets a resourceVersion that is no more.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gputask.kube.client import Client, Object
from gputask.kube.errors import Conflict, KubeError, NotFound, Unreachable
from gputask.kube.resources import LEASES
from gputask.kube.transport import Request, Response, Transport
from gputask.kube.writes import Writes

log = logging.getLogger(__name__)

LEASE_SECONDS = 15
JITTER = 1.2
"""So many times the retry period at most is added to the pause of one that waits, so that replicas spread."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Which Lease it is about. ``seconds`` is how long it lasts after a renewal; the rest follows, as 15, 10 and 2 s do
    in client-go."""

    name: str
    namespace: str
    seconds: int = LEASE_SECONDS

    @property
    def renew_deadline(self) -> float:
        """A holder that could not renew for so many seconds gives up."""
        return self.seconds * 2 / 3

    @property
    def retry(self) -> float:
        """Seconds between two tries."""
        return self.seconds * 2 / 15


class Election:
    """One candidate. ``now`` (seconds since the epoch) is only written into the Lease, never compared."""

    def __init__(
        self, client: Client, writes: Writes, lease: Lease, *, identity: str, now: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._writes = writes
        self._lease = lease
        self._identity = identity
        self._now = now
        self._stored: Object | None = None
        """The Lease as last read or written."""
        self._seen_at = 0.0
        """When the stored content was seen first."""
        self._renewed_at = 0.0
        """When the renewal was sent that the server took last."""
        self.leading = False
        """From our own point of view; false before anything that acts is told to stop."""

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Compete until cancelled; ``lead()`` runs whenever we hold the Lease, and is cancelled when we lose it.

        A clean stop first ends ``lead()`` and then gives the Lease back. An error of ``lead()`` is raised, after that.
        """
        while True:
            while not await self._try():  # noqa: ASYNC110 (nothing tells us)
                await asyncio.sleep(self._lease.retry * random.uniform(1.0, 1.0 + JITTER))
            await self._hold(lead)

    async def _hold(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        log.info("leading, by the lease %s/%s", self._lease.namespace, self._lease.name)
        self.leading = True
        acting = asyncio.create_task(lead(), name="leader")
        renewing = asyncio.create_task(self._renew(), name="lease")
        try:
            await asyncio.wait((acting, renewing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.leading = False  # no write starts from here on
            lost = renewing.done()
            acting.cancel()
            renewing.cancel()
            await asyncio.gather(acting, renewing, return_exceptions=True)
            if not lost:
                await self._release()
        if not acting.cancelled():
            acting.result()
        if lost:
            log.warning("not leading any more: %s", renewing.result())

    async def _renew(self) -> str:
        """Until the Lease is lost; tells how."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(self._lease.retry)
            deadline = self._renewed_at + self._lease.renew_deadline
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    # Asked first: one that was stopped for long must not try once more.
                    while clock() < deadline and not await self._try():
                        if self._holder() != self._identity:
                            return f"{self._holder() or 'nobody'} holds the lease"
                        await asyncio.sleep(self._lease.retry)
            if clock() >= self._renewed_at + self._lease.renew_deadline:
                return f"the lease could not be renewed for {self._lease.renew_deadline:g} s"

    # --- one try ---

    async def _try(self) -> bool:
        """Whether the Lease is ours now. Where the answer is lost it is not, and the next try finds out."""
        sent = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._lease.renew_deadline / 2):  # one request that hangs is not the end
                taken = await self._take()
        except Conflict:
            return False  # another was faster
        except (KubeError, TimeoutError) as error:
            log.warning("the lease %s/%s: %s", self._lease.namespace, self._lease.name, error or "no answer")
            return False
        if taken:
            self._renewed_at = sent
        return taken

    async def _take(self) -> bool:
        if self.leading and self._stored is not None:
            with suppress(Conflict, NotFound):  # written by somebody, or its answer to us was lost
                await self._put(self._stored, self._spec(self._content()))
                return True
        await self._read()
        if self._stored is None:
            head = {"name": self._lease.name, "namespace": self._lease.namespace}
            manifest = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": head}
            self._see(await self._writes.create_lease({**manifest, "spec": self._spec({})}))
            return True
        if self._holder() not in ("", self._identity) and not self._has_expired():
            return False
        await self._put(self._stored, self._spec(self._content()))
        return True

    async def _release(self) -> None:
        """Give the Lease back, so that the next one need not wait. Best effort: it runs out by itself."""
        with suppress(KubeError, TimeoutError):
            async with asyncio.timeout(self._lease.retry):
                await self._read()  # a renewal may have been cut off, so its version is not known
                if self._stored is not None and self._holder() == self._identity:
                    gone = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._moment()}
                    await self._put(self._stored, {**self._content(), **gone})

    # --- the Lease as known ---

    async def _read(self) -> None:
        try:
            self._see(await self._client.get(LEASES, self._lease.name, self._lease.namespace))
        except NotFound:
            self._stored = None

    async def _put(self, lease: Object, spec: Object) -> None:
        self._see(await self._writes.put_lease({**lease, "spec": spec}))

    def _see(self, lease: Object) -> None:
        before = self._stored
        self._stored = lease
        # Content, not version: who writes a label does not renew.
        if before is None or before.get("spec") != lease.get("spec"):
            self._seen_at = asyncio.get_running_loop().time()

    def _content(self) -> Mapping[str, Any]:
        return (self._stored or {}).get("spec") or {}

    def _holder(self) -> str:
        return self._content().get("holderIdentity") or ""

    def _has_expired(self) -> bool:
        # For as long as its holder said: the replicas of an upgrade may have been told different durations.
        lasts = float(self._content().get("leaseDurationSeconds") or self._lease.seconds)
        return asyncio.get_running_loop().time() >= self._seen_at + lasts

    def _spec(self, before: Mapping[str, Any]) -> Object:
        """Our renewal of ``before``, or our taking over; ``leaseTransitions`` counts the changes of holder."""
        moment = self._moment()
        spec = {**before, "holderIdentity": self._identity, "renewTime": moment}
        spec["leaseDurationSeconds"] = self._lease.seconds
        if before.get("holderIdentity") != self._identity:
            spec["acquireTime"] = moment
            spec["leaseTransitions"] = (before.get("leaseTransitions") or 0) + 1 if before else 0
        return spec

    def _moment(self) -> str:
        """A MicroTime; the API server insists on six digits after the point."""
        return datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


async def always(lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """No election: a single replica acts from the start."""
    await lead()


class LeaderOnly:
    """A transport that sends no write of a process that does not lead, not even of a part that was told to stop and
    has not heard it yet."""

    def __init__(self, transport: Transport, leading: Callable[[], bool]) -> None:
        self._transport = transport
        self._leading = leading

    async def send(self, request: Request) -> Response:
        if request.method != "GET" and not self._leading():
            raise Unreachable(f"{request.method} {request.path}: not sent, as this replica does not lead")
        return await self._transport.send(request)

    def stream(self, request: Request) -> AsyncIterator[bytes]:
        return self._transport.stream(request)

    async def close(self) -> None:
        """Nothing: the transport belongs to another."""


def own_identity() -> str:
    """A name for this process that no other ever has; starts with the host's, which is the pod's name in a cluster."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"
