"""Pod templates: what we rely on in one."""

from __future__ import annotations

from typing import Any

from gputask.api.problems import Location
from gputask.resources.amounts import echo


def template_problems(template: dict[str, Any]) -> list[tuple[Location, str]]:
    """What we rely on in a pod template; everything else of it is the API server's to judge."""
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return [(("spec",), "missing; write a pod spec with containers")]
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        return [(("spec", "containers"), "missing; write at least one container")]
    found: list[tuple[Location, str]] = []
    if spec.get("restartPolicy") not in (None, "Never", "OnFailure"):
        text = f"{echo(spec['restartPolicy'])} lets no task end; write Never or OnFailure"
        found.append((("spec", "restartPolicy"), text))
    seen: set[str] = set()
    for kind in ("initContainers", "containers"):
        for position, container in enumerate(spec.get(kind) or ()):
            name = container.get("name") if isinstance(container, dict) else None
            place: Location = ("spec", kind, position, "name")
            if not isinstance(name, str) or not name:
                found.append((place, "missing; every container has a name"))
            elif name in seen:
                found.append((place, f"{name!r} is the name of another container too; names are unique"))
            else:
                seen.add(name)
    return found
