"""The life of a task beyond the main job: crashes, refusals by the kubelet, evictions, its removal after the end."""

from __future__ import annotations

from gputask.api.times import epoch
from gputask.kube.client import Client
from gputask.kube.errors import NotFound
from gputask.kube.resources import GPUTASKS, NODES, PODS
from gputask.local.cluster import LocalCluster
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
