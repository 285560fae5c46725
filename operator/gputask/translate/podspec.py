"""How a variant reaches a pod that we make (design, section 3)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from gputask.api.amounts import units
from gputask.api.gputask import Variant
from gputask.resources.amounts import SCALE, format_amount, format_quantity, parse_quantity
from gputask.resources.names import is_kubernetes

Object = dict[str, Any]

_OVERCOMMITTED = {"cpu", "memory", "ephemeral-storage"}
"""Of these a limit may be larger than the request, or absent; of all others both are equal."""


class SpecError(ValueError):
    """A variant and a template that do not go together. ``field`` is below the variant."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def with_variant(
    template: Mapping[str, Any], variant: Variant, *, device_containers: Sequence[str], extended: Container[str]
) -> Object:
    """A copy of the template's pod spec whose pod asks, in all, what the variant says.

    Of the variant's resources those that Kubernetes defines, and those in ``extended``, become the requests (and at
    least the limits) of the first device container, less what the containers beside it ask. Where the template has
    pod-level resources of that name, they become those. A name that the variant lacks stays as it is; one that is in
    our ledger only, and that no kubelet knows, goes from the device container.

    The pod spec, its containers and their resources are the caller's to change; what is below is shared.

    :param extended: names beyond Kubernetes' own in the chosen node's allocatable.
    :raises SpecError: the other containers ask more than the variant, or it asks a part of an extended resource.
    """
    spec: Object = dict(template["spec"])
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            spec[kind] = [dict(container) for container in spec[kind]]
    receiver = next(c for c in spec["containers"] if c["name"] == device_containers[0])
    beside = [c for c in spec["containers"] if c is not receiver]
    beside += [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    for name, amount in units(variant.resources).items():
        if is_kubernetes(name) or name in extended:
            _require_whole(name, amount)
            theirs = sum(_request(container, name) for container in beside)
            if theirs > amount:
                raise SpecError(
                    f"resources.{name}",
                    f"the template's other containers ask {format_amount(theirs)}, "
                    f"more than the variant's {format_amount(amount)}; raise it or lower theirs",
                )
            if _has(spec, name):
                _set(spec, name, amount)
            else:
                _set(receiver, name, amount - theirs)
        else:
            _drop(receiver, name)
    return spec


def _require_whole(name: str, amount: int) -> None:
    if amount % SCALE and not is_kubernetes(name):
        text = f"{format_amount(amount)} is not whole, as extended resources are where a device plugin offers them"
        raise SpecError(f"resources[{name}]", f"{text}; ask whole ones or a pool of another name")


def _has(owner: Mapping[str, Any], name: str) -> bool:
    resources = owner.get("resources") or {}
    return any(name in (resources.get(kind) or {}) for kind in ("requests", "limits"))


def _request(container: Mapping[str, Any], name: str) -> int:
    resources = container.get("resources") or {}
    value = (resources.get("requests") or {}).get(name, (resources.get("limits") or {}).get(name))
    return 0 if value is None else parse_quantity(value, name, rounding="up")


def _set(owner: Object, name: str, amount: int) -> None:
    """Let a container, or the pod itself, request so much."""
    resources = owner["resources"] = dict(owner.get("resources") or {})
    quantity = format_quantity(amount, name)
    resources["requests"] = {**(resources.get("requests") or {}), name: quantity}
    limit = (resources.get("limits") or {}).get(name)
    if name in _OVERCOMMITTED and (limit is None or parse_quantity(limit, name, rounding="down") >= amount):
        return
    resources["limits"] = {**(resources.get("limits") or {}), name: quantity}


def _drop(container: Object, name: str) -> None:
    if _has(container, name):
        container["resources"] = {
            kind: {key: value for key, value in given.items() if key != name} if isinstance(given, Mapping) else given
            for kind, given in container["resources"].items()
        }
