"""Simulated nodes against the running server: they act through the API only."""

import asyncio

import pytest

from gputask.kube.client import Client
from gputask.kube.errors import NotFound
from gputask.kube.resources import NODES, PODS
from gputask.local.clock import Clock
from gputask.local.cluster import LocalCluster
from gputask.local.pod_worker import PodWorker
from gputask.local.statuses import StatusError
from support.local import eventually, node, pod


class StoppedClock(Clock):
    """Simulated time that moves when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self._moved = asyncio.Event()

    def now(self) -> float:
        return self.time

    def move(self, seconds: float) -> None:
        self.time += seconds
        self._moved.set()
        self._moved = asyncio.Event()

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        waits = [asyncio.create_task(event.wait()), asyncio.create_task(self._moved.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()


class Bench:
    """A cluster of one node on a stopped clock, with a client."""

    def __init__(self, cluster: LocalCluster, client: Client, clock: StoppedClock) -> None:
        self.cluster, self.client, self.clock = cluster, client, clock

    async def run(self, body: dict) -> dict:
        """Creates and binds a pod; returns when its containers run."""
        created = await self.client.create(PODS, body, "default")
        meta = created["metadata"]
        version = meta["resourceVersion"]
        await self.client.bind("default", meta["name"], "n1", uid=meta["uid"], resource_version=version)
        return await self.reaches("Running", meta["name"])

    async def reaches(self, phase: str, name: str = "p1") -> dict:
        async def look() -> dict | None:
            found = await self.client.get(PODS, name, "default")
            return found if found["status"].get("phase") == phase else None

        return await eventually(look)

    async def gone(self, name: str = "p1") -> None:
        async def look() -> bool:
            try:
                await self.client.get(PODS, name, "default")
            except NotFound:
                return True
            return False

        await eventually(look)

    async def quiet(self) -> None:
        """Everything that can happen at this time has happened."""
        before = -1
        while before != self.cluster.store.number:
            before = self.cluster.store.number
            await asyncio.sleep(0.02)

    def phases(self, name: str = "p1") -> list[str]:
        """All that the pod's status ever said, without repetitions."""
        seen = [verb if verb == "DELETED" else o["status"]["phase"] for _, verb, kind, o in self.of("Pod", name)]
        return [phase for i, phase in enumerate(seen) if i == 0 or phase != seen[i - 1]]

    def of(self, kind: str, name: str) -> list:
        return [c for c in self.cluster.store.history if c[2] == kind and c[3]["metadata"]["name"] == name]


@pytest.fixture
async def bench():
    clock = StoppedClock()
    cluster = LocalCluster(nodes=[node()], crds=[], history=True, clock=clock)
    async with cluster, Client(cluster.connection) as client:
        yield Bench(cluster, client, clock)


async def test_a_simulated_node_becomes_ready_and_loses_its_taint(bench):
    async def look() -> bool:
        found = await bench.client.get(NODES, "n1")
        return not found["spec"].get("taints")

    await eventually(look)
    found = await bench.client.get(NODES, "n1")
    assert [(c["type"], c["status"]) for c in found["status"]["conditions"]] == [("Ready", "True")]
    assert found["status"]["allocatable"]["cpu"] == "8"


async def test_a_node_that_is_not_simulated_is_left_alone(bench):
    await bench.client.create(NODES, node("real", simulated=False))
    await bench.quiet()
    found = await bench.client.get(NODES, "real")
    assert "conditions" not in found["status"]
    assert found["spec"]["taints"][0]["key"] == "node.kubernetes.io/not-ready"


async def test_a_pod_runs_for_its_time(bench):
    await bench.run(pod(sim={"runs": "5"}))
    bench.clock.move(4.9)
    await bench.quiet()
    await bench.reaches("Running")
    bench.clock.move(0.1)
    ended = await bench.reaches("Succeeded")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert bench.phases() == ["Pending", "Running", "Succeeded"]


async def test_an_exit_code_makes_it_fail(bench):
    await bench.run(pod(sim={"runs": "1", "exit-code": "3"}))
    bench.clock.move(1)
    ended = await bench.reaches("Failed")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_a_deadline_makes_it_fail_with_the_reason(bench):
    await bench.run(pod(activeDeadlineSeconds=20))
    bench.clock.move(20)
    assert (await bench.reaches("Failed"))["status"]["reason"] == "DeadlineExceeded"


async def test_a_deleted_pod_stays_for_its_grace_and_then_goes(bench):
    await bench.run(pod(terminationGracePeriodSeconds=7))
    await bench.client.delete(PODS, "p1", "default")
    await bench.quiet()
    bench.clock.move(6.9)
    await bench.quiet()
    assert (await bench.client.get(PODS, "p1", "default"))["status"]["phase"] == "Running"
    bench.clock.move(0.1)
    await bench.gone()
    assert bench.phases() == ["Pending", "Running", "Failed", "DELETED"]


async def test_a_container_that_obeys_goes_sooner(bench):
    await bench.run(pod(sim={"stops": "2"}))
    await bench.client.delete(PODS, "p1", "default")
    await bench.quiet()
    bench.clock.move(2)
    await bench.gone()


async def test_a_shortened_grace_counts(bench):
    await bench.run(pod())
    await bench.client.delete(PODS, "p1", "default")
    await bench.client.delete(PODS, "p1", "default", grace_seconds=3)
    await bench.quiet()
    bench.clock.move(3)
    await bench.gone()


async def test_restarts_follow_the_policy(bench):
    await bench.run(pod(sim={"runs": "5", "exit-code": "1"}, restartPolicy="OnFailure"))
    bench.clock.move(5)
    await bench.quiet()
    status = (await bench.reaches("Running"))["status"]
    assert status["containerStatuses"][0]["restartCount"] == 1
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1


async def test_the_log_is_the_environment_at_the_start(bench):
    variable = {"name": "V", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['v']"}}}
    container = {"name": "main", "image": "busybox", "env": [{"name": "A", "value": "x"}, variable]}
    running = await bench.run(pod(meta={"annotations": {"v": "first"}}, containers=[container]))
    log = await bench.client.get(PODS, "p1", "default")
    assert log["metadata"]["uid"] == running["metadata"]["uid"]
    assert bench.cluster.api.log(log, None) == "A=x\nV=first\n"
    log["metadata"]["annotations"]["v"] = "second"
    assert bench.cluster.api.log(log, "main") == "A=x\nV=first\n"
    with pytest.raises(StatusError, match="not valid for pod"):
        bench.cluster.api.log(log, "other")


async def test_the_log_of_a_pod_without_a_node_is_refused(bench):
    created = await bench.client.create(PODS, pod(), "default")
    with pytest.raises(StatusError, match="does not have a host assigned"):
        bench.cluster.api.log(created, None)


async def test_a_node_that_goes_takes_its_pods_with_it(bench):
    await bench.run(pod(sim={"runs": "5"}))
    await bench.client.delete(NODES, "n1")
    await bench.gone()
    bench.clock.move(10)
    await bench.quiet()
    assert bench.phases() == ["Pending", "Running", "Failed", "DELETED"]


async def test_a_namesake_of_a_deleted_pod_is_not_touched_by_its_end(bench):
    await bench.run(pod(sim={"runs": "5"}))
    await bench.client.delete(PODS, "p1", "default", grace_seconds=0)
    await bench.client.create(PODS, pod(), "default")
    bench.clock.move(5)
    await bench.quiet()
    assert (await bench.client.get(PODS, "p1", "default"))["status"]["phase"] == "Pending"


async def test_a_kubelet_that_has_not_heard_of_the_deletion_leaves_the_namesake_alone(bench):
    stale = await bench.client.create(PODS, pod(sim={"runs": "0"}), "default")
    await bench.client.delete(PODS, "p1", "default")
    new = await bench.client.create(PODS, pod(), "default")
    await PodWorker(stale, bench.client, bench.clock, on_start=lambda _: None).run()
    assert await bench.client.get(PODS, "p1", "default") == new


async def test_many_pods_on_many_nodes_all_end(bench):
    for i in range(2, 6):
        await bench.client.create(NODES, node(f"n{i}"))
    for i in range(60):
        await bench.client.create(PODS, pod(f"x{i}", nodeName=f"n{1 + i % 5}", sim={"runs": "3"}), "default")
    await bench.quiet()
    bench.clock.move(3)

    async def all_ended() -> bool:
        listed = await bench.client.list(PODS, "default", field_selector="status.phase=Succeeded")
        return len(listed.items) == 60

    await eventually(all_ended)
