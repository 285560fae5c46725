"""Pod templates: the part of one that decides where its pod can go, and what is wrong in that part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gputask.resources.amounts import SCALE, AmountError, echo, parse_quantity
from gputask.resources.names import is_kubernetes

Spec = Mapping[str, Any]

_OF_POD = ("nodeSelector", "affinity", "tolerations", "hostNetwork", "overhead", "resources")
_OF_CONTAINER = ("name", "resources", "ports", "restartPolicy")


def skeleton(spec: Spec) -> dict[str, Any]:
    """A pod spec without all that does not matter to where the pod can go: images, commands, environment, volumes.

    Tasks whose skeletons and variants are equal are of one request class, however different they are otherwise.
    """
    kept = {key: spec[key] for key in _OF_POD if spec.get(key)}
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            kept[kind] = [{key: c[key] for key in _OF_CONTAINER if c.get(key)} for c in spec[kind]]
    return kept


def all_containers(spec: Spec) -> Iterator[tuple[str, Spec]]:
    """Each container, init containers first, with its path below the pod spec."""
    for kind in ("initContainers", "containers"):
        for position, container in enumerate(spec.get(kind) or ()):
            yield f"{kind}[{position}]", container


def asked_names(spec: Spec) -> frozenset[str]:
    """Resources that some container requests or limits."""
    return frozenset(
        name
        for _, container in all_containers(spec)
        for amounts in (container.get("resources") or {}).values()
        if isinstance(amounts, Mapping)
        for name in amounts
    )


def quantity_problems(spec: Spec) -> Iterator[str]:
    """One line for each request or limit that an API server would refuse, with its path below the pod spec.

    Extended resources are whole: fractions live in our ledger only (B48).
    """
    for place, container in all_containers(spec):
        for kind in ("requests", "limits"):
            for name, value in ((container.get("resources") or {}).get(kind) or {}).items():
                field = f"{place}.resources.{kind}[{name}]"
                try:
                    units = parse_quantity(value, name, rounding="up")
                except AmountError as error:
                    yield f"{field}: {error}"
                    continue
                if units % SCALE and not is_kubernetes(name):
                    yield f"{field}: {echo(value)} is not whole, as extended resources are; ask fractions in a variant"
