"""What a pod asks of its node in all, as Kubernetes computes it.

The rules are those of kube-scheduler and kubelet: the larger of what the containers ask together and of what any init
container asks while it runs, beside the sidecars (restartable init containers, KEP-753) that were started before it;
pod-level requests replace the sum for the names they have (KEP-2837); the overhead of the runtime class comes on top.
So for main 4 cpu and init 6 cpu it is 6; for main 4 and a sidecar 4 it is 8; for all three it is 10 if the init
container comes after the sidecar, and 8 if it comes before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gputask.resources.amounts import parse_quantity

Spec = Mapping[str, Any]


def effective_requests(spec: Spec) -> dict[str, int]:
    """The requests of a pod spec by resource, in units (MiB for memory), without zeros; pods and ports not included.

    :raises AmountError: a request is no quantity.
    """
    together: Counter[str] = Counter()
    for container in spec.get("containers") or ():
        together.update(_requests(container))
    largest_init: dict[str, int] = {}
    sidecars: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            together.update(own)
            sidecars.update(own)
            while_it_starts = dict(sidecars)
        else:
            while_it_starts = {name: own.get(name, 0) + sidecars[name] for name in own.keys() | sidecars.keys()}
        for name, units in while_it_starts.items():
            largest_init[name] = max(units, largest_init.get(name, 0))
    total = {name: max(together[name], largest_init.get(name, 0)) for name in together.keys() | largest_init.keys()}
    total.update(_pod_level(spec.get("resources") or {}, total))
    for name, value in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0) + parse_quantity(value, name, rounding="up")
    return {name: units for name, units in sorted(total.items()) if units}


def _requests(container: Spec) -> dict[str, int]:
    """A container's requests; a limit without a request is the request, as the API server defaults it."""
    resources = container.get("resources") or {}
    values = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: parse_quantity(value, name, rounding="up") for name, value in values.items()}


def _pod_level(resources: Spec, of_containers: Mapping[str, int]) -> dict[str, int]:
    limits = {n: v for n, v in (resources.get("limits") or {}).items() if not of_containers.get(n)}
    values = {**limits, **(resources.get("requests") or {})}
    return {name: parse_quantity(value, name, rounding="up") for name, value in values.items()}
