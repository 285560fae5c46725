"""Proving that a pod can never own its reservation again, and releasing it (protocol lines 10 to 13)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gputask.kube.client import Client
from gputask.kube.errors import Conflict, NotFound, OutcomeUnknown, Unreachable
from gputask.kube.resources import PODS
from gputask.kube.writes import Writes
from gputask.ledger.changes import Change, Quarantine, Release
from gputask.ledger.entries import Entry, State
from gputask.ledger.nodes import Applied, NodeLedgers
from gputask.ledger.pods import Manifest, Place, is_terminating, place_of, uid_of, version_of

TRIES = 8


@dataclass(frozen=True, slots=True)
class Look:
    """What a live GET showed of one pod UID, and where it stands. Of one that is gone ``pod`` is how it ended, if that
    was seen."""

    place: Place
    pod: Manifest | None


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod by identity, and the node it is seen from."""

    namespace: str
    name: str
    uid: str
    node: str

    @classmethod
    def of(cls, entry: Entry) -> PodRef:
        return cls(entry.namespace, entry.pod, entry.pod_uid, entry.node)


class Releaser:
    """Live proofs only: absence from a cache proves nothing.

    Every method raises :class:`gputask.kube.errors.KubeError` where it could not come to an end; calling it again is
    always right.
    """

    def __init__(
        self,
        *,
        client: Client,
        writes: Writes,
        ledgers: NodeLedgers,
        last_words: Callable[[str], Manifest | None],
        in_contact: Callable[[str], bool],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``last_words``: a pod by UID as it was seen to end; None if nobody saw it. It proves nothing: an end is
        final, so how a pod ended may be old, and that it is gone is read live. ``in_contact(node)``: whether a pod
        that vanished there has ended too."""
        self._client = client
        self._writes = writes
        self._ledgers = ledgers
        self._last_words = last_words
        self._in_contact = in_contact
        self._sleep = sleep

    async def look(self, ref: PodRef) -> Look:
        """The pod as stored now (protocol line 7)."""
        try:
            pod = await self._client.get(PODS, ref.name, ref.namespace)
        except NotFound:
            return Look(Place.GONE, self._last_words(ref.uid))
        place = place_of(pod, uid=ref.uid, node=ref.node)
        return Look(place, self._last_words(ref.uid) if place is Place.GONE else pod)

    async def release(self, entry: Entry) -> bool:
        """Release an entry as soon as its pod cannot own it any more (line 10); False while the pod lives there.

        What a pod held that vanished out of our sight is quarantined in place of that.
        """
        for turn in range(TRIES):
            seen = await self.look(PodRef.of(entry))
            if seen.place is Place.HERE:
                return False  # also when it is terminating: it holds its devices until it is gone
            if seen.place is Place.UNBOUND and seen.pod is not None and version_of(seen.pod) == entry.pod_version:
                # A bind under this version may be on its way. Make the version old, and look again.
                await self._bump(entry, turn)
                continue
            change: Change = Release(entry.pod_uid, entry.pod_version, quarantined=entry.state is State.QUARANTINED)
            if seen.place is Place.GONE and seen.pod is None and not self._in_contact(entry.node):
                change = Quarantine(entry.pod_uid, entry.pod_version)
            result = await self._ledgers.apply(entry.node, change)
            if isinstance(result, Applied):
                return True
            # The proof was for a pair that is no more: somebody renewed or quarantined the entry. Start again.
            ledger = self._ledgers.known(entry.node)
            renewed = ledger.entries.get(entry.pod_uid) if ledger is not None else None
            if renewed is None:
                return True
            entry = renewed
        raise Unreachable(f"pod {entry.pod} was written {TRIES} times while its reservation was to be released")

    async def take_back(self, ref: PodRef, entry: Entry | None) -> Look:
        """Delete a pod that is not bound, and release its entry; where the pod stood in the end.

        A pod that turns out to be bound here is left alone (HERE). One that stays UNBOUND is terminating with a
        finalizer: fenced and released, but not dead.
        """
        seen = await self._delete_unbound(ref)
        if entry is not None and seen.place is not Place.HERE:
            await self.release(entry)
        return seen

    async def _delete_unbound(self, ref: PodRef) -> Look:
        for turn in range(TRIES):
            seen = await self.look(ref)
            if seen.place is not Place.UNBOUND or seen.pod is None or is_terminating(seen.pod):
                return seen
            try:
                # Line 13: with the version, so that a bind that was faster wins.
                await self._writes.delete_unbound_pod(
                    ref.namespace, ref.name, uid=uid_of(seen.pod), resource_version=version_of(seen.pod)
                )
            except (NotFound, Conflict):
                continue
            except OutcomeUnknown:
                await self._sleep(0.05 * 2**turn)
        raise Unreachable(f"pod {ref.name} was written {TRIES} times while it was to be deleted")

    async def _bump(self, entry: Entry, turn: int) -> None:
        try:
            await self._writes.bump_pod(entry.namespace, entry.pod, uid=entry.pod_uid)
        except (NotFound, Conflict):
            return
        except OutcomeUnknown:
            await self._sleep(0.05 * 2**turn)
