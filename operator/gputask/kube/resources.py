"""Which resources the product speaks to, and where they live on an API server."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

MERGE_PATCH = "application/merge-patch+json"


class Resource(NamedTuple):
    """One resource of the API. ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of an object, or of the collection without ``name``; all namespaces without ``namespace``.

        >>> PODS.path(namespace="default", name="web", subresource="binding")
        '/api/v1/namespaces/default/pods/web/binding'
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
            if subresource is not None:
                parts.append(subresource)
        return "/" + "/".join(parts)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
EVENTS = Resource("", "v1", "events", "Event", namespaced=True)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
GPUTASKS = Resource("gputask.dev", "v1alpha1", "gputasks", "GpuTask", namespaced=True)
GPUNODES = Resource("gputask.dev", "v1alpha1", "gpunodes", "GpuNode", namespaced=False)
