"""A real operator on the embedded cluster, and what tests ask of it. Everything goes over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from gputask.controller.app import operating
from gputask.controller.engine import Engine
from gputask.kube.client import Client
from gputask.kube.errors import NotFound
from gputask.kube.resources import GPUNODES, GPUTASKS, NODES, PODS, Resource
from gputask.local.cluster import LocalCluster
from gputask.local.judge import judge
from support.local import eventually

Object = dict[str, Any]

_RESOURCES: Mapping[str, Resource] = {"GpuTask": GPUTASKS, "Node": NODES, "Pod": PODS, "GpuNode": GPUNODES}


def gpu_node(
    name: str = "n1",
    *,
    cards: Mapping[str, Mapping[str, Any]] | None = None,
    pools: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    cpu: Any = 64,
    memory: Any = "256Gi",
) -> Object:
    """A simulated Node; ``cards`` are its devices with their pools, ``pools`` what it declares at node level."""
    marks = {"sim.gputask.dev/node": "true", **(annotations or {})}
    if cards is not None:
        devices = [{"id": id, "index": i, "resources": dict(card)} for i, (id, card) in enumerate(cards.items())]
        marks["gputask.dev/devices"] = json.dumps(devices)
    if pools is not None:
        marks["gputask.dev/resources"] = json.dumps(dict(pools))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": marks},
        "status": {"allocatable": {"cpu": str(cpu), "memory": str(memory), "pods": "110"}},
    }


class Errors(logging.Handler):
    """Keeps what an operator must never log: errors, and tracebacks at any level."""

    def __init__(self) -> None:
        super().__init__()
        self.logged: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self.logged.append(f"{record.levelname} {record.name}: {record.getMessage()} {record.exc_info or ''}")


class World:
    """One cluster with one operator."""

    def __init__(self, cluster: LocalCluster, client: Client, engine: Engine, errors: Errors) -> None:
        self.cluster = cluster
        self.client = client
        self.engine = engine
        self.errors = errors

    # --- what a user does ---

    async def apply(self, *manifests: Object) -> list[Object]:
        """Create all of them at the same instant."""
        return list(
            await asyncio.gather(
                *(self.client.create(_RESOURCES[m["kind"]], m, m["metadata"].get("namespace")) for m in manifests)
            )
        )

    async def patch(self, resource: Resource, name: str, body: Object, **more: Any) -> Object:
        namespace = "default" if resource.namespaced else None
        return await self.client.patch(resource, name, body, namespace, **more)

    async def delete(self, resource: Resource, *names: str) -> None:
        namespace = "default" if resource.namespaced else None
        await asyncio.gather(*(self.client.delete(resource, name, namespace) for name in names))

    # --- what a user sees ---

    async def get(self, resource: Resource, name: str) -> Object:
        return await self.client.get(resource, name, "default" if resource.namespaced else None)

    async def status(self, name: str) -> Object:
        return (await self.get(GPUTASKS, name)).get("status") or {}

    async def log(self, pod: str) -> str:
        """What ``kubectl logs`` prints of the pod's first container."""
        path = f"{self.cluster.url}{PODS.path(namespace='default', name=pod, subresource='log')}"
        async with aiohttp.ClientSession() as session, session.get(path) as answer:
            return await answer.text()

    async def condition(self, name: str, kind: str) -> Object:
        """A condition of a GpuTask; empty if it has none of that type."""
        return next((c for c in (await self.status(name)).get("conditions") or () if c["type"] == kind), {})

    async def phases(self) -> dict[str, str]:
        """The phase of each GpuTask; "" where it has none yet."""
        tasks = (await self.client.list(GPUTASKS, "default")).items
        return {task["metadata"]["name"]: (task.get("status") or {}).get("phase", "") for task in tasks}

    async def in_phase(self, *wanted: str) -> set[str]:
        return {name for name, phase in (await self.phases()).items() if phase in wanted}

    async def reaches(self, name: str, *phases: str) -> Object:
        """The status of a task, once it is in one of these phases."""

        async def there() -> Object | None:
            found = await self.status(name)
            return found if found.get("phase") in phases else None

        found: Object = await eventually(there)
        return found

    async def says(self, name: str, kind: str, status: str) -> Object:
        """A condition of a GpuTask, once it has this status."""

        async def there() -> Object | None:
            found = await self.condition(name, kind)
            return found if found.get("status") == status else None

        found: Object = await eventually(there)
        return found

    async def waits_for(self, name: str, what: str) -> None:
        """Once a task that waits says so with this in its message: a resource that is short, for one."""

        async def told() -> bool:
            said = await self.condition(name, "Reserved")
            return said.get("status") == "False" and what in said["message"]

        await eventually(told)
        assert (await self.status(name))["phase"] == "Pending"

    async def ledger(self, node: str) -> Mapping[str, Object]:
        """The entries of a node by the name of their task."""
        try:
            status = (await self.get(GPUNODES, node)).get("status") or {}
        except NotFound:
            return {}
        return {entry["task"].partition("/")[2]: entry for entry in (status.get("reservations") or {}).values()}

    async def ledger_is(self, node: str, tasks: Iterable[str]) -> Mapping[str, Object]:
        """The entries of a node, once they are those of these tasks."""

        async def there() -> tuple[Mapping[str, Object]] | None:
            found = await self.ledger(node)
            return (found,) if set(found) == set(tasks) else None

        (found,) = await eventually(there)
        return dict(found)

    # --- what nobody may ever see ---

    def judged(self, *, excused: Collection[str] = ()) -> None:
        """Nothing in the whole history breaks a rule: judged without any code of the operator.

        ``excused`` are rules that the test broke itself.
        """
        assert self.cluster.store.history is not None
        findings = judge(self.cluster.store.history)
        assert [str(finding) for finding in findings if finding.rule not in excused] == []


@asynccontextmanager
async def operated(
    *nodes: Object, excused: Collection[str] = (), max_waiting: int | None = None, **cluster: Any
) -> AsyncIterator[World]:
    """A cluster with these nodes and an operator that is synced; its history is judged at the end, but for rules that
    are ``excused`` because the test breaks them itself."""
    async with (
        LocalCluster(nodes=nodes, history=True, **cluster) as local,
        Client(local.connection) as client,
        operated_by(local, client, max_waiting=max_waiting) as world,
    ):
        yield world
        world.judged(excused=excused)


@asynccontextmanager
async def operated_by(
    local: LocalCluster, client: Client, *, port: int = 0, max_waiting: int | None = None
) -> AsyncIterator[World]:
    """An operator on a cluster that is there; ``port`` is that of its health and metrics."""
    errors = Errors()
    logging.getLogger().addHandler(errors)
    try:
        async with operating(local.connection, host="127.0.0.1", port=port, max_waiting=max_waiting) as engine:
            async with asyncio.timeout(30):
                await engine.synced.wait()
            yield World(local, client, engine, errors)
    finally:
        logging.getLogger().removeHandler(errors)
