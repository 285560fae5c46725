"""The Eviction subresource of pods: a graceful delete that disruption budgets can refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gputask.local.checks import check_deletion
from gputask.local.disruption import KEY as BUDGETS
from gputask.local.disruption import is_ready, with_condition
from gputask.local.kinds import Resource
from gputask.local.objects import Deletion, Objects, Options
from gputask.local.selectors import selects
from gputask.local.statuses import StatusError
from gputask.local.store import Key

Object = dict[str, Any]

_VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."
_TWO = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


def evict(objects: Objects, pods: Resource, key: Key, how: Deletion) -> None:
    """Evicts a pod: its budget counts it, a condition says why it goes, and it is deleted with its grace.

    Raises: StatusError 404; 409 where a precondition does not hold; 429 where a budget allows no more, or is not
    processed yet; 500 where two budgets cover the pod.
    """
    pod = objects.get(pods, *key).obj
    check_deletion(pods, pod["metadata"], uid=how.uid, resource_version=how.resource_version)
    budgets = [] if _needs_no_budget(pod) else _covering(objects, pod)
    if len(budgets) > 1:
        raise StatusError(500, "", _TWO)
    if budgets:
        _count(objects, budgets[0], pod, dry_run=how.dry_run)
    if how.dry_run:
        return
    # Under the conditions that were just checked: the status write below is ours, and gives the pod a new version.
    how = replace(how, resource_version=None)
    if not pod["metadata"].get("deletionTimestamp"):
        objects.update(pods, key, _disrupted(pod, objects.timestamp()), Options(), subresource="status", whole=False)
    objects.delete(pods, key, how)


def _needs_no_budget(pod: Object) -> bool:
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Pending")
    return ended or bool(pod["metadata"].get("deletionTimestamp"))


def _covering(objects: Objects, pod: Object) -> list[Object]:
    budgets = objects.kinds.by_key(BUDGETS)
    assert budgets is not None
    namespace = pod["metadata"]["namespace"]
    rows = objects.kinds.table(budgets).rows.items()
    return [v.obj for key, v in rows if key[0] == namespace and selects(v.obj["spec"].get("selector"), pod)]


def _count(objects: Objects, budget: Object, pod: Object, *, dry_run: bool) -> None:
    """Takes one disruption from the budget. Raises: StatusError 429."""
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    if not is_ready(pod) and (always or healthy >= desired > 0):
        # It counts as no healthy pod, so its end disrupts nothing.
        return
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
        raise _too_many(f"The disruption budget {name} is still being processed by the server.", retry=10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        raise _too_many(_why(name, status))
    if dry_run:
        return
    resource = objects.kinds.by_key(BUDGETS)
    assert resource is not None
    when = objects.timestamp()
    disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: when}
    new_status = with_condition({**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}, when)
    key = (budget["metadata"]["namespace"], name)
    new = {**budget, "status": new_status}
    objects.update(resource, key, new, Options(), subresource="status", whole=False)


def _why(name: str, status: Object) -> str:
    """Why a budget allows nothing, in the API server's words."""
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    failure = next((c["message"] for c in status.get("conditions") or () if c["reason"] == "SyncFailed"), "")
    if failure:
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {failure}"
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"The disruption budget {name} does not allow evicting pods currently"


def _too_many(message: str, *, retry: int = 0) -> StatusError:
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    if retry:
        details["retryAfterSeconds"] = retry
    return StatusError(429, "TooManyRequests", _VIOLATED, details)


def _disrupted(pod: Object, when: str) -> Object:
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": when,
    }
    status = pod.get("status") or {}
    others = [c for c in status.get("conditions") or () if c["type"] != target["type"]]
    return {**pod, "status": {**status, "conditions": [*others, target]}}
