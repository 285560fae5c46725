"""Condition types and their closed sets of reasons. A new reason is added here and nowhere else."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Phases of a GpuTask. A suspended task waits as Pending, with a condition that says so."""

    PENDING = "Pending"
    RESERVED = "Reserved"
    BOUND = "Bound"
    RUNNING = "Running"
    PREEMPTING = "Preempting"
    """It waits for the end of work that is evicted for it; the room is kept for it."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class TaskCondition(StrEnum):
    """Condition types of a GpuTask."""

    ACCEPTED = "Accepted"
    FEASIBLE = "Feasible"
    RESERVED = "Reserved"
    BOUND = "Bound"
    READY = "Ready"
    EVICTED = "Evicted"
    """An attempt was stopped from outside, which is no crash: the task waits again at its old rank."""
    FINISHED = "Finished"
    RENEWED = "Renewed"
    """False where a renewal of a lease is refused."""


class AcceptedReason(StrEnum):
    VALID = "Valid"
    INVALID = "Invalid"
    """The spec cannot be understood; the message has one line for each problem."""
    UNSUPPORTED = "Unsupported"
    """Understood, but Direct binding cannot honour it; the message names field and remedy."""
    QUEUE_FULL = "QueueFull"
    """As many tasks wait as may; it is taken in when others have left."""


class FeasibleReason(StrEnum):
    FITS_SOME_NODE = "FitsSomeNode"
    FITS_NO_NODE = "FitsNoNode"


class ReservedReason(StrEnum):
    """Why a task has, or has not, its reservation. The waiting ones are the planner's causes (R12)."""

    RESERVED = "Reserved"
    SHORT = "Short"
    HELD = "Held"
    GAP = "Gap"
    NODE_LIFE = "NodeLife"
    NODE_OUT = "NodeOut"
    UNKNOWN = "Unknown"
    UNSUPPORTED = "Unsupported"
    HOLDING = "Holding"
    """Room is kept for this task; it starts when the rest of it is free."""
    SUSPENDED = "Suspended"
    PAUSED = "Paused"
    """Its namespace is paused: nothing of it starts."""
    BACK_OFF = "BackOff"
    POD_REFUSED = "PodRefused"
    """The API server refused the pod (quota, admission, template)."""
    RELEASED = "Released"


class BoundReason(StrEnum):
    BOUND = "Bound"
    NOT_BOUND = "NotBound"
    BIND_REFUSED = "BindRefused"
    LEASED = "Leased"
    """A lease is held: there is no pod, the devices are its holder's."""


class ReadyReason(StrEnum):
    RUNNING = "Running"
    STARTING = "Starting"
    STOPPING = "Stopping"
    NOT_RUNNING = "NotRunning"
    START_TIMEOUT = "StartTimeout"
    """Bound, and not running in time: it is stopped, which counts as a placement failure."""


class EvictedReason(StrEnum):
    PREEMPTED = "Preempted"
    """For a task of higher priority, which the message names."""
    DISRUPTED = "Disrupted"
    """By a drain, by the kubelet, or by somebody else's eviction or deletion of the pod."""
    NODE_LOST = "NodeLost"
    """Its node is gone; the message names it."""
    RUNNING = "Running"
    """Evicted=False: it runs again."""


class FinishedReason(StrEnum):
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    CANCELLED = "Cancelled"
    LEASE_EXPIRED = "LeaseExpired"
    """Not renewed in time; what it holds stays quarantined until the GpuTask is deleted."""


class RenewedReason(StrEnum):
    LEASE_EXPIRED = "LeaseExpired"
    """The lease had expired before."""


class NodeCondition(StrEnum):
    """Condition types of a GpuNode."""

    DECLARED = "Declared"
    """Its annotations and allocatable are understood; False names annotation, name and remedy. Its reasons
    are ``Understood`` and those of :class:`gputask.resources.pools.Fault`."""
    OVERBOOKED = "Overbooked"


UNDERSTOOD = "Understood"
"""Reason of Declared=True."""


class OverbookedReason(StrEnum):
    WITHIN_CAPACITY = "WithinCapacity"
    TWO_OWNERS = "TwoOwners"
    """Two live owners of one unit (protocol line 19): both are kept, nothing is admitted here."""
