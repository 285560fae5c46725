"""Every write of the product to the cluster: one method each, named by the protocol line that it carries out.

Nobody else calls ``create``, ``replace``, ``patch``, ``delete`` or ``bind`` of the client (a test reads the sources).
Each write is a single request with the precondition that its protocol line asks for; what to do about an answer that
was lost is decided by the caller (:mod:`gputask.ledger`).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from gputask.kube.client import Client, Object
from gputask.kube.resources import EVENTS, GPUNODES, GPUTASKS, LEASES, NAMESPACES, PODS

BUMP = "gputask.dev/bump"
"""Annotation whose only use is that writing it gives the pod a new resourceVersion (protocol lines 10 and 17)."""


class Writes:
    """The writes of one process."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # Two bumps of one pod must never write the same value: a patch that changes nothing keeps the resourceVersion.
        self._bumps = (f"{uuid.uuid4().hex[:12]}-{n}" for n in itertools.count())

    # --- pods ---

    async def create_pod(self, manifest: Mapping[str, Any]) -> Object:
        """Protocol line 2: the pod, unbound, holding nothing. A quota refuses here, before anything is held."""
        return await self._client.create(PODS, manifest, manifest["metadata"]["namespace"])

    async def delete_unbound_pod(self, namespace: str, name: str, *, uid: str, resource_version: str) -> None:
        """Protocol line 13: under UID and resourceVersion, so that a pod bound meanwhile survives."""
        await self._client.delete(PODS, name, namespace, uid=uid, resource_version=resource_version)

    async def delete_pod(self, namespace: str, name: str, *, uid: str, resource_version: str | None = None) -> None:
        """Protocol lines 12 and 13: a pod that may be bound, under its UID, with its own grace. One that runs also
        under its version: if it has ended meanwhile, its end must be recorded before it goes."""
        await self._client.delete(PODS, name, namespace, uid=uid, resource_version=resource_version)

    async def evict(self, namespace: str, pod: str, *, uid: str, resource_version: str) -> None:
        """Protocol lines 13 and 16: only with the room kept in the ledger before. Under the pod's version: the API
        deletes one that has ended at once, and nobody would know any more how it ended."""
        await self._client.evict(namespace, pod, uid=uid, resource_version=resource_version)

    async def bind(self, namespace: str, pod: str, node: str, *, uid: str, resource_version: str) -> None:
        """Protocol line 6: with the resourceVersion that the ledger entry stores, never with one read just now."""
        await self._client.bind(namespace, pod, node, uid=uid, resource_version=resource_version)

    async def bump_pod(self, namespace: str, name: str, *, uid: str) -> Object:
        """Protocol lines 10 and 17: a new resourceVersion fences every bind that was sent under an older one."""
        metadata = {"uid": uid, "annotations": {BUMP: next(self._bumps)}}
        return await self._client.patch(PODS, name, {"metadata": metadata}, namespace)

    # --- tasks ---

    async def task_status(
        self, namespace: str, name: str, status: Mapping[str, Any], *, resource_version: str | None = None
    ) -> Object:
        """A merge patch of a GpuTask's status; all of line 3 and 12 that touches the claim goes under its version."""
        body: Object = {"status": status}
        if resource_version is not None:
            body["metadata"] = {"resourceVersion": resource_version}
        return await self._client.patch(GPUTASKS, name, body, namespace, subresource="status")

    async def create_task(self, manifest: Mapping[str, Any]) -> Object:
        """A GpuTask, for a user's command."""
        return await self._client.create(GPUTASKS, manifest, manifest["metadata"]["namespace"])

    async def renew_lease(self, namespace: str, name: str, renew_time: str, *, resource_version: str) -> Object:
        """The renewal of a lease, for its holder's command, at the version that says that it is held."""
        body = {"metadata": {"resourceVersion": resource_version}, "spec": {"lease": {"renewTime": renew_time}}}
        return await self._client.patch(GPUTASKS, name, body, namespace)

    async def delete_task(self, namespace: str, name: str, *, uid: str, resource_version: str | None = None) -> None:
        """A finished task whose time to live is over, at the version that says so; or a lease, for a user's command."""
        await self._client.delete(GPUTASKS, name, namespace, uid=uid, resource_version=resource_version)

    # --- the ledger ---

    async def create_gpunode(self, manifest: Mapping[str, Any]) -> Object:
        """Protocol line 17: a GpuNode for a Node that has none; its status stays empty until it is rebuilt."""
        return await self._client.create(GPUNODES, manifest)

    async def put_ledger(self, gpunode: Mapping[str, Any]) -> Object:
        """Protocol lines 5, 8, 9, 10, 17: the whole status under the version in ``metadata``."""
        return await self._client.replace(GPUNODES, gpunode["metadata"]["name"], gpunode, subresource="status")

    async def delete_gpunode(self, name: str, *, uid: str, resource_version: str) -> None:
        """The Node is gone and no entry is left at this version."""
        await self._client.delete(GPUNODES, name, uid=uid, resource_version=resource_version)

    async def set_finalizers(self, gpunode: Mapping[str, Any], finalizers: Sequence[str]) -> Object:
        """The finalizers of a GpuNode, under its version: it must not go while an entry is left."""
        metadata = gpunode["metadata"]
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": list(finalizers)}}
        return await self._client.patch(GPUNODES, metadata["name"], body)

    # --- beside the protocol ---

    async def create_event(self, manifest: Mapping[str, Any]) -> Object:
        return await self._client.create(EVENTS, manifest, manifest["metadata"]["namespace"])

    async def patch_event(self, namespace: str, name: str, body: Mapping[str, Any]) -> Object:
        """Count and last time of an Event that is already there."""
        return await self._client.patch(EVENTS, name, body, namespace)

    async def annotate_namespace(self, name: str, annotations: Mapping[str, str | None]) -> Object:
        """Annotations of a namespace, for a user's command; None removes one."""
        return await self._client.patch(NAMESPACES, name, {"metadata": {"annotations": dict(annotations)}})

    async def create_lease(self, manifest: Mapping[str, Any]) -> Object:
        """The Lease of the leader election, for the first of all leaders."""
        return await self._client.create(LEASES, manifest, manifest["metadata"]["namespace"])

    async def put_lease(self, lease: Mapping[str, Any]) -> Object:
        """Taken, renewed or given back, under the version in ``metadata``."""
        metadata = lease["metadata"]
        return await self._client.replace(LEASES, metadata["name"], lease, metadata["namespace"])
