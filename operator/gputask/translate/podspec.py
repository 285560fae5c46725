"""How a variant reaches a pod that we make (design, section 3)."""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping, Sequence
from typing import Any

from gputask.api.gputask import Variant
from gputask.resources.amounts import format_amount, format_quantity, parse_amount, parse_quantity

NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})


class SpecError(ValueError):
    """A variant and a template that do not go together. ``field`` is below the variant."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def is_native(name: str) -> bool:
    """Whether Kubernetes itself defines the resource, so that every node may have it in allocatable."""
    return name in NATIVE or name.startswith("hugepages-")


def with_variant(
    template: Mapping[str, Any], variant: Variant, *, device_containers: Sequence[str], extended: Container[str]
) -> dict[str, Any]:
    """A copy of the template's pod spec whose pod asks, in all, what the variant says.

    Of the variant's resources those that Kubernetes knows become the requests (and at least the limits) of the first
    device container, less what the template's other containers ask; a name that the variant lacks stays as it is.

    :param extended: names beyond Kubernetes' own that become requests too: those in the node's allocatable.
    :raises SpecError: the other containers ask more than the variant.
    """
    spec: dict[str, Any] = copy.deepcopy(template["spec"])
    receiver = next(c for c in spec["containers"] if c["name"] == device_containers[0])
    others = [c for c in spec["containers"] if c is not receiver]
    for name, value in variant.resources.items():
        if is_native(name) or name in extended:
            asked = parse_amount(value, name, rounding="up")
            theirs = sum(_request(other, name) for other in others)
            if theirs > asked:
                raise SpecError(
                    f"resources.{name}",
                    f"the template's other containers ask {format_amount(theirs)}, "
                    f"more than the variant's {format_amount(asked)}; raise it or lower theirs",
                )
            _set(receiver, name, asked - theirs)
    return spec


def _request(container: Mapping[str, Any], name: str) -> int:
    resources = container.get("resources") or {}
    value = (resources.get("requests") or {}).get(name, (resources.get("limits") or {}).get(name))
    return 0 if value is None else parse_quantity(value, name, rounding="up")


def _set(container: dict[str, Any], name: str, units: int) -> None:
    resources = container["resources"] = dict(container.get("resources") or {})
    requests = resources["requests"] = dict(resources.get("requests") or {})
    requests[name] = format_quantity(units, name)
    limit = (resources.get("limits") or {}).get(name)
    # Extended resources and huge pages must have equal requests and limits; of the others a limit may only be raised.
    overcommitted = name in NATIVE
    if limit is None and overcommitted:
        return
    if limit is None or not overcommitted or parse_quantity(limit, name, rounding="down") < units:
        resources["limits"] = {**(resources.get("limits") or {}), name: requests[name]}
