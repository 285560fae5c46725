"""Disruption budgets: what they allow, kept in their status as the real controller keeps it."""

from __future__ import annotations

from math import ceil
from typing import Any

from gputask.local.objects import Objects, Options
from gputask.local.scale import scale_of
from gputask.local.selectors import selects
from gputask.local.store import Event

Object = dict[str, Any]

KEY = "poddisruptionbudgets.policy"


def is_ready(pod: Object) -> bool:
    """Whether its Ready condition is True."""
    return any(
        c["type"] == "Ready" and c["status"] == "True" for c in (pod.get("status") or {}).get("conditions") or ()
    )


def with_condition(status: Object, when: str, failure: str = "") -> Object:
    """The status with its DisruptionAllowed condition; ``failure`` is why it could not be calculated."""
    allowed = status.get("disruptionsAllowed", 0) > 0
    found: Object = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "reason": "SyncFailed" if failure else "SufficientPods" if allowed else "InsufficientPods",
        "message": failure,
        "observedGeneration": status.get("observedGeneration", 0),
    }
    old: Object = next((c for c in status.get("conditions") or () if c["type"] == found["type"]), {})
    same = old.get("status") == found["status"]
    return {**status, "conditions": [{**found, "lastTransitionTime": old["lastTransitionTime"] if same else when}]}


class _SyncError(Exception):
    """What a budget expects cannot be calculated; the text is the real controller's."""


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
            if key[0] != namespace or (resource == "pods" and not _concerns(version.obj, event)):
                continue
            status = self._status(version.obj)
            if status != (version.obj.get("status") or {}):
                new = {**version.obj, "status": status}
                self._objects.update(budgets, key, new, Options(), subresource="status", whole=False)

    def _status(self, budget: Object) -> Object:
        before: Object = budget.get("status") or {}
        pods = self._pods(budget)
        try:
            expected, desired = self._wanted(budget["spec"], pods)
        except _SyncError as error:
            # As the real one does it: nothing is allowed, and the generation stays unobserved.
            return with_condition({**before, "disruptionsAllowed": 0}, self._objects.timestamp(), str(error))
        disrupted = {
            name: when
            for name, when in (before.get("disruptedPods") or {}).items()
            if any(pod["metadata"]["name"] == name and not pod["metadata"].get("deletionTimestamp") for pod in pods)
        }
        healthy = sum(
            is_ready(pod) and not pod["metadata"].get("deletionTimestamp") and pod["metadata"]["name"] not in disrupted
            for pod in pods
        )
        status: Object = {
            "observedGeneration": budget["metadata"].get("generation", 1),
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
            "conditions": before.get("conditions") or [],
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        return with_condition(status, self._objects.timestamp())

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
        """How many pods are expected, and how many of them have to be healthy. Raises: _SyncError."""
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if most is not None:
            expected = self._scales(pods)
            return expected, max(0, expected - _share(most, expected))
        if isinstance(least, str):
            expected = self._scales(pods)
            return expected, _share(least, expected)
        return (0, 0) if least is None else (len(pods), least)

    def _scales(self, pods: list[Object]) -> int:
        """The replicas that the controllers of the pods are asked for, by their scale subresource; pods that nobody
        controls do not count. Raises: _SyncError for a controller that is gone, or that cannot be scaled."""
        replicas: dict[str, int] = {}
        for pod in pods:
            owner = next((o for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")), None)
            if owner is not None and owner["uid"] not in replicas:
                replicas[owner["uid"]] = self._replicas(owner, pod)
        return sum(replicas.values())

    def _replicas(self, owner: Object, pod: Object) -> int:
        resource = self._objects.kinds.of_kind(owner["apiVersion"], owner["kind"])
        if resource is None:
            raise _SyncError(f'no matches for kind "{owner["kind"]}" in version "{owner["apiVersion"]}"')
        if resource.scale is None:
            raise _SyncError(f"{resource.key} does not implement the scale subresource")
        row = self._objects.kinds.table(resource).rows.get((pod["metadata"]["namespace"], owner["name"]))
        if row is None or row.obj["metadata"]["uid"] != owner["uid"]:
            raise _SyncError(f'found no controllers for pod "{pod["metadata"]["name"]}"')
        return int(scale_of(resource, row.obj)["spec"]["replicas"])


def _concerns(budget: Object, event: Event) -> bool:
    """Whether it counts the pod, or did before the change."""
    selector = budget["spec"].get("selector")
    versions = (event.now, event.before)
    return any(selects(selector, version.obj) for version in versions if version is not None)


def _share(limit: int | str, whole: int) -> int:
    """A limit in pods; percentages are rounded up, whichever limit they are."""
    return ceil(whole * int(limit[:-1]) / 100) if isinstance(limit, str) else limit
