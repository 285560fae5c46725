"""A cluster, and one or more operators' ledger halves on it, with a network that can lose, delay and repeat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp

from gputask.controller.leases import lease_status
from gputask.kube.client import Client
from gputask.kube.errors import KubeError
from gputask.kube.resources import GPUNODES, GPUTASKS, NODES, PODS
from gputask.kube.transport import HttpTransport, Request, Response
from gputask.kube.writes import Writes
from gputask.ledger.admission import Admission, Placement
from gputask.ledger.binding import Binder
from gputask.ledger.changes import Declare
from gputask.ledger.claims import Claims, next_attempt
from gputask.ledger.entries import check_invariants
from gputask.ledger.leases import Leases
from gputask.ledger.nodes import NodeLedgers
from gputask.ledger.outcome import Outcome
from gputask.ledger.pods import Literals, Manifest, allocation_env, is_terminal, pod_name, task_uid_of, uid_of
from gputask.ledger.rebuild import Rebuilder
from gputask.ledger.recovery import Recovery
from gputask.ledger.release import Releaser
from gputask.local.cluster import LocalCluster
from gputask.local.judge import judge
from gputask.resources.amounts import SCALE
from gputask.resources.pools import Allocation, Device, NodeResources, SumPool

Object = dict[str, Any]
NAMESPACE = "default"
CARD = "GPU-a"


# --- manifests ------------------------------------------------------------------------------------------


def card_node(name: str = "n1", memory: int = 24_576) -> Object:
    """A Node with one card of so many MB and one slot for each 100 of them; nobody simulates it."""
    devices = f'[{{"id": "{CARD}", "resources": {{"gpuMemoryMB": {memory}}}}}]'
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"gputask.dev/devices": devices}},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    }


def card_resources(memory: int = 24_576) -> NodeResources:
    """What :func:`card_node` declares, as understood."""
    pools = {"cpu": SumPool(8 * SCALE), "memory": SumPool(32_768 * SCALE), "pods": SumPool(110 * SCALE)}
    return NodeResources(pools=pools, devices=(Device(CARD, {"gpuMemoryMB": SumPool(memory * SCALE)}),))


def gpu_task(name: str, **spec: Any) -> Object:
    variant = {"name": "gpu", "devices": {"count": 1, "resources": {"gpuMemoryMB": 1000}}}
    work: Object = (
        {} if "lease" in spec else {"template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}}
    )
    return {
        "apiVersion": "gputask.dev/v1alpha1",
        "kind": "GpuTask",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"variants": [variant], **work, **spec},
    }


def on_card(memory: int, node: str = "n1") -> Literals:
    """A decision for so many MB of the card of a node."""
    return Literals(node, "gpu", 0, Allocation({f"gpuMemoryMB/{CARD}": memory * SCALE}, devices=(CARD,)))


def pod_manifest(task: Manifest, attempt: int, literals: Literals) -> Object:
    metadata = task["metadata"]
    owner = {"apiVersion": "gputask.dev/v1alpha1", "kind": "GpuTask", "name": metadata["name"], "uid": metadata["uid"]}
    env = [{"name": "GPUTASK_DEVICES", "value": ",".join(literals.allocation.devices)}, allocation_env(literals)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(metadata["uid"], attempt),
            "namespace": metadata["namespace"],
            "labels": {"gputask.dev/task": metadata["name"], "gputask.dev/task-uid": metadata["uid"]},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "schedulerName": "gputask-direct",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox", "env": env}],
        },
    }


# --- the network ----------------------------------------------------------------------------------------


Effect = Callable[[Request, Callable[[], Any]], Any]
"""What becomes of a request: gets it, and what would send it on."""


@dataclass
class Rule:
    """What happens to the next ``times`` requests that ``matches``; the first of several rules is the outermost."""

    matches: Callable[[Request], bool]
    effect: Effect
    times: int


class Network:
    """A transport that obeys rules; without any it only carries. Watches always pass."""

    def __init__(self, inner: HttpTransport) -> None:
        self._inner = inner
        self.rules: list[Rule] = []
        self.sent: list[Request] = []

    async def send(self, request: Request) -> Response:
        self.sent.append(request)
        met = [rule for rule in self.rules if rule.times > 0 and rule.matches(request)]
        for rule in met:
            rule.times -= 1
        return await self._through(met, request)

    async def _through(self, rules: list[Rule], request: Request) -> Response:
        if not rules:
            return await self._inner.send(request)
        answer: Response = await rules[0].effect(request, lambda: self._through(rules[1:], request))
        return answer

    def stream(self, request: Request) -> AsyncIterator[bytes]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()

    def on(self, method: str, part: str, effect: Effect, times: int = 1) -> None:
        """Let ``effect`` meet the next requests of that method ("" is any) whose path contains ``part``."""
        self.rules.append(Rule(lambda r: method in ("", r.method) and part in r.path, effect, times))

    def count(self, method: str, part: str) -> int:
        return sum(r.method == method and part in r.path for r in self.sent)


async def lose_reply(_request: Request, send: Callable[[], Any]) -> Response:
    """It takes effect, and nobody hears of it."""
    await send()
    raise aiohttp.ServerDisconnectedError


async def lose_request(_request: Request, _send: Callable[[], Any]) -> Response:
    raise aiohttp.ServerDisconnectedError


def answer(status: int, reason: str = "", message: str = "said the test") -> Effect:
    """Answered so, without effect."""

    async def effect(_request: Request, _send: Callable[[], Any]) -> Response:
        body = f'{{"kind":"Status","code":{status},"reason":"{reason}","message":"{message}"}}'
        return Response(status, body.encode())

    return effect


def first(act: Callable[[], Any]) -> Effect:
    """Something else happens in the cluster just before the request arrives."""

    async def effect(_request: Request, send: Callable[[], Any]) -> Response:
        await act()
        response: Response = await send()
        return response

    return effect


# --- one operator ---------------------------------------------------------------------------------------


class FrozenCache:
    """What an operator knows: as old as its last :meth:`refresh`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.tasks: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}

    async def refresh(self) -> None:
        self.tasks = {uid_of(t): t for t in (await self._client.list(GPUTASKS)).items}
        self.pods = {uid_of(p): p for p in (await self._client.list(PODS)).items}

    def task(self, uid: str) -> Manifest | None:
        return self.tasks.get(uid)

    def task_uids(self) -> Iterable[str]:
        owners = (task_uid_of(pod) for pod in self.pods.values())
        return {*self.tasks, *(uid for uid in owners if uid is not None)}

    def pods_of(self, task_uid: str) -> Iterable[Manifest]:
        return [pod for pod in self.pods.values() if task_uid_of(pod) == task_uid]

    def last_words(self, pod_uid: str) -> Manifest | None:
        pod = self.pods.get(pod_uid)
        return pod if pod is not None and is_terminal(pod) else None


def end_status(_task: Manifest, pod: Manifest | None, _refusal: str | None) -> Mapping[str, Any]:
    phase = (pod or {}).get("status", {}).get("phase")
    return {"phase": phase if phase in ("Succeeded", "Failed") else "Pending"}


async def _no_sleep(_seconds: float) -> None:
    await asyncio.sleep(0)


class Operator:
    """The ledger half of one operator process, on a network of its own."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.network = Network(HttpTransport(cluster.connection))
        self.client = client = Client(cluster.connection, transport=self.network)
        self.writes = writes = Writes(client)
        self.changes: list[str] = []
        self.foreign: dict[str, dict[str, int]] = {}
        self.now = 1_000.0
        self.ledgers = NodeLedgers(
            client=client,
            writes=writes,
            on_change=lambda node, _: self.changes.append(node),
            foreign=lambda node: self.foreign.get(node, {}),
            sleep=_no_sleep,
        )
        self.claims = Claims(client=client, writes=writes, sleep=_no_sleep)
        self.out_of_contact: set[str] = set()
        in_contact = lambda node: node not in self.out_of_contact  # noqa: E731
        self.cache = FrozenCache(client)
        self.releaser = Releaser(
            client=client,
            writes=writes,
            ledgers=self.ledgers,
            last_words=self.cache.last_words,
            in_contact=in_contact,
            sleep=_no_sleep,
        )
        clock = lambda: self.now  # noqa: E731
        self.binder = Binder(
            writes=writes,
            ledgers=self.ledgers,
            claims=self.claims,
            releaser=self.releaser,
            on_end=end_status,
            now=clock,
            sleep=_no_sleep,
        )
        self.leases = Leases(
            claims=self.claims,
            ledgers=self.ledgers,
            status=lambda task, why: lease_status(task, why, now=self.now),
            now=clock,
        )
        self.admission = Admission(
            client=client,
            writes=writes,
            claims=self.claims,
            releaser=self.releaser,
            binder=self.binder,
            leases=self.leases,
            sleep=_no_sleep,
        )
        self.rebuilder = Rebuilder(
            client=client,
            writes=writes,
            ledgers=self.ledgers,
            claims=self.claims,
            leases=self.leases,
            cache=self.cache,
            now=clock,
        )
        self.recovery = Recovery(
            writes=writes,
            ledgers=self.ledgers,
            claims=self.claims,
            releaser=self.releaser,
            admission=self.admission,
            leases=self.leases,
            cache=self.cache,
            in_contact=in_contact,
            on_end=end_status,
            now=clock,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
        await self.client.close()

    async def kill(self) -> None:
        """All memory and all coroutines gone; what is on the wire goes on."""
        await self.admission.close()
        await self.ledgers.close()

    async def observe(self) -> None:
        """Lists, GpuNodes first (protocol line 18)."""
        for gpunode in (await self.client.list(GPUNODES)).items:
            self.ledgers.observe(gpunode)
        await self.cache.refresh()

    async def declare(self, node: Manifest, resources: NodeResources) -> None:
        """GpuNode made, told what the Node has, and rebuilt."""
        name = node["metadata"]["name"]
        if self.ledgers.known(name) is None:
            self.ledgers.observe(await self.writes.create_gpunode({**_GPUNODE, "metadata": {"name": name}}))
        await self.ledgers.apply(name, Declare(uid_of(node), resources))
        await self.rebuilder.rebuild([name])

    def begin(self, task: Manifest, literals: Literals, attempt: int | None = None) -> asyncio.Task[Outcome]:
        return self.admission.begin(
            Placement(
                task=task,
                attempt=attempt if attempt is not None else next_attempt(task),
                literals=literals,
                build=None if "lease" in task["spec"] else lambda number: pod_manifest(task, number, literals),
            )
        )

    async def settle(self) -> None:
        """Sweep until a sweep changes nothing (deciding nothing new)."""
        for _ in range(10):
            await self.observe()
            before = len([r for r in self.network.sent if r.method != "GET"])
            with suppress(KubeError):
                await self.rebuilder.rebuild([n for n in ("n1", "n2") if self.ledgers.known(n) is not None])
            await self.recovery.sweep_all()
            if len([r for r in self.network.sent if r.method != "GET"]) == before:
                return
        raise AssertionError("recovery goes on for ever")


class Killer:
    """Stops an operator at its n-th request: ``before`` it is sent, ``after`` it took effect, or so that it comes
    ``late``: when the next operator is at work already."""

    def __init__(self, operator: Operator, at: int, how: str) -> None:
        self.dead = asyncio.Event()
        self.late: Callable[[], Any] | None = None
        self._left = at
        self._how = how
        operator.network.rules.append(Rule(lambda _: True, self._meet, 10_000))

    async def _meet(self, _request: Request, send: Callable[[], Any]) -> Response:
        self._left -= 1
        if self._left == 0:
            if self._how == "after":
                await send()
            elif self._how == "late":
                self.late = send
            self.dead.set()
        if self._left <= 0:
            await asyncio.Event().wait()
        response: Response = await send()
        return response


_GPUNODE = {"apiVersion": "gputask.dev/v1alpha1", "kind": "GpuNode"}


@dataclass
class World:
    """A cluster with one card node ``n1`` (or more), and an operator that knows it."""

    cluster: LocalCluster
    operator: Operator
    stack: AsyncExitStack = field(repr=False)
    excused: set[str] = field(default_factory=set)
    """Rules of the judge that this test breaks itself, as a user with too many rights."""

    async def another(self) -> Operator:
        """One more operator that believes it leads, or the next one after a kill."""
        operator = await self.stack.enter_async_context(Operator(self.cluster))
        await operator.observe()
        return operator

    async def submit(self, name: str = "a", **spec: Any) -> Object:
        return self.cluster.create(gpu_task(name, **spec))

    async def task(self, name: str = "a") -> Object:
        return await self.operator.client.get(GPUTASKS, name, NAMESPACE)

    async def pods(self) -> list[Object]:
        return (await self.operator.client.list(PODS, NAMESPACE)).items

    async def entries(self, node: str = "n1") -> dict[str, Object]:
        gpunode = await self.operator.client.get(GPUNODES, node)
        return dict((gpunode.get("status") or {}).get("reservations") or {})

    async def finish(self, pod: Manifest, phase: str = "Succeeded") -> None:
        """The kubelet says that it ended."""
        body = {"status": {"phase": phase}}
        await self.operator.client.patch(PODS, pod["metadata"]["name"], body, NAMESPACE, subresource="status")

    async def touch(self, pod: Manifest) -> None:
        """A third party writes the pod."""
        body = {"metadata": {"annotations": {"other.dev/touched": pod["metadata"]["resourceVersion"]}}}
        await self.operator.client.patch(PODS, pod["metadata"]["name"], body, NAMESPACE)

    async def delete_pod(self, pod: Manifest) -> None:
        await self.operator.client.delete(PODS, pod["metadata"]["name"], NAMESPACE, grace_seconds=0)

    async def lose_gpunode(self) -> None:
        """Somebody deletes the GpuNode of n1, with all its entries."""
        self.excused.add("released while alive")
        await self.operator.client.patch(GPUNODES, "n1", {"metadata": {"finalizers": None}})
        await self.operator.client.delete(GPUNODES, "n1")

    def check(self) -> None:
        """Nothing in the whole history of the server that must never be stored."""
        findings = judge(self.cluster.store.history)
        assert [str(finding) for finding in findings if finding.rule not in self.excused] == []
        for node in ("n1", "n2"):
            ledger = self.operator.ledgers.known(node)
            assert ledger is None or check_invariants(ledger) == []


@asynccontextmanager
async def world(*, nodes: int = 1, memory: int = 24_576) -> AsyncIterator[World]:
    """Yields a :class:`World`; checks its history at the end."""
    manifests = [card_node(f"n{i + 1}", memory) for i in range(nodes)]
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(LocalCluster(nodes=manifests, history=True))
        operator = await stack.enter_async_context(Operator(cluster))
        made = World(cluster, operator, stack)
        for node in (await operator.client.list(NODES)).items:
            await operator.declare(node, card_resources(memory))
        yield made
        made.check()
