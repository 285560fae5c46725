"""What the paths of the API point at."""

from __future__ import annotations

from dataclasses import dataclass

from gputask.local.kinds import Kinds, Resource
from gputask.local.statuses import no_such_path
from gputask.local.store import Key


@dataclass(frozen=True, slots=True)
class Target:
    """What a path points at."""

    resource: Resource
    namespace: str | None
    name: str | None
    subresource: str

    @property
    def key(self) -> Key:
        return (self.namespace or "", self.name or "")


def target_of(path: str, kinds: Kinds) -> Target | None:
    """The target of a path; None for the paths of discovery. Raises: StatusError 404 for one that nobody serves."""
    match [part for part in path.split("/") if part]:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, *tail = rest
    if (group, plural) == ("", "bindings") and namespace and not tail:
        # The older way to bind: the Binding's own name says which pod.
        return Target(_served(kinds, group, version, "pods"), namespace, None, "binding")
    resource = _served(kinds, group, version, plural)
    name = tail[0] if tail else None
    subresource = tail[1] if len(tail) > 1 else ""
    served = ("", *resource.subresources(), *(("finalize",) if resource.key == "namespaces" else ()))
    # Without a namespace, a path is about all of them: that can be a list or a watch, but no object.
    misplaced = (namespace is None and name is not None) if resource.namespaced else namespace is not None
    if misplaced or len(tail) > 2 or subresource not in served:
        raise no_such_path()
    return Target(resource, namespace, name, subresource)


def _served(kinds: Kinds, group: str, version: str, plural: str) -> Resource:
    resource = kinds.find(group, version, plural)
    if resource is None:
        raise no_such_path()
    return resource
