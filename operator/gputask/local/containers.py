"""What a container of a simulated node sees and says: its environment, which is its log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_KEYED = re.compile(r"^metadata\.(annotations|labels)\['(.+)'\]$")


def environment(pod: Object, container: Object) -> dict[str, str]:
    """The variables as the kubelet resolves them when the container starts: ``fieldRef``, ``resourceFieldRef`` and
    ``$(NAME)``, in the order of the list."""
    seen: dict[str, str] = {}
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        if "fieldRef" in source:
            value = field_value(pod, source["fieldRef"].get("fieldPath", ""))
        elif "resourceFieldRef" in source:
            value = _resource(pod, container, source["resourceFieldRef"])
        else:
            value = _expanded(variable.get("value") or "", seen)
        seen[variable["name"]] = value
    return seen


def log_text(pod: Object, container: Object) -> str:
    """One line for each variable."""
    return "".join(f"{name}={value}\n" for name, value in environment(pod, container).items())


def field_value(pod: Object, path: str) -> str:
    """What a ``fieldRef`` gives; empty for what is not set."""
    if found := _KEYED.match(path):
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    value: Any = pod
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)


def _resource(pod: Object, container: Object, reference: Object) -> str:
    asked = reference.get("containerName") or container["name"]
    owner = next((c for c in pod["spec"]["containers"] if c["name"] == asked), container)
    kind, _, name = str(reference.get("resource", "")).partition(".")
    return str(((owner.get("resources") or {}).get(kind) or {}).get(name, "0"))


def _expanded(text: str, seen: Mapping[str, str]) -> str:
    """``$(NAME)`` of an earlier variable; ``$$`` is a dollar; an unknown name stays as it is written."""
    return _REFERENCE.sub(lambda m: "$" if m[0] == "$$" else seen.get(m[1], m[0]), text)
