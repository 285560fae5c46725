"""Leader election by a Lease: who acts, who stands by, and when that changes. Real Leases, on the embedded server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from gputask.controller.election import Election, LeaderOnly, Lease
from gputask.kube.client import Client
from gputask.kube.errors import NotFound, OutcomeUnknown, Unreachable
from gputask.kube.resources import LEASES, PODS
from gputask.kube.transport import HttpTransport, Request, Response
from gputask.kube.writes import Writes
from gputask.local.cluster import LocalCluster
from support.local import eventually
from support.operator import Object

LEASE = Lease("operator", "default", seconds=3)


class Cable:
    """A transport that can be cut."""

    def __init__(self, inner: HttpTransport) -> None:
        self._inner = inner
        self.cut = False

    async def send(self, request: Request) -> Response:
        if self.cut:
            raise ConnectionError("cut")
        return await self._inner.send(request)

    def stream(self, request: Request) -> AsyncIterator[bytes]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


class Candidate:
    """One replica: what it believes, and whether its part that acts is running."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        self.cable = Cable(HttpTransport(cluster.connection))
        self.client = Client(cluster.connection, transport=self.cable)
        self.election = Election(self.client, Writes(self.client), LEASE, identity=name)
        self.acts = False
        self.terms = 0
        self._running: asyncio.Task[None] | None = None

    async def _act(self) -> None:
        self.acts, self.terms = True, self.terms + 1
        try:
            await asyncio.Event().wait()
        finally:
            self.acts = False

    def start(self) -> None:
        self._running = asyncio.create_task(self.election.run(self._act))

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = None

    async def close(self) -> None:
        await self.stop()
        await self.client.close()


@asynccontextmanager
async def candidates(*names: str) -> AsyncIterator[tuple[Candidate, ...]]:
    async with LocalCluster() as cluster:
        found = tuple(Candidate(cluster, name) for name in names)
        try:
            yield found
        finally:
            for candidate in found:
                await candidate.close()


async def lease(candidate: Candidate) -> Object:
    return (await candidate.client.get(LEASES, "operator", "default"))["spec"]


async def test_the_first_one_acts_at_once_and_the_other_stands_by() -> None:
    async with candidates("a", "b") as (a, b):
        a.start()
        await eventually(lambda: a.acts, seconds=1)
        b.start()
        await asyncio.sleep(LEASE.seconds * 1.5)  # longer than the lease lasts without renewals
        assert (a.acts, b.acts) == (True, False)
        assert (await lease(a))["holderIdentity"] == "a"
        assert (await lease(a))["leaseTransitions"] == 0


async def test_a_clean_stop_hands_over_without_waiting_for_the_end_of_the_lease() -> None:
    async with candidates("a", "b") as (a, b):
        a.start()
        await eventually(lambda: a.acts)
        b.start()
        await a.stop()
        assert not a.acts
        await eventually(lambda: b.acts, seconds=LEASE.retry * 4)
        assert (await lease(b))["leaseTransitions"] >= 1


async def test_one_that_is_cut_off_stops_before_another_takes_over() -> None:
    async with candidates("a", "b") as (a, b):
        a.start()
        await eventually(lambda: a.acts)
        b.start()
        a.cable.cut = True

        def stopped() -> bool:
            assert not (a.acts and b.acts), "two act at a time"
            return not a.acts

        await eventually(stopped)
        assert not b.acts
        await eventually(lambda: b.acts)
        a.cable.cut = False
        await asyncio.sleep(LEASE.retry * 3)
        assert (a.acts, b.acts) == (False, True)


async def test_a_lease_that_was_deleted_is_made_again_by_one_of_them() -> None:
    async with candidates("a", "b") as (a, b):
        a.start()
        await eventually(lambda: a.acts)
        b.start()
        await a.client.delete(LEASES, "operator", "default")

        async def held() -> bool:
            with suppress(NotFound):
                return (await lease(a))["holderIdentity"] in ("a", "b")
            return False

        await eventually(held)
        await eventually(lambda: a.acts != b.acts)


async def test_times_of_other_machines_do_not_count() -> None:
    async with candidates("a", "b") as (a, b):
        # A holder whose clock is an hour ahead, and which is dead: it is waited for once, by our own clock.
        spec = {"holderIdentity": "x", "leaseDurationSeconds": 3, "renewTime": "2999-01-01T00:00:00.000000Z"}
        head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "operator"}}
        await b.client.create(LEASES, head | {"spec": spec}, "default")
        a.start()
        await asyncio.sleep(1.0)
        assert not a.acts
        await eventually(lambda: a.acts, seconds=LEASE.seconds + 3)


async def test_an_error_of_what_acts_is_raised_and_the_lease_is_given_back() -> None:
    async with candidates("a") as (a,):

        async def fails() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await a.election.run(fails)
        assert (await lease(a))["holderIdentity"] == ""


async def test_one_that_does_not_lead_writes_nothing() -> None:
    async with candidates("a") as (a,):
        silent = Client(a.client.connection, transport=LeaderOnly(a.cable, lambda: a.election.leading))
        with pytest.raises((Unreachable, OutcomeUnknown)):
            await silent.create(PODS, {"metadata": {"name": "p"}}, "default")
        assert (await silent.list(PODS)).items == []
        with pytest.raises(NotFound):
            await a.client.get(PODS, "p", "default")
