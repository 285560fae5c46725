"""The kubelets of simulated nodes. Clients of the API like any other: they watch, and write statuses and deletions.

A node is simulated if its annotation ``sim.gputask.dev/node`` is "true". One object serves all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from gputask.api.names import SIM_NODE
from gputask.kube.client import Client
from gputask.kube.informer import Informer
from gputask.kube.resources import NODES, PODS
from gputask.local.clock import Clock
from gputask.local.containers import log_text
from gputask.local.pod_worker import FINISHED, STRATEGIC, PodWorker, repeated, timestamp
from gputask.local.statuses import bad_request, not_found

Object = dict[str, Any]

_UNKNOWN = (
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "machineID",
    "osImage",
    "systemUUID",
)
_NODE_INFO = {
    **dict.fromkeys(_UNKNOWN, ""),
    "architecture": "amd64",
    "kubeletVersion": "simulated",
    "operatingSystem": "linux",
}
"""All fields, as Kubernetes has none of them optional: clients with models refuse a node that lacks one."""


class Kubelets:
    """Posts Ready for simulated nodes and runs the pods that are bound to them.

    client: how the API is reached. clock: what runs and graces are measured with.
    """

    def __init__(self, client: Client, *, clock: Clock) -> None:
        self._api = client
        self._clock = clock
        self._nodes = Informer(
            client, NODES, on_add=self._on_node, on_update=lambda _, new: self._on_node(new), on_delete=self._on_no_node
        )
        self._pods = Informer(
            client,
            PODS,
            field_selector="spec.nodeName!=",
            on_add=self._on_pod,
            on_update=lambda _, new: self._on_pod(new),
            on_delete=self._on_no_pod,
        )
        self._simulated: set[str] = set()
        self._running: dict[str, PodWorker] = {}
        self._logs: dict[str, dict[str, str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._nodes.run())
                group.create_task(self._pods.run())
        finally:
            for task in self._tasks:
                task.cancel()

    async def synced(self) -> None:
        """Until nodes and pods have been listed."""
        await self._nodes.synced.wait()
        await self._pods.synced.wait()

    def log(self, pod: Object, container: str | None) -> str:
        """What a container has said (its environment). Raises: StatusError 400 or 404 as the real server does."""
        name, containers = pod["metadata"]["name"], [c["name"] for c in pod["spec"]["containers"]]
        if container is None and len(containers) > 1:
            raise bad_request(f"a container name must be specified for pod {name}, choose one of: {containers}")
        container = container or containers[0]
        if container not in containers:
            raise bad_request(f"container {container} is not valid for pod {name}")
        logs = self._logs.get(pod["metadata"]["uid"])
        if logs is None and not pod["spec"].get("nodeName"):
            raise bad_request(f'pod "{name}" does not have a host assigned')
        if logs is None and pod["spec"]["nodeName"] not in self._simulated:
            raise not_found("", "nodes", pod["spec"]["nodeName"])
        if logs is None:
            raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
        return logs[container]

    def _on_node(self, node: Object) -> None:
        name = node["metadata"]["name"]
        if (node["metadata"].get("annotations") or {}).get(SIM_NODE) != "true":
            self._simulated.discard(name)
            return
        conditions = (node.get("status") or {}).get("conditions") or ()
        # A node that was set to NotReady by hand stays so: that is a fault somebody wants to see.
        if not any(condition.get("type") == "Ready" for condition in conditions):
            self._spawn(self._post_ready(node))
        if name not in self._simulated:
            self._simulated.add(name)
            for pod in list(self._pods.objects.values()):
                self._on_pod(pod)

    def _on_no_node(self, node: Object) -> None:
        name = node["metadata"]["name"]
        self._simulated.discard(name)
        # The machine is gone: nothing of it reports anything any more.
        for uid in [uid for uid, worker in self._running.items() if worker.pod["spec"]["nodeName"] == name]:
            self._running.pop(uid).cancel()

    async def _post_ready(self, node: Object) -> None:
        when = timestamp()
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "simulated kubelet is posting ready status",
            "lastHeartbeatTime": when,
            "lastTransitionTime": when,
        }
        meta = {"uid": node["metadata"]["uid"]}
        await repeated(
            lambda: self._api.patch(
                NODES,
                node["metadata"]["name"],
                {"metadata": meta, "status": {"conditions": [ready], "nodeInfo": _NODE_INFO}},
                subresource="status",
                content_type=STRATEGIC,
            )
        )

    def _on_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._running:
            self._running[uid].see(pod)
        elif pod["spec"].get("nodeName") in self._simulated and (pod.get("status") or {}).get("phase") not in FINISHED:
            worker = PodWorker(pod, self._api, self._clock, on_start=self._on_start)
            self._running[uid] = worker
            worker.task = self._spawn(self._run(worker))

    async def _run(self, worker: PodWorker) -> None:
        await worker.run()
        self._running.pop(worker.pod["metadata"]["uid"], None)

    def _on_no_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._logs.pop(uid, None)
        if worker := self._running.pop(uid, None):
            worker.cancel()

    def _on_start(self, pod: Object) -> None:
        """The pod's containers start with the pod as it is now: their environment is fixed."""
        logs = {container["name"]: log_text(pod, container) for container in pod["spec"]["containers"]}
        self._logs[pod["metadata"]["uid"]] = logs

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
