"""What the judge of histories knows of the cluster at one version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

TERMINAL = ("Succeeded", "Failed")
TASK_UID = "gputask.dev/task-uid"
Object = Mapping[str, Any]
Change = tuple[int, str, str, Object]
"""(resourceVersion, ADDED | MODIFIED | DELETED, kind, the object as stored)."""
Said = Iterator[tuple[str, str]]
"""Rules that are broken, each with what exactly."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that must not have happened: at which version, which rule, what exactly."""

    version: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule} at version {self.version}: {self.message}"


@dataclass
class World:
    """All objects as last stored, by name or UID, and what was said of them before."""

    nodes: dict[str, Object] = field(default_factory=dict)
    entries: dict[str, dict[str, Object]] = field(default_factory=lambda: defaultdict(dict))
    """Of each node, by pod UID."""
    holds: dict[str, dict[str, Object]] = field(default_factory=lambda: defaultdict(dict))
    """Of each node, by task UID."""
    pods: dict[str, Object] = field(default_factory=dict)
    """Pods of ours that exist, by UID."""
    owners: dict[str, str] = field(default_factory=dict)
    """The task of each pod of ours that ever was, both by UID."""
    pods_of: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The other way round."""
    succeeded: set[str] = field(default_factory=set)
    """Tasks, by UID, of which a pod has succeeded."""
    tasks: dict[str, Object] = field(default_factory=dict)
    """The last state of each task that ever was, by UID."""
    leases: dict[str, Object] = field(default_factory=dict)
    """The leases that exist, by UID."""
    rebuilt: dict[str, bool] = field(default_factory=dict)
    """Whether the ledger of each node says that it is complete."""
    charged: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Of each task by UID, the pods whose end its counters have in them."""
    only_operator_evicts: bool = False

    def bound(self, uid: str) -> Object | None:
        """A pod that is bound and has not ended."""
        pod = self.pods.get(uid)
        return pod if pod is not None and is_alive(pod) and pod.get("spec", {}).get("nodeName") else None


def is_alive(pod: Object) -> bool:
    """Whether it has not ended, bound or not."""
    return pod.get("status", {}).get("phase") not in TERMINAL


def priority_of(task: Object) -> int:
    """The priority that counts."""
    resolved = task.get("status", {}).get("priority")
    return int(task.get("spec", {}).get("priority") or 0 if resolved is None else resolved)


def rank(priority: int, created: str, uid: str) -> tuple[int, datetime, str]:
    """Smaller is served first (R1)."""
    return (-priority, datetime.fromisoformat(created), uid)


def victims_of(hold: Object) -> set[str]:
    """The pods, by UID, that leave for a hold."""
    return {victim["podUID"] for victim in hold.get("victims") or ()}


def condition(obj: Object, kind: str) -> Object:
    """A condition of an object; empty if it has none of that type."""
    found = (c for c in obj.get("status", {}).get("conditions") or () if c["type"] == kind)
    return next(found, {})
