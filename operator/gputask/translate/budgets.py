"""PodDisruptionBudgets: whom they count, and how many evictions they allow now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gputask.planner.filters import holds
from gputask.planner.model import Requirement


@dataclass(frozen=True, slots=True)
class Budget:
    """One budget. ``key`` is ``namespace/name``; without ``selector`` it counts nobody."""

    key: str
    selector: tuple[Requirement, ...] | None
    allowed: int

    def counts(self, pod: Mapping[str, Any]) -> bool:
        """Whether this pod is one of its own; the caller knows that the namespace is."""
        labels = pod["metadata"].get("labels") or {}
        return self.selector is not None and all(holds(requirement, labels) for requirement in self.selector)


def budget_of(manifest: Mapping[str, Any]) -> Budget:
    """A budget as the API gives it. One that the disruption controller has not looked at yet allows nothing."""
    meta, status = manifest["metadata"], manifest.get("status") or {}
    seen = status.get("observedGeneration", 0) >= (meta.get("generation") or 0)
    allowed = int(status.get("disruptionsAllowed") or 0) if seen else 0
    return Budget(
        f"{meta['namespace']}/{meta['name']}", _selector((manifest.get("spec") or {}).get("selector")), allowed
    )


def _selector(selector: Mapping[str, Any] | None) -> tuple[Requirement, ...] | None:
    if selector is None:
        return None
    labels = (Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items())
    others = (
        Requirement(e["key"], e["operator"], tuple(e.get("values") or ()))
        for e in selector.get("matchExpressions") or ()
    )
    return (*labels, *others)
