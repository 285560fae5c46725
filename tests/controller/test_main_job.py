"""The main job, end to end: GpuTasks are applied, reserved, bound, run and released."""

from __future__ import annotations

from typing import Any

from gputask.kube.client import Client
from gputask.kube.errors import NotFound
from gputask.kube.resources import GPUNODES, GPUTASKS, NODES, PODS
from gputask.local.cluster import LocalCluster
from support.controller import on_device, task, variant
from support.local import eventually
from support.operator import Object, World, gpu_node, operated, operated_by

CARDS = {"GPU-a": {"gpuSlot": ["s", "t"], "gpuMemoryMB": 24000}, "GPU-b": {"gpuSlot": ["u", "v"], "gpuMemoryMB": 24000}}


async def environment(world: World, name: str) -> dict[str, str]:
    """What the container of a task sees, as the simulated kubelet logs it."""
    status = await world.status(name)
    log = await world.log(status["reservation"]["pod"])
    return dict(line.split("=", 1) for line in log.splitlines() if "=" in line)


async def pods_of(world: World, name: str) -> list[Object]:
    selector = f"gputask.dev/task={name}"
    return (await world.client.list(PODS, "default", label_selector=selector)).items


async def test_a_task_runs_in_its_first_variant_is_told_its_devices_and_gives_the_room_back() -> None:
    async with operated(gpu_node(cards=CARDS), speed=20) as world:
        wants = [on_device("gpu", cpu=4, gpuSlot=1, gpuMemoryMB=20000), variant("cpu", cpu=4)]
        await world.apply(task("train", variants=wants, sim={"runs": "20"}))
        status = await world.reaches("train", "Running")
        claim = status["reservation"]
        assert (claim["variant"], claim["variantIndex"], claim["node"]) == ("gpu", 0, "n1")
        entry = (await world.ledger("n1"))["train"]
        assert entry["devices"] == claim["devices"]
        assert (entry["state"], entry["amounts"]["cpu"]) == ("Bound", "4")
        told = await environment(world, "train")
        (device,) = claim["devices"]
        assert told["GPUTASK_VARIANT"] == "gpu"
        assert told["GPUTASK_DEVICES"] == told["NVIDIA_VISIBLE_DEVICES"] == device
        assert told["GPUTASK_GPUMEMORYMB"] == "20000"
        assert told["GPUTASK_GPUSLOT_LABELS"] == entry["labels"][f"gpuSlot/{device}"][0]
        assert {c["type"]: c["status"] for c in status["conditions"]} == {
            "Accepted": "True",
            "Feasible": "True",
            "Reserved": "True",
            "Bound": "True",
            "Ready": "True",
        }
        ended = await world.reaches("train", "Succeeded")
        assert (await world.condition("train", "Finished"))["reason"] == "Succeeded"
        assert ended["reservation"]["node"] == "n1"
        await world.ledger_is("n1", ())


async def test_containers_that_get_no_device_are_told_so() -> None:
    containers = [{"name": "main", "image": "busybox"}, {"name": "log", "image": "busybox"}]
    async with operated(gpu_node(cards=CARDS)) as world:
        template = {"spec": {"containers": containers}}
        await world.apply(task("two", variants=[on_device(gpuSlot=1)], template=template))
        await world.reaches("two", "Running")
        (pod,) = await pods_of(world, "two")
        main, log = pod["spec"]["containers"]
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in log["env"]
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} not in main["env"]


async def test_a_task_that_fails_says_with_which_code() -> None:
    async with operated(gpu_node(), speed=20) as world:
        await world.apply(task("bad", sim={"runs": "1", "exit-code": "3"}))
        await world.reaches("bad", "Failed")
        finished = await world.condition("bad", "Finished")
        assert finished["reason"] == "Failed"
        assert "3" in finished["message"]


async def test_the_time_limit_ends_a_task() -> None:
    async with operated(gpu_node(), speed=20) as world:
        await world.apply(task("long", timeLimitSeconds=5))
        await world.reaches("long", "Failed")
        assert (await world.condition("long", "Finished"))["reason"] == "DeadlineExceeded"
        await world.ledger_is("n1", ())


async def test_a_deleted_task_keeps_its_room_until_its_pod_is_gone() -> None:
    async with operated(gpu_node(cards=CARDS), speed=20) as world:
        await world.apply(task("old", variants=[on_device(gpuMemoryMB=24000)], sim={"stops": "10"}))
        await world.reaches("old", "Running")
        uid = (await world.ledger("n1"))["old"]["podUID"]
        await world.delete(GPUTASKS, "old")
        await world.ledger_is("n1", ())
        history = world.cluster.store.history
        gone = next(v for v, verb, kind, o in history if verb == "DELETED" and o["metadata"].get("uid") == uid)
        last_held = max(v for v, _, kind, o in history if kind == "GpuNode" and uid in reservations(o))
        released = min(v for v, _, kind, o in history if kind == "GpuNode" and v > last_held)
        assert released > gone


def reservations(gpunode: Object) -> dict[str, Any]:
    return (gpunode.get("status") or {}).get("reservations") or {}


async def test_a_suspended_task_stops_waits_and_goes_on_when_it_is_resumed() -> None:
    async with operated(gpu_node(), speed=20) as world:
        await world.apply(task("pause", grace=5))
        await world.reaches("pause", "Running")
        await world.patch(GPUTASKS, "pause", {"spec": {"suspend": True}})
        await world.reaches("pause", "Pending")
        await world.ledger_is("n1", ())

        async def told() -> bool:
            return (await world.condition("pause", "Reserved")).get("reason") == "Suspended"

        await eventually(told)
        await world.patch(GPUTASKS, "pause", {"spec": {"suspend": False}})
        status = await world.reaches("pause", "Running")
        assert status["reservation"]["attempt"] == 2


async def test_a_task_that_is_suspended_from_the_start_is_not_placed() -> None:
    async with operated(gpu_node()) as world:
        await world.apply(task("later", suspend=True), task("now"))
        await world.reaches("now", "Running")
        said = await world.says("later", "Reserved", "False")
        assert said["reason"] == "Suspended"
        assert not await pods_of(world, "later")


async def test_a_pod_that_somebody_deletes_is_replaced() -> None:
    async with operated(gpu_node(), speed=20) as world:
        await world.apply(task("t", grace=1))
        status = await world.reaches("t", "Running")
        await world.delete(PODS, status["reservation"]["pod"])

        async def runs_again() -> bool:
            found = await world.status("t")
            return found["phase"] == "Running" and found["reservation"]["attempt"] == 2

        await eventually(runs_again)


async def test_a_restarted_operator_leaves_running_tasks_alone_and_goes_on_with_the_queue() -> None:
    async with (
        LocalCluster(nodes=[gpu_node(cards=CARDS)], history=True, speed=20) as local,
        Client(local.connection) as client,
    ):
        async with operated_by(local, client) as world:
            await world.apply(*(task(f"t{n}", variants=[on_device(gpuMemoryMB=24000)]) for n in range(3)))

            async def two_run() -> bool:
                return len(await world.in_phase("Running")) == 2

            await eventually(two_run)
        running = await world.in_phase("Running")
        before = {name: (await world.status(name))["reservation"] for name in running}
        first, second = sorted(running)
        await world.delete(GPUTASKS, first)  # while nobody looks
        async with operated_by(local, client) as world:
            (waiting,) = {"t0", "t1", "t2"} - running
            await world.ledger_is("n1", (second, waiting))
            await world.reaches(waiting, "Running")
            assert (await world.status(second))["reservation"] == before[second]
            world.judged()


async def test_a_status_that_was_lost_is_recomputed_from_claim_ledger_and_pod() -> None:
    async with operated(gpu_node()) as world:
        await world.apply(task("t"))
        await world.reaches("t", "Running")
        await world.patch(GPUTASKS, "t", {"status": {"phase": "Pending", "conditions": None}}, subresource="status")
        await world.reaches("t", "Running")
        assert (await world.says("t", "Ready", "True"))["reason"] == "Running"


async def test_the_entries_of_a_deleted_node_go_when_its_pods_are_gone_and_the_gpunode_after_them() -> None:
    async with operated(gpu_node("n1"), gpu_node("n2", cpu=0), speed=20) as world:
        await world.apply(task("t"))
        await world.reaches("t", "Running")
        await world.delete(NODES, "n1")

        async def gone() -> bool:
            try:
                await world.get(GPUNODES, "n1")
            except NotFound:
                return True
            return False

        await eventually(gone)
        await world.reaches("t", "Pending")
        await world.apply(gpu_node("n1"))
        status = await world.reaches("t", "Running")
        assert status["reservation"]["attempt"] == 2


async def test_foreign_pods_take_from_what_a_node_has_left() -> None:
    async with operated(gpu_node(cpu=4), speed=100) as world:
        container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "3"}}}
        await world.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "foreign", "namespace": "default"},
                "spec": {"nodeName": "n1", "containers": [container]},
            }
        )
        await eventually(lambda: any(True for _ in world.engine.store.pods_on("n1")))
        await world.apply(task("two", variants=[variant(cpu=2)]), task("one"))
        await world.reaches("one", "Running")
        said = await world.says("two", "Feasible", "False")
        assert "cpu" in said["message"]
        await world.delete(PODS, "foreign")
        await world.reaches("two", "Running")
