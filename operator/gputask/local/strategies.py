"""What differs between kinds when an object is created, changed or deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from gputask.local.kinds import Resource
from gputask.local.statuses import Cause, invalid, required, unsupported
from gputask.local.validation import problems

Object = dict[str, Any]
Lookup = Callable[[str, str], Object | None]
"""The stored object of a cluster-scoped resource, by the resource's key and name."""


class Strategy:
    """The common case; kinds override what is different for them. Objects are the caller's own, so may be changed."""

    keeps_status = False
    """A status given at creation is stored."""
    label_names = False
    """Names are DNS labels."""
    needs_version = False
    """A PUT without resourceVersion is refused."""
    creates_on_update = False
    """A PUT of an object that is not there creates it."""
    status_metadata = True
    """A write of the status may change labels and annotations."""

    def on_create(self, obj: Object, lookup: Lookup) -> None:
        """Defaults, and what admission adds. Raises: StatusError."""

    def on_update(self, new: Object, old: Object) -> None:
        """Defaults that an update needs too."""

    def problems(self, obj: Object, old: Object | None) -> Iterator[Cause]:
        """What validation refuses; ``old`` is the stored object of an update."""
        yield from ()

    def grace(self, obj: Object, asked: int | None) -> int:
        """Seconds that the object stays after a delete."""
        return 0


class CustomStrategy(Strategy):
    """Instances of a CRD."""

    needs_version = True
    status_metadata = False

    def __init__(self, resource: Resource) -> None:
        self._root = resource.schema.root

    def problems(self, obj: Object, old: Object | None) -> Iterator[Cause]:
        yield from problems(obj, old, self._root)


class NamespaceStrategy(Strategy):
    """Namespaces carry a finalizer in their spec; the namespace controller empties them."""

    label_names = True

    def on_create(self, obj: Object, lookup: Lookup) -> None:
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}
        meta = obj["metadata"]
        meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}


class NodeStrategy(Strategy):
    """A new node keeps the status of its manifest, and is tainted until it reports Ready, as admission does."""

    keeps_status = True

    def on_create(self, obj: Object, lookup: Lookup) -> None:
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        spec = obj["spec"] = dict(obj.get("spec") or {})
        taints = spec.get("taints") or []
        if all((t.get("key"), t.get("effect")) != (taint["key"], taint["effect"]) for t in taints):
            spec["taints"] = [*taints, taint]

    def problems(self, obj: Object, old: Object | None) -> Iterator[Cause]:
        for i, taint in enumerate((obj.get("spec") or {}).get("taints") or ()):
            if not taint.get("key"):
                yield required(f"metadata.taints[{i}].key")
            if not taint.get("effect"):
                yield required(f"metadata.taints[{i}].effect")


class LeaseStrategy(Strategy):
    """Leases: a PUT needs the version, so that two holders cannot overwrite each other, and may create."""

    needs_version = True
    creates_on_update = True


class PriorityClassStrategy(Strategy):
    """Priority classes."""

    def on_create(self, obj: Object, lookup: Lookup) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def problems(self, obj: Object, old: Object | None) -> Iterator[Cause]:
        if old is not None and obj.get("value") != old.get("value"):
            yield Cause("value", "FieldValueForbidden", "Forbidden: may not be changed in an update.")


_PERCENT_RULE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


class BudgetStrategy(Strategy):
    """PodDisruptionBudgets."""

    needs_version = True

    def problems(self, obj: Object, old: Object | None) -> Iterator[Cause]:
        spec = obj.get("spec") or {}
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
        for field in ("minAvailable", "maxUnavailable"):
            value = spec.get(field)
            if isinstance(value, int) and value < 0:
                yield invalid(f"spec.{field}", value, "must be greater than or equal to 0")
            if isinstance(value, str) and not (value.endswith("%") and value[:-1].isdecimal()):
                yield invalid(f"spec.{field}", value, _PERCENT_RULE)
            elif isinstance(value, str) and int(value[:-1]) > 100:
                yield invalid(f"spec.{field}", value, "must not be greater than 100%")
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy not in (None, "AlwaysAllow", "IfHealthyBudget"):
            yield unsupported("spec.unhealthyPodEvictionPolicy", policy, ["AlwaysAllow", "IfHealthyBudget"])


class EventStrategy(Strategy):
    """Events."""

    creates_on_update = True

    def problems(self, obj: Object, old: Object | None) -> Iterator[Cause]:
        namespace = (obj.get("involvedObject") or {}).get("namespace") or "default"
        if namespace != obj["metadata"]["namespace"]:
            text = json.dumps(obj["metadata"]["namespace"])
            hint = f"Invalid value: {text}: does not match event.namespace"
            yield Cause("involvedObject.namespace", "FieldValueInvalid", hint)
