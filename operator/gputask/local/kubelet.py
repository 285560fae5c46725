"""The kubelets of simulated nodes. Clients of the API like any other: they watch, and write statuses and deletions.

A node is simulated if its annotation ``sim.gputask.dev/node`` is "true". One object serves all of them. With
``sim.gputask.dev/silent`` "true" its kubelet is cut off: it hears and says nothing, while what runs there runs on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from gputask.api.names import SIM_NODE, SIM_SILENT
from gputask.kube.client import Client
from gputask.kube.informer import Informer
from gputask.kube.resources import NODES, PODS
from gputask.local.clock import Clock
from gputask.local.containers import log_text
from gputask.local.fit import refusal
from gputask.local.link import Link
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
_READY = {
    "status": "True",
    "reason": "KubeletReady",
    "message": "simulated kubelet is posting ready status",
}
_UNHEARD = {
    "status": "Unknown",
    "reason": "NodeStatusUnknown",
    "message": "Kubelet stopped posting node status.",
}


MONITOR_SECONDS = 50.0
"""Simulated seconds without a word from a kubelet after which its node is Unknown (node-monitor-grace-period)."""


@dataclass
class _Machine:
    """A simulated node: as it was last seen, its way to the API, and its pods by UID."""

    node: Object
    link: Link = field(default_factory=Link)
    workers: dict[str, PodWorker] = field(default_factory=dict)


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
        self._machines: dict[str, _Machine] = {}
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
        if logs is None and pod["spec"]["nodeName"] not in self._machines:
            raise not_found("", "nodes", pod["spec"]["nodeName"])
        if logs is None:
            raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
        return logs[container]

    def _on_node(self, node: Object) -> None:
        name, marks = node["metadata"]["name"], node["metadata"].get("annotations") or {}
        if marks.get(SIM_NODE) != "true":
            if machine := self._machines.pop(name, None):
                machine.link.mend()
            return
        known = name in self._machines
        machine = self._machines.setdefault(name, _Machine(node))
        machine.node = node
        silent = marks.get(SIM_SILENT) == "true"
        if silent and not machine.link.is_cut:
            machine.link.cut()
            self._spawn(self._lose(machine))
        elif machine.link.is_cut and not silent:
            machine.link.mend()
            self._catch_up(machine)
        # A node that was set to NotReady by hand stays so: that is a fault somebody wants to see.
        elif not silent and not _conditions(node, "Ready"):
            self._spawn(self._post_ready(machine, _READY))
        if not known:
            self._start_all(name)

    def _on_no_node(self, node: Object) -> None:
        name = node["metadata"]["name"]
        self._machines.pop(name, None)
        # The machine is gone: nothing of it reports anything any more.
        for uid in [uid for uid, worker in self._running.items() if worker.pod["spec"]["nodeName"] == name]:
            self._running.pop(uid).cancel()

    def _start_all(self, node: str) -> None:
        for pod in [pod for pod in self._pods.objects.values() if pod["spec"].get("nodeName") == node]:
            self._on_pod(pod)

    async def _lose(self, machine: _Machine) -> None:
        """What the node lifecycle controller does about a kubelet that it does not hear from."""
        await machine.link.still_cut(self._clock, MONITOR_SECONDS)
        if machine.link.is_cut:
            await self._post_ready(machine, _UNHEARD)
            await self._post_pods_ready(machine, "False")

    def _catch_up(self, machine: _Machine) -> None:
        """The kubelet is heard again, and sees what it has missed."""
        for uid in machine.workers.keys() - self._pods.objects.keys():
            if worker := self._drop(uid):
                worker.cancel()
        self._start_all(machine.node["metadata"]["name"])
        self._spawn(self._post_ready(machine, _READY))
        self._spawn(self._post_pods_ready(machine, "True"))

    async def _post_ready(self, machine: _Machine, said: Object) -> None:
        when, meta = timestamp(), machine.node["metadata"]
        status: Object = {"conditions": [{"type": "Ready", "lastTransitionTime": when, **said}]}
        if said is _READY:
            # The last word of a kubelet, so not changed for one that is not heard.
            status["conditions"][0]["lastHeartbeatTime"] = when
            status["nodeInfo"] = _NODE_INFO
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        await repeated(lambda: self._api.patch(NODES, meta["name"], body, subresource="status", content_type=STRATEGIC))

    async def _post_pods_ready(self, machine: _Machine, ready: str) -> None:
        """Readiness of pods that run, as far as it is another one than they have."""
        for worker in list(machine.workers.values()):
            pod = self._pods.objects.get(worker.pod["metadata"]["uid"])
            if pod is None or worker.ended or pod["status"].get("phase") != "Running":
                continue
            if _conditions(pod, "Ready") != [ready]:
                await self._post_pod_ready(pod, ready)

    async def _post_pod_ready(self, pod: Object, ready: str) -> None:
        meta = pod["metadata"]
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": timestamp()}
        body = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [condition]}}
        await repeated(
            lambda: self._api.patch(
                PODS, meta["name"], body, meta["namespace"], subresource="status", content_type=STRATEGIC
            )
        )

    def _on_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        machine = self._machines.get(pod["spec"].get("nodeName", ""))
        if machine is not None and machine.link.is_cut:
            return
        if uid in self._running:
            self._running[uid].see(pod)
        elif machine is not None and (pod.get("status") or {}).get("phase") not in FINISHED:
            self._start(machine, pod)

    def _start(self, machine: _Machine, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        worker = PodWorker(pod, self._api, self._clock, machine.link, on_start=self._on_start)
        refused = None
        if (pod.get("status") or {}).get("phase") != "Running":
            others = [other.requests for other in machine.workers.values() if not other.ended]
            refused = refusal(machine.node, worker.requests, others)
        self._running[uid] = machine.workers[uid] = worker
        worker.task = self._spawn(self._run(worker, refused))

    async def _run(self, worker: PodWorker, refused: tuple[str, str] | None) -> None:
        await (worker.run() if refused is None else worker.refuse(*refused))
        self._drop(worker.pod["metadata"]["uid"])

    def _on_no_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._logs.pop(uid, None)
        machine = self._machines.get(pod["spec"].get("nodeName", ""))
        if machine is not None and machine.link.is_cut:
            return
        if worker := self._drop(uid):
            worker.cancel()

    def _drop(self, uid: str) -> PodWorker | None:
        worker = self._running.pop(uid, None)
        if worker and (machine := self._machines.get(worker.pod["spec"]["nodeName"])):
            machine.workers.pop(uid, None)
        return worker

    def _on_start(self, pod: Object) -> None:
        """The pod's containers start with the pod as it is now: their environment is fixed."""
        logs = {container["name"]: log_text(pod, container) for container in pod["spec"]["containers"]}
        self._logs[pod["metadata"]["uid"]] = logs

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _conditions(obj: Object, kind: str) -> list[str]:
    """The status of the condition of that type, if there is one."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return [condition["status"] for condition in conditions if condition.get("type") == kind]
