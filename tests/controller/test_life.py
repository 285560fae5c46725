"""The life of a task beyond the main job: crashes, refusals by the kubelet, evictions, its removal after the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gputask.api.times import epoch
from gputask.kube.client import Client
from gputask.kube.errors import NotFound
from gputask.kube.resources import GPUTASKS, NODES, PODS
from gputask.local.api import Reply
from gputask.local.cluster import LocalCluster
from gputask.local.requests import Request
from gputask.local.statuses import StatusError
from gputask.local.store import encode
from support.controller import on_device, task
from support.local import eventually
from support.operator import Object, World, gpu_node, operated, operated_by

CRASHES = {"runs": "1", "exit-code": "3"}


async def attempt(world: World, name: str, number: int, phase: str = "Running") -> Object:
    """The status of a task once its attempt of this number is in this phase."""

    async def there() -> Object | None:
        found = await world.status(name)
        reached = (found.get("reservation") or {}).get("attempt") == number and found.get("phase") == phase
        return found if reached else None

    found: Object = await eventually(there)
    return found


async def refuse(world: World, pod: str) -> None:
    """What a kubelet says of a pod that it cannot take."""
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no such device"}
    await world.patch(PODS, pod, {"status": status}, subresource="status")


async def test_a_task_that_crashes_starts_again_and_fails_at_the_crash_after_its_limit() -> None:
    async with operated(gpu_node(), speed=20) as world:
        await world.apply(task("t", restartPolicy={"limit": 2, "backoffSeconds": 1}, sim=CRASHES))
        ended = await world.reaches("t", "Failed")
        assert (ended["crashes"], ended["reservation"]["attempt"]) == (3, 3)
        assert "crash 3, restartPolicy.limit is 2" in (await world.condition("t", "Finished"))["message"]
        await world.ledger_is("n1", ())
        world.judged()


async def test_a_crashed_task_in_its_pause_holds_nothing_and_blocks_nobody() -> None:
    async with operated(gpu_node(cards={"a": {"gpuMemoryMB": 8000}}), speed=20) as world:
        want = [on_device(gpuMemoryMB=8000)]
        policy = {"limit": 1, "backoffSeconds": 600}
        await world.apply(task("t", priority=9, variants=want, restartPolicy=policy, sim=CRASHES))
        await world.says("t", "Reserved", "False")

        async def pauses() -> bool:
            return (await world.condition("t", "Reserved")).get("reason") == "BackOff"

        await eventually(pauses)
        await world.apply(task("low", priority=0, variants=want))
        await world.reaches("low", "Running")


async def test_a_restart_of_the_operator_neither_forgets_a_crash_nor_shortens_the_pause() -> None:
    async with LocalCluster(nodes=[gpu_node()], history=True, speed=20) as local, Client(local.connection) as client:
        async with operated_by(local, client) as world:
            await world.apply(task("t", restartPolicy={"limit": 1, "backoffSeconds": 4}, sim=CRASHES))

            async def crashed() -> Object | None:
                found = await world.status("t")
                return found if found.get("crashes") == 1 else None

            once = await eventually(crashed)
        async with operated_by(local, client) as world:
            ended = await world.reaches("t", "Failed")
            assert ended["crashes"] == 2
            assert epoch(ended["finishTime"]) >= int(epoch(once["retryTime"]))
            world.judged()


async def test_b63_a_refusal_by_the_kubelet_is_a_placement_failure_and_the_third_in_a_row_is_the_end() -> None:
    # Nodes without a simulated kubelet: the test speaks for theirs.
    silent = {"sim.gputask.dev/node": "false"}
    nodes = ("n1", "n2", "n3")
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    async with operated(*(gpu_node(name, annotations=silent) for name in nodes)) as world:
        for node in nodes:
            await world.patch(NODES, node, ready, subresource="status")
        await world.apply(task("t"))
        seen = []
        for number in (1, 2, 3):
            status = await attempt(world, "t", number, "Bound")
            assert (status.get("placementFailures") or 0) == number - 1
            seen.append(status["reservation"]["node"])
            await refuse(world, status["reservation"]["pod"])
        ended = await world.reaches("t", "Failed")
        assert ended["placementFailures"] == 3
        assert len(set(seen[:2])) == 2, "the node that refused it is not tried again at once"
        for node in nodes:
            await world.ledger_is(node, ())
        world.judged()


async def test_a_pod_that_does_not_start_in_time_is_a_placement_failure_also_for_the_next_operator() -> None:
    silent = {"sim.gputask.dev/node": "false"}
    nodes = [gpu_node(name, annotations=silent) for name in ("n1", "n2")]
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    async with LocalCluster(nodes=nodes, history=True) as local, Client(local.connection) as client:
        async with operated_by(local, client) as world:
            for node in ("n1", "n2"):
                await world.patch(NODES, node, ready, subresource="status")
            await world.apply(task("t", grace=0, startTimeoutSeconds=2, placementFailureLimit=2))
            first = await attempt(world, "t", 1, "Bound")
        async with operated_by(local, client) as world:
            second = await attempt(world, "t", 2, "Bound")
            assert second["placementFailures"] == 1
            assert second["reservation"]["node"] != first["reservation"]["node"]
            ended = await world.reaches("t", "Failed")
            assert (ended["placementFailures"], ended.get("evictions"), ended.get("crashes")) == (2, None, None)
            message = (await world.condition("t", "Finished"))["message"]
            assert "not running 2 s after its bind" in message
            await world.ledger_is("n1", ())
            await world.ledger_is("n2", ())
            world.judged()


class RefusesBinds:
    """A policy that refuses every binding of one task's pods."""

    def __init__(self, name: str) -> None:
        self.cluster: LocalCluster | None = None
        self._label = f'"gputask.dev/task":"{name}"'.encode()
        self.refused = 0

    async def __call__(self, request: Request, answer: Callable[[], Reply]) -> Reply | None:
        pod = request.path.removesuffix("/binding")
        if pod == request.path or self.cluster is None:
            return answer()
        if self._label not in self.cluster.api.handle(Request("GET", pod, {})).body:
            return answer()
        self.refused += 1
        return Reply(403, encode(StatusError(403, "Forbidden", "policy: not on this card").body()))


async def test_v34_a_refused_bind_pauses_its_task_which_then_evicts_nobody_and_fails_at_its_limit() -> None:
    policy = RefusesBinds("x")
    async with operated(gpu_node(cards={"a": {"gpuMemoryMB": 8000}}), speed=20, fault=policy) as world:
        policy.cluster = world.cluster
        wants = [on_device(gpuMemoryMB=8000)]
        await world.apply(task("x", priority=100, variants=wants), task("y", variants=wants, sim={"runs": "40"}))
        await world.reaches("y", "Running")
        await asyncio.sleep(0.3)  # other texts of its status are written meanwhile
        bound = await world.condition("x", "Bound")
        assert (bound["status"], bound["reason"]) == ("False", "BindRefused")
        assert "policy: not on this card" in (await world.condition("x", "Reserved"))["message"]
        ended = await world.reaches("x", "Failed")
        assert ended["placementFailures"] == policy.refused == 3
        assert (await world.reaches("y", "Running", "Succeeded")).get("evictions") is None
        assert set(await world.ledger("n1")) <= {"y"}


async def test_a_pod_deleted_by_somebody_is_an_eviction_until_the_task_runs_again() -> None:
    async with operated(gpu_node(), speed=20) as world:
        await world.apply(task("t", grace=1))
        status = await world.reaches("t", "Running")
        await world.delete(PODS, status["reservation"]["pod"])
        await attempt(world, "t", 2)
        await world.says("t", "Evicted", "False")
        assert (await world.status("t"))["evictions"] == 1
        assert "crashes" not in await world.status("t")


async def test_a_finished_task_is_removed_after_its_time_to_live_and_one_without_stays() -> None:
    async with operated(gpu_node(), speed=20) as world:
        await world.apply(task("gone", sim={"runs": "1"}, ttlSecondsAfterFinished=1), task("kept", sim={"runs": "1"}))
        assert (await world.reaches("kept", "Succeeded"))["finishTime"]

        async def removed() -> bool:
            try:
                await world.get(GPUTASKS, "gone")
            except NotFound:
                return True
            return False

        await eventually(removed)
        assert (await world.status("kept"))["phase"] == "Succeeded"
        world.judged()
