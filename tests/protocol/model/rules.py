"""Bounds of an exploration, and the rules of the protocol that a variation may drop one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Bounds:
    """How much of the world is explored.

    Kills, losses, delays, bumps, renewals and other people's writes need no limit: canonical states are finite.

    `attempts`: pods that a task may get one after the other. `namesakes`: UIDs of one name that are told apart at one
    time. `writes`: writes of GpuTasks and GpuNodes under way at one time, each perhaps of another writer that believes
    it leads. `batched`: a ledger PUT may carry several changes, as a pass makes it. `extender`: pods without GpuTask,
    to be bound to any node (line 15).
    """

    tasks: int = 2
    nodes: int = 1
    attempts: int = 1
    namesakes: int = 1
    writes: int = 2
    batched: bool = False
    extender: bool = False


class Release(Enum):
    """What a writer takes for proof that an entry may go (protocol line 10)."""

    PROOF = "proof of the pair (UID, stored resourceVersion)"
    OLD_PROOF = "a fence shown for an earlier pair"
    TTL = "the TTL of an entry in flight"
    ABSENCE = "absence from a cache"


class RebuildOrder(Enum):
    """In which order a GpuNode is rebuilt (protocol line 17)."""

    BUMP_THEN_LIST = "ledger version, bump the unbound, list the bound, PUT"
    LIST_ONLY = "ledger version, list the bound, PUT"
    LIST_THEN_BUMP = "ledger version, list the bound, bump the unbound, PUT"
    VERSION_AFTER_BUMPS = "bump the unbound, ledger version, list the bound, PUT"
    VERSION_LAST = "bump the unbound, list the bound, ledger version, PUT"


@dataclass(frozen=True)
class Rules:
    """The defaults are the protocol. A rule switched off is a mutation that must be found."""

    ledger_version_checked: bool = True  # line 5
    claim_version_checked: bool = True  # line 3
    claim_needed: bool = True  # line 4
    claim_names_uid: bool = True  # line 3
    attempt_needs_death: bool = True  # lines 3 and 12
    terminating_holds: bool = True  # line 10
    bind_names_stored_version: bool = True  # line 6
    renewal_reads_ledger_first: bool = True  # line 8
    release: Release = Release.PROOF  # lines 10 and 11
    rebuild: RebuildOrder = RebuildOrder.BUMP_THEN_LIST  # line 17


PROTOCOL = Rules()
