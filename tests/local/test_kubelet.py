"""Simulated nodes against the running server: they act through the API only."""

import asyncio

import pytest

from gputask.kube.client import Client
from gputask.kube.errors import NotFound
from gputask.kube.resources import NODES, PODS
from gputask.local import kubelet
from gputask.local.clock import Clock
from gputask.local.cluster import LocalCluster
from gputask.local.link import Link
from gputask.local.pod_worker import PodWorker
from gputask.local.statuses import StatusError
from gputask.local.store import Event
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

    async def bind(self, body: dict) -> None:
        """Creates and binds a pod."""
        meta = (await self.client.create(PODS, body, "default"))["metadata"]
        version = meta["resourceVersion"]
        await self.client.bind("default", meta["name"], "n1", uid=meta["uid"], resource_version=version)

    async def run(self, body: dict) -> dict:
        """Creates and binds a pod; returns when its containers run."""
        await self.bind(body)
        return await self.reaches("Running", body["metadata"]["name"])

    async def annotate(self, **marks: str | None) -> None:
        """Sets sim.gputask.dev annotations of the node."""
        body = {"metadata": {"annotations": {f"sim.gputask.dev/{key}": value for key, value in marks.items()}}}
        await self.client.patch(NODES, "n1", body)

    async def is_ready(self, status: str) -> dict:
        """The node's Ready condition, once it has this status."""

        async def look() -> dict | None:
            found = (await self.client.get(NODES, "n1"))["status"].get("conditions") or [{}]
            return found[0] if found[0].get("status") == status else None

        return await eventually(look)

    async def pod(self, name: str = "p1") -> dict:
        return await self.client.get(PODS, name, "default")

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
    await PodWorker(stale, bench.client, bench.clock, Link(), on_start=lambda _: None).run()
    assert await bench.client.get(PODS, "p1", "default") == new


class TestAdmission:
    """A kubelet fails what its node cannot hold; who bound it there is not asked."""

    def asking(self, name: str = "p1", **requests: str) -> dict:
        container = {"name": "main", "image": "busybox", "resources": {"requests": requests}}
        return pod(name, containers=[container])

    @pytest.mark.parametrize(
        ("asked", "reason", "said"),
        [
            ({"cpu": "8500m"}, "OutOfcpu", "cpu, requested: 8500, used: 2000, capacity: 8000"),
            ({"cpu": "6001m", "memory": "64Gi"}, "OutOfcpu", "cpu, requested: 6001, used: 2000, capacity: 8000"),
            ({"memory": "32Gi"}, "OutOfmemory", "memory, requested: 34359738368, used: 1048576, capacity: 34359738368"),
            (
                {"example.dev/card": "2"},
                "OutOfexample.dev/card",
                "example.dev/card, requested: 2, used: 0, capacity: 1",
            ),
        ],
    )
    async def test_of_what_does_not_fit_fails_with_the_kubelets_words(self, bench, asked, reason, said):
        card = {"status": {"allocatable": {"example.dev/card": "1"}}}
        await bench.client.patch(NODES, "n1", card, subresource="status")
        await bench.quiet()
        await bench.run(self.asking("other", cpu="2", memory="1Mi"))
        await bench.bind(self.asking(**asked))
        status = (await bench.reaches("Failed"))["status"]
        assert status["reason"] == reason
        assert status["message"] == f"Pod was rejected: Node didn't have enough resource: {said}"
        assert "containerStatuses" not in status
        assert bench.phases() == ["Pending", "Failed"]

    async def test_fills_the_node_to_the_last_unit_and_no_further(self, bench):
        await bench.run(self.asking("a", cpu="5"))
        await bench.run(self.asking("b", cpu="3"))
        await bench.bind(self.asking("c", cpu="1m"))
        await bench.reaches("Failed", "c")

    async def test_counts_pods(self, bench):
        await bench.client.patch(NODES, "n1", {"status": {"allocatable": {"pods": "1"}}}, subresource="status")
        await bench.quiet()
        await bench.run(pod("first"))
        await bench.bind(pod())
        status = (await bench.reaches("Failed"))["status"]
        assert (status["reason"], status["message"]) == (
            "OutOfpods",
            "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1",
        )

    async def test_is_of_what_runs_and_not_of_what_has_ended(self, bench):
        await bench.run(self.asking("first", cpu="8") | {"metadata": pod("first", sim={"runs": "5"})["metadata"]})
        bench.clock.move(5)
        await bench.reaches("Succeeded", "first")
        await bench.run(self.asking(cpu="8"))

    async def test_has_the_room_of_a_deleted_pod_as_soon_as_its_end_is_known(self, bench):
        await bench.run(self.asking("first", cpu="8"))

        def bind_at_once(resource: str, event: Event) -> None:
            was = event.before.obj["status"]["phase"] if event.before else ""
            if resource == "pods" and (was, event.now.obj["status"]["phase"]) == ("Running", "Failed"):
                late = self.asking(cpu="8")
                late["spec"]["nodeName"] = "n1"
                bench.cluster.create(late)

        bench.cluster.store.listeners.append(bind_at_once)
        await bench.client.delete(PODS, "first", "default")
        await bench.quiet()
        bench.clock.move(30)
        await bench.reaches("Running")

    async def test_of_a_stopping_pod_waits_for_its_end(self, bench):
        await bench.run(self.asking("first", cpu="8"))
        await bench.client.delete(PODS, "first", "default")
        await bench.bind(self.asking(cpu="8"))
        await bench.reaches("Failed")

    async def test_does_not_ask_for_resources_that_the_node_does_not_know(self, bench):
        await bench.run(self.asking(**{"example.dev/card": "2"}))


class TestStart:
    async def test_takes_as_long_as_it_is_told(self, bench):
        await bench.bind(pod(sim={"starts": "5", "runs": "2"}))
        await bench.quiet()
        bench.clock.move(4.9)
        await bench.quiet()
        status = (await bench.pod())["status"]
        assert status["phase"] == "Pending"
        assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
        bench.clock.move(0.1)
        await bench.reaches("Running")
        bench.clock.move(2)
        await bench.reaches("Succeeded")

    async def test_never_comes_of_an_image_that_cannot_be_pulled(self, bench):
        await bench.bind(pod(sim={"starts": "never"}))
        await bench.quiet()
        bench.clock.move(100_000)
        await bench.quiet()
        status = (await bench.pod())["status"]
        assert status["phase"] == "Pending"
        assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ImagePullBackOff"}}
        assert [c["status"] for c in status["conditions"] if c["type"] == "Ready"] == ["False"]

    @pytest.mark.parametrize("starts", ["5", "never"])
    async def test_that_is_waited_for_needs_no_grace_when_the_pod_is_deleted(self, bench, starts):
        await bench.bind(pod(sim={"starts": starts}))
        await bench.quiet()
        await bench.client.delete(PODS, "p1", "default")
        await bench.gone()
        assert bench.phases() == ["Pending", "Failed", "DELETED"]

    async def test_counts_for_the_deadline(self, bench):
        await bench.bind(pod(sim={"starts": "never"}, activeDeadlineSeconds=20))
        await bench.quiet()
        bench.clock.move(20)
        assert (await bench.reaches("Failed"))["status"]["reason"] == "DeadlineExceeded"


class TestSilence:
    """A node whose kubelet is cut off: what runs there runs on, and nobody hears of it."""

    async def silent(self, bench) -> None:
        await bench.annotate(silent="true")
        await bench.quiet()

    async def test_makes_the_node_unknown_and_its_pods_unready_after_a_while(self, bench):
        await bench.run(pod())
        await self.silent(bench)
        bench.clock.move(kubelet.MONITOR_SECONDS - 1)
        await bench.quiet()
        await bench.is_ready("True")
        bench.clock.move(1)
        condition = await bench.is_ready("Unknown")
        assert (condition["reason"], condition["message"]) == (
            "NodeStatusUnknown",
            "Kubelet stopped posting node status.",
        )
        await bench.quiet()
        taints = (await bench.client.get(NODES, "n1"))["spec"]["taints"]
        assert [(t["key"], t["effect"]) for t in taints] == [("node.kubernetes.io/unreachable", "NoSchedule")]
        status = (await bench.pod())["status"]
        assert status["phase"] == "Running"
        assert [c["status"] for c in status["conditions"] if c["type"] == "Ready"] == ["False"]

    async def test_that_ends_soon_is_no_matter(self, bench):
        await self.silent(bench)
        bench.clock.move(kubelet.MONITOR_SECONDS - 1)
        await bench.annotate(silent=None)
        await bench.quiet()
        bench.clock.move(10)
        await bench.quiet()
        said = [
            o["status"]["conditions"][0]["status"] for *_, o in bench.of("Node", "n1") if o["status"].get("conditions")
        ]
        assert set(said) == {"True"}

    async def test_lets_deletions_hang_until_the_kubelet_hears_of_them(self, bench):
        await bench.run(pod(terminationGracePeriodSeconds=7))
        await self.silent(bench)
        await bench.client.delete(PODS, "p1", "default")
        bench.clock.move(1_000)
        await bench.quiet()
        hanging = await bench.pod()
        assert hanging["metadata"]["deletionTimestamp"]
        assert hanging["status"]["phase"] == "Running"
        await bench.annotate(silent=None)
        await bench.quiet()
        bench.clock.move(7)
        await bench.gone()

    async def test_hides_the_end_of_a_pod_until_it_is_over(self, bench):
        await bench.run(pod(sim={"runs": "5"}))
        await self.silent(bench)
        bench.clock.move(5)
        await bench.quiet()
        assert (await bench.pod())["status"]["phase"] == "Running"
        await bench.annotate(silent=None)
        await bench.reaches("Succeeded")

    async def test_ends_with_all_as_it_was(self, bench):
        await bench.run(pod())
        await self.silent(bench)
        bench.clock.move(kubelet.MONITOR_SECONDS)
        await bench.is_ready("Unknown")
        await bench.annotate(silent=None)
        await bench.is_ready("True")
        await bench.quiet()
        assert "taints" not in (await bench.client.get(NODES, "n1"))["spec"]
        status = (await bench.pod())["status"]
        assert [c["status"] for c in status["conditions"] if c["type"] == "Ready"] == ["True"]

    async def test_keeps_new_pods_from_starting(self, bench):
        await self.silent(bench)
        await bench.bind(pod())
        await bench.quiet()
        assert (await bench.pod())["status"]["phase"] == "Pending"
        await bench.annotate(silent=None)
        await bench.reaches("Running")

    async def test_ends_pods_that_were_removed_meanwhile(self, bench):
        await bench.run(TestAdmission().asking("first", cpu="8"))
        await self.silent(bench)
        await bench.client.delete(PODS, "first", "default", grace_seconds=0)
        await bench.annotate(silent=None)
        await bench.quiet()
        await bench.run(TestAdmission().asking(cpu="8"))

    async def test_is_overruled_by_the_taint_out_of_service(self, bench):
        await bench.run(pod())
        await self.silent(bench)
        bench.clock.move(kubelet.MONITOR_SECONDS)
        await bench.is_ready("Unknown")
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        found = await bench.client.get(NODES, "n1")
        await bench.client.patch(NODES, "n1", {"spec": {"taints": [*found["spec"].get("taints", []), taint]}})
        await bench.gone()
        assert bench.phases() == ["Pending", "Running", "Failed", "DELETED"]


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
