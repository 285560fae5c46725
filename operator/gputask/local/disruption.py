"""Disruption budgets: what they allow, kept in their status as the real controller keeps it."""

from __future__ import annotations

from math import ceil
from typing import Any

from gputask.local.objects import Objects, Options
from gputask.local.selectors import selects
from gputask.local.store import Event

Object = dict[str, Any]

KEY = "poddisruptionbudgets.policy"


def is_ready(pod: Object) -> bool:
    """Whether its Ready condition is True."""
    return any(
        c["type"] == "Ready" and c["status"] == "True" for c in (pod.get("status") or {}).get("conditions") or ()
    )


class BudgetKeeper:
    """A role of the controllers: renews the status of each budget that a change of pods may concern."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def on_change(self, resource: str, event: Event) -> None:
        if resource not in ("pods", KEY) or (resource == KEY and event.type == "DELETED"):
            return
        namespace = event.now.obj["metadata"]["namespace"]
        budgets = self._objects.kinds.by_key(KEY)
        assert budgets is not None
        for key, version in list(self._objects.kinds.table(budgets).rows.items()):
            if key[0] == namespace:
                status = self._status(version.obj)
                if status != (version.obj.get("status") or {}):
                    new = {**version.obj, "status": status}
                    self._objects.update(budgets, key, new, Options(), subresource="status", whole=False)

    def _status(self, budget: Object) -> Object:
        pods = self._pods(budget)
        disrupted = {
            name: when
            for name, when in ((budget.get("status") or {}).get("disruptedPods") or {}).items()
            if any(pod["metadata"]["name"] == name and not pod["metadata"].get("deletionTimestamp") for pod in pods)
        }
        healthy = sum(
            is_ready(pod) and not pod["metadata"].get("deletionTimestamp") and pod["metadata"]["name"] not in disrupted
            for pod in pods
        )
        expected, desired = self._wanted(budget["spec"], pods)
        status = {
            "observedGeneration": budget["metadata"].get("generation", 1),
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
        }
        return status | ({"disruptedPods": disrupted} if disrupted else {})

    def _pods(self, budget: Object) -> list[Object]:
        pods = self._objects.kinds.by_key("pods")
        assert pods is not None
        namespace = budget["metadata"]["namespace"]
        return [
            version.obj
            for key, version in self._objects.kinds.table(pods).rows.items()
            if key[0] == namespace and selects(budget["spec"].get("selector"), version.obj)
        ]

    def _wanted(self, spec: Object, pods: list[Object]) -> tuple[int, int]:
        """How many pods are expected, and how many of them have to be healthy."""
        least = spec.get("minAvailable")
        if isinstance(least, int):
            return len(pods), least
        expected = self._scales(pods)
        if isinstance(least, str):
            return expected, ceil(expected * int(least[:-1]) / 100)
        most = spec.get("maxUnavailable", 1)
        away = ceil(expected * int(most[:-1]) / 100) if isinstance(most, str) else most
        return expected, max(0, expected - away)

    def _scales(self, pods: list[Object]) -> int:
        """The replicas that the controllers of the pods are asked for, by their scale subresource; a pod whose
        controller has none counts for nothing, and so refuses every eviction."""
        total, seen = 0, set()
        for pod in pods:
            for owner in pod["metadata"].get("ownerReferences") or ():
                if not owner.get("controller") or owner["uid"] in seen:
                    continue
                seen.add(owner["uid"])
                resource = self._objects.kinds.of_kind(owner["apiVersion"], owner["kind"])
                if resource is None or resource.scale is None:
                    continue
                row = self._objects.kinds.table(resource).rows.get((pod["metadata"]["namespace"], owner["name"]))
                if row is not None:
                    total += int(_at(row.obj, resource.scale.spec) or 0)
        return total


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj
