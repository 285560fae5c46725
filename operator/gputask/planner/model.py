"""The planner's words: what goes into a pass and what comes out. Frozen data without behaviour.

Amounts are units of 1/10000 (see :mod:`gputask.resources.amounts`), times are seconds as float on one
axis (the epoch, or the start of a simulation). Keys of pools are flat: ``cpu``, ``gpuSlot/ID``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from gputask.resources.pools import Allocation, NodeResources

Amounts = tuple[tuple[str, int], ...]
"""Sorted (key, units) pairs without zeros: hashable, so that equal requests are one class."""

Rank = tuple[int, float, str]
"""(-priority, created, uid): less goes first (R1)."""

PODS = "pods"
"""Implicit pool: every pod asks for one. A node without it has no pod limit."""

HOST_PORT = "hostPort:"
"""Prefix of implicit pools of one whole each on every node: ``hostPort:TCP:8080`` is asked in full by a
wildcard port and by one unit by a port on one address, which also asks ``hostPort:TCP:8080:ADDRESS`` in full."""


# --- what a task asks -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a node selector term. ``operator``: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """All of its expressions (on labels) and fields (metadata.name) must hold; an empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """Which nodes a pod accepts: nodeSelector, required node affinity (one term; None = any node), tolerations."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[SelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """``amounts`` on each of ``count`` distinct devices; the keys are bare pool names (``gpuSlot``)."""

    count: int
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Variant:
    """One alternative. ``amounts``: node-level pools and pools of devices named outright (``gpuSlot/0``),
    implicit pools included."""

    name: str
    amounts: Amounts
    devices: DeviceDemand | None = None
    min_time: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True)
class RequestClass:
    """All that decides where a task can go. Tasks of equal class share one object (interned by the caller)."""

    variants: tuple[Variant, ...]
    constraints: NodeConstraints = NodeConstraints()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.variants, self.constraints))


@dataclass(frozen=True, slots=True)
class Task:
    """A waiting task. Rank: priority descending, then ``created``, then ``uid`` (R1)."""

    key: str
    """``namespace/name``."""
    uid: str
    priority: int
    created: float
    request: RequestClass
    time_limit: float | None = None
    unsupported: tuple[str, ...] = ()
    """Why the binding mode cannot honour this task at all (field and remedy); it is never placed."""
    excluded_nodes: frozenset[str] = frozenset()
    """Nodes it must not try now (back-off after a refusal)."""
    may_preempt: bool = False
    """Whether running work of lower priority may be evicted for it (R11)."""

    @property
    def rank(self) -> Rank:
        return (-self.priority, self.created, self.uid)


# --- what nodes have --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Running:
    """Work of ours on a node: reserved, bound or running. It has its room until it is proven gone."""

    task: str
    uid: str
    """Of its pod, where it has one: what an eviction names."""
    priority: int
    allocation: Allocation
    ends: float | None = None
    """When its time limit (plus grace) guarantees its end; None without a limit."""
    created: float = 0.0
    """When its task was created: of two the older one is more important (R1)."""
    started: float | None = None
    """When its work began; None while that is not known. What began last has the least to lose."""
    preemptible: bool = False
    """Whether others may evict it."""
    protected_until: float | None = None
    """Not evicted before this instant (minRuntimeSeconds after its start)."""
    leaving: bool = False
    """It is being stopped already. Its room is its own until it is gone, and nobody evicts it again."""
    budgets: tuple[str, ...] = ()
    """The disruption budgets that count it, by name."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Use by something that is not ours. ``owner`` is ``pod:namespace/name``; amounts by flat key."""

    owner: str
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Node:
    """A node as a pass sees it."""

    name: str
    resources: NodeResources
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    out: str | None = None
    """Another reason why nothing may be admitted here (Overbooked, ledger not rebuilt): one short sentence."""
    lives_until: float | None = None
    running: tuple[Running, ...] = ()
    foreign: tuple[Foreign, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """Room kept on a node for a blocked task (R5)."""

    task: str
    uid: str
    node: str
    variant_index: int
    allocation: Allocation
    since: float
    """When this hold was first chosen (for holdPatienceSeconds)."""
    starts_by: float | None = None
    """T*: the instant by which time limits guarantee the start; None if nothing guarantees it."""
    victims: tuple[str, ...] = ()
    """UIDs of the running work that is evicted for it (R11)."""
    committed: bool = False
    """It stands in the ledger of its node, with its victims. It does not move: it stands as long as its room comes
    free, and is given up otherwise."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The frozen input of one pass. Order of ``nodes`` and ``tasks`` never matters (R8)."""

    nodes: tuple[Node, ...]
    tasks: tuple[Task, ...]
    holds: tuple[Hold, ...] = ()
    """The holds of the pass before: they are stable (R5)."""
    budgets: Mapping[str, int] = field(default_factory=dict)
    """How many more evictions each disruption budget allows now; one that is not named here allows any number."""
    resume: Rank | None = None
    """The ``resume`` of a cut pass before: tasks of higher rank are not looked at again, and their holds stand
    (R9). Right only while no room has been freed since."""


# --- what a pass decides ----------------------------------------------------------------------------


class Action(StrEnum):
    PLACE = "place"
    HOLD = "hold"
    PREEMPT = "preempt"
    """Keep room for the task, and evict ``victims`` to make it (R11)."""


class Cause(StrEnum):
    """Why a variant does not start on a node (R12)."""

    SHORT = "Short"
    """Does not fit beside what runs."""
    HELD = "Held"
    """Fits, but a hold of higher rank leaves no gap at all."""
    GAP = "Gap"
    """Fits, but not into the gap of a hold of higher rank."""
    NODE_LIFE = "NodeLife"
    NODE_OUT = "NodeOut"
    UNKNOWN = "Unknown"
    UNSUPPORTED = "Unsupported"


@dataclass(frozen=True, slots=True)
class Reason:
    """One cell of the matrix node x variant x resource. Values that do not apply are None."""

    cause: Cause
    message: str
    node: str | None = None
    variant: str | None = None
    variant_index: int | None = None
    resource: str | None = None
    device: str | None = None
    asked: int | None = None
    free: int | None = None
    capacity: int | None = None
    short: int | None = None
    held_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """Place a task, hold room for it, or make room for it."""

    action: Action
    task: Task
    node: str
    variant: str
    variant_index: int
    allocation: Allocation
    starts_by: float | None = None
    victims: tuple[Running, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A task that was not placed. ``counts``: for each variant, how many nodes refused it for which cause."""

    task: Task
    feasible: bool
    counts: tuple[Mapping[Cause, int], ...]
    message: str
    """One line for a person: the closest miss, or what no node has and the largest value."""
    judged: bool = True
    """False: this pass did not look at it (R9), and what was said of it before stands."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one pass: decisions in rank order, then everything that still waits, in rank order."""

    decisions: tuple[Decision, ...]
    waiting: tuple[Waiting, ...]
    holds: tuple[Hold, ...]
    cut: bool = False
    """The budget ran out before the last class: valid as far as it goes (R9)."""
    resume: Rank | None = None
    """Of a cut pass: the rank of the first task that it did not reach."""
    faults: tuple[str, ...] = ()
    """Nodes and classes that were skipped because handling them raised: one line each, for the log (R10)."""
