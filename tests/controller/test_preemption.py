"""Preemption by the running operator: who is evicted through the API, when, and for whom the room is kept meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gputask.kube.client import Client
from gputask.kube.resources import BUDGETS, GPUNODES, GPUTASKS
from gputask.local.api import Reply
from gputask.local.cluster import LocalCluster
from gputask.local.requests import Request
from gputask.local.statuses import StatusError
from gputask.local.store import encode
from support.controller import on_device, task
from support.local import eventually
from support.operator import Object, World, gpu_node, operated, operated_by


def card(mem: int, **pools: int) -> Object:
    return gpu_node(cards={"a": {"gpuMemoryMB": mem, **pools}})


def asks(name: str, priority: int, mem: int, **more: object) -> Object:
    return task(name, priority=priority, variants=[on_device(gpuMemoryMB=mem)], **more)


async def holds(world: World, node: str = "n1") -> dict[str, Object]:
    status = (await world.get(GPUNODES, node)).get("status") or {}
    return {hold["task"].partition("/")[2]: hold for hold in (status.get("holds") or {}).values()}


def evictions(world: World) -> list[str]:
    """The tasks of all pods that were evicted through the API, in order."""
    assert world.cluster.store.history is not None
    seen: dict[str, str] = {}
    for _, _, kind, pod in world.cluster.store.history:
        if kind != "Pod":
            continue
        for condition in (pod.get("status") or {}).get("conditions") or ():
            if condition["type"] == "DisruptionTarget" and condition["reason"] == "EvictionByEvictionAPI":
                seen.setdefault(pod["metadata"]["uid"], pod["metadata"]["labels"]["gputask.dev/task"])
    return list(seen.values())


class Refusals:
    """Stands before the API and answers evictions of some tasks' pods itself; ``asked`` has the times of all."""

    def __init__(self) -> None:
        self.refuse: dict[str, int] = {}
        """Status by the start of the pod's name (the task's UID)."""
        self.asked: list[tuple[float, str]] = []

    async def __call__(self, request: Request, answer: Callable[[], Reply]) -> Reply | None:
        if not request.path.endswith("/eviction"):
            return answer()
        pod = request.path.split("/")[-2]
        self.asked.append((asyncio.get_running_loop().time(), pod))
        code = next((code for uid, code in self.refuse.items() if pod.startswith(uid)), None)
        if code is None:
            return answer()
        causes = {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods"}]}
        return Reply(code, encode(StatusError(code, "TooManyRequests", "Cannot evict pod", causes).body()))


def budget(name: str, task_name: str, **spec: object) -> Object:
    selector = {"matchLabels": {"gputask.dev/task": task_name}}
    head = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
    }
    return head | {"spec": {"selector": selector, **spec}}


async def running(world: World, *manifests: Object) -> None:
    """These tasks run, submitted one after the other."""
    for manifest in manifests:
        await world.apply(manifest)
        await world.reaches(manifest["metadata"]["name"], "Running")


async def test_v21_the_room_is_made_kept_and_handed_over() -> None:
    async with operated(card(24576), speed=10) as world:
        await running(
            world,
            asks("a", 100, 8192, sim={"stops": "2"}),
            asks("b", 200, 8192, sim={"stops": "10"}),
            asks("c", 300, 8192),
        )
        await world.apply(asks("d", 400, 12288))
        await world.reaches("d", "Preempting")
        assert {v["task"] for v in (await holds(world))["d"]["victims"]} == {"default/a", "default/b"}
        assert "default/a" in (await world.condition("d", "Reserved"))["message"]
        await world.reaches("a", "Pending")
        await world.apply(asks("e", 50, 5000))
        assert "d" not in await world.ledger("n1"), "b has not stopped yet"
        assert (await world.says("a", "Evicted", "True"))["reason"] == "Preempted"
        await world.reaches("d", "Running")
        assert set(await world.ledger("n1")) == {"c", "d"}
        assert await holds(world) == {}
        assert (await world.status("b"))["evictions"] == 1
        await world.apply(asks("f", 350, 4096))
        await world.reaches("f", "Running")
        assert (await world.status("e"))["phase"] == "Pending"
        assert sorted(evictions(world)) == ["a", "b"]


async def test_b75_the_freed_room_is_the_preemptors_and_there_is_one_eviction() -> None:
    async with operated(card(8000), speed=20) as world:
        await running(world, asks("v", 0, 8000))
        await world.apply(asks("p", 10, 8000))
        await world.reaches("p", "Running")
        again = await world.reaches("v", "Pending")
        assert again["evictions"] == 1
        await world.apply(asks("equal", 10, 8000))
        await world.says("equal", "Reserved", "False")
        await asyncio.sleep(0.5)  # nothing is to happen
        assert evictions(world) == ["v"]


async def test_b79_a_plan_that_is_half_done_ends_and_another_one_begins() -> None:
    refusals = Refusals()
    first = gpu_node("n1", cards={"a": {"gpuMemoryMB": 8000}})
    async with operated(first, speed=20, fault=refusals) as world:
        world.engine.evictions.margin = 1.0
        await running(world, asks("v1", 0, 4000, grace=0), asks("v2", 1, 4000, grace=0))
        refusals.refuse[(await world.get(GPUTASKS, "v2"))["metadata"]["uid"]] = 429
        await world.apply(asks("p", 10, 8000))
        await world.reaches("v1", "Pending")

        async def told() -> bool:
            return "disruption budget b" in (await world.condition("p", "Reserved")).get("message", "")

        await eventually(told)
        await eventually(lambda: _empty(world))
        # v2 is in no plan for a while: the room of v1 is for whoever is next, and another node brings another set.
        await world.apply(asks("x", 20, 4000))
        await world.reaches("x", "Running")
        third = gpu_node("n3", cards={"a": {"gpuMemoryMB": 9000}})
        world.cluster.create(third)
        await world.reaches("p", "Running")
        assert (await world.status("v2"))["phase"] == "Running"
        assert "p" in await world.ledger("n3")


async def _empty(world: World) -> bool:
    return await holds(world) == {}


async def test_b81_a_budget_that_allows_none_moves_the_eviction_to_the_next() -> None:
    async with operated(card(8000), speed=20) as world:
        await running(world, asks("w", 1, 4000), asks("v", 0, 4000))
        await world.client.create(BUDGETS, budget("b", "v", minAvailable=1), "default")
        await eventually(lambda: world.engine.store.budgets.get("default"))
        await world.apply(asks("p", 10, 4000))
        await world.reaches("p", "Running")
        assert evictions(world) == ["w"]


async def test_b81_a_refusal_is_told_and_repeated_with_growing_pauses_only() -> None:
    refusals = Refusals()
    async with operated(card(8000), speed=20, fault=refusals) as world:
        world.engine.evictions.pause = 0.2
        await running(world, asks("v", 0, 8000, grace=0))
        refusals.refuse[(await world.get(GPUTASKS, "v"))["metadata"]["uid"]] = 429
        await world.apply(asks("p", 10, 8000))
        await eventually(lambda: len(refusals.asked) >= 3)
        first, second, third = (when for when, _ in refusals.asked[:3])
        assert third - second > second - first > 0.15
        assert (await world.status("v"))["phase"] == "Running"
        refusals.refuse.clear()
        await world.reaches("p", "Running")


async def test_b125_nobody_is_evicted_while_there_is_room() -> None:
    async with operated(card(24000), speed=20) as world:
        await running(world, asks("l", 0, 4000), asks("h", 10, 6000))
        assert evictions(world) == []
        assert (await world.status("l"))["phase"] == "Running"


async def test_b73_a_hold_goes_when_its_task_runs_elsewhere() -> None:
    async with operated(card(8000), speed=20) as world:
        await running(world, asks("v", 0, 8000, grace=600, sim={"stops": "600"}))
        await world.apply(asks("p", 10, 8000))
        await eventually(lambda: holds(world))
        world.cluster.create(gpu_node("n2", cards={"a": {"gpuMemoryMB": 8000}}))
        await world.reaches("p", "Running")
        assert "p" in await world.ledger("n2")
        await eventually(lambda: _empty(world))


async def test_a_restart_in_the_middle_goes_on_with_the_same_victims() -> None:
    async with (
        LocalCluster(nodes=[card(8000)], history=True, speed=10) as local,
        Client(local.connection) as client,
    ):
        async with operated_by(local, client) as world:
            await running(world, asks("v", 0, 4000, sim={"stops": "15"}), asks("w", 0, 4000))
            await world.apply(asks("p", 10, 4000))
            await eventually(lambda: holds(world))
            before = await holds(world)
        async with operated_by(local, client) as world:
            assert await holds(world) == before
            await world.reaches("p", "Running")
            assert len(evictions(world)) == 1
            world.judged()


async def test_a_preemptor_that_goes_leaves_no_hold() -> None:
    async with operated(card(8000), speed=20) as world:
        await running(world, asks("v", 0, 8000, grace=600, sim={"stops": "600"}))
        await world.apply(asks("p", 10, 8000))
        await eventually(lambda: holds(world))
        await world.delete(GPUTASKS, "p")
        await eventually(lambda: _empty(world))


async def test_nobody_is_evicted_for_a_task_whose_last_placement_failed() -> None:
    # The failure is written by the test, so it is counted without any pod.
    async with operated(card(8000), speed=20, excused={"ended twice"}) as world:
        await running(world, asks("v", 0, 8000))
        await world.patch(GPUTASKS, "v", {"spec": {"preemptible": False}})
        await world.apply(asks("p", 10, 8000))
        await world.says("p", "Reserved", "False")
        await world.patch(GPUTASKS, "p", {"status": {"placementFailures": 1}}, subresource="status")
        await world.patch(GPUTASKS, "v", {"spec": {"preemptible": True}})
        await asyncio.sleep(0.5)  # nothing is to happen
        assert evictions(world) == []
