"""Cases of the field about what the API server says late, twice, or not at all, and about what others write into it."""

from __future__ import annotations

import json

import pytest

from gputask.kube.resources import EVENTS, GPUTASKS, PODS
from gputask.local.requests import Request
from gputask.local.store import encode
from support.afterwards import all_is_well
from support.controller import on_device, task, variant
from support.faults import Faults, binds, carry_out, refuse, task_statuses
from support.local import eventually
from support.operator import Object, World, gpu_node, operated

DEVICE = {"a": {"gpuMemoryMB": 8000}}
WHOLE = [on_device(gpuMemoryMB=8000)]

# --- B07 ------------------------------------------------------------------------------------------------


async def says(world: World, pod: str, phase: str) -> None:
    """What a kubelet writes of a pod."""
    await world.patch(PODS, pod, {"status": {"phase": phase}}, subresource="status")


@pytest.mark.parametrize("ends", ["Failed", "Succeeded"])
async def test_b07_an_end_that_comes_before_the_start_was_recorded_is_the_end(ends: str) -> None:
    async with operated(gpu_node(cards=DEVICE)) as world:
        faults = Faults(world.cluster)
        bound = faults.on(binds, carry_out)
        held_back = faults.on(lambda r: bool(bound.met) and task_statuses(r), refuse(500, "InternalError"))
        await world.apply(task("t", variants=WHOLE))
        await eventually(lambda: bound.met and held_back.met)
        (pod,) = (await world.client.list(PODS)).items
        await says(world, pod["metadata"]["name"], ends)
        assert (await world.status("t"))["phase"] not in ("Bound", "Running")
        held_back.stop()
        status = await world.reaches("t", ends)
        assert status.get("crashes", 0) == (ends == "Failed")
        await world.ledger_is("n1", ())
        await all_is_well(world)
        assert entries_came_and_went(world, "n1") == ["came", "went"]


REVIVED = ["bound without entry", "ran again"]
"""What the judge says of a pod of which somebody writes, after its end, that it runs."""


async def test_b07_running_twice_changes_nothing_and_what_says_running_after_its_end_is_stopped() -> None:
    async with operated(gpu_node(cards=DEVICE), excused=REVIVED, speed=100) as world:
        await world.apply(task("t", variants=WHOLE))
        pod = (await world.reaches("t", "Running"))["reservation"]["pod"]
        await says(world, pod, "Running")
        await world.patch(PODS, pod, {"metadata": {"annotations": {"mark": "1"}}})
        await says(world, pod, "Succeeded")
        ended = await world.reaches("t", "Succeeded")
        await world.ledger_is("n1", ())
        await says(world, pod, "Running")
        await world.apply(task("next", variants=WHOLE))
        await world.reaches("next", "Running")
        assert (await world.status("t")) == ended
        assert set(await world.ledger("n1")) == {"next"}
        await all_is_well(world, excused=REVIVED)


@pytest.mark.parametrize("ends", ["Succeeded", "Failed"])
async def test_b07_a_pod_that_is_deleted_the_moment_it_ends_has_ended_so(ends: str) -> None:
    async with operated(gpu_node(cards=DEVICE)) as world:
        await world.apply(task("t", variants=WHOLE))
        pod = (await world.reaches("t", "Running"))["reservation"]["pod"]
        path = PODS.path(namespace="default", name=pod)
        end = encode({"status": {"phase": ends}})
        # At one instant: nobody can look in between.
        for request in (
            Request("PATCH", f"{path}/status", {}, end, "application/merge-patch+json"),
            Request("DELETE", path, {"gracePeriodSeconds": "0"}),
        ):
            assert world.cluster.api.handle(request).status == 200
        status = await world.reaches("t", ends)
        assert status["reservation"]["attempt"] == 1
        await world.ledger_is("n1", ())
        await all_is_well(world)


def entries_came_and_went(world: World, node: str) -> list[str]:
    """Each time the ledger of a node got or lost entries, in order."""
    found: list[str] = []
    before: set[str] = set()
    for _, _, kind, version in world.cluster.store.history or ():
        if kind == "GpuNode" and version["metadata"]["name"] == node:
            after = set(version.get("status", {}).get("reservations") or {})
            found += ["came"] * len(after - before) + ["went"] * len(before - after)
            before = after
    return found


# --- B48 ------------------------------------------------------------------------------------------------


def plugin_node() -> Object:
    """A node with a whole-number extended resource in allocatable, and a fractional pool of ours."""
    node = gpu_node(pools={"gpu": 1})
    node["status"]["allocatable"]["example.com/gpu"] = "1"
    return node


def asking_in_the_template(amount: str) -> Object:
    resources = {"requests": {"example.com/gpu": amount}, "limits": {"example.com/gpu": amount}}
    return {"spec": {"containers": [{"name": "main", "image": "busybox", "resources": resources}]}}


async def test_b48_a_fraction_of_an_extended_resource_is_refused_by_field_before_any_pod_is_made() -> None:
    async with operated(plugin_node()) as world:
        half = [variant(gpu="0.5")]
        await world.apply(
            task("both", variants=half, template=asking_in_the_template("0.5")),
            task("extended", variants=[variant(**{"example.com__gpu": "0.5"})]),
            task("ours", variants=half),
            task("ours-too", variants=half),
        )
        said = await world.says("both", "Accepted", "False")
        assert "spec.template.spec.containers" in said["message"]
        assert "example.com/gpu" in said["message"]
        await world.waits_for("extended", "on n1 spec.variants[0].resources[example.com/gpu]: 0.5 is not whole")
        await world.reaches("ours", "Running")
        await world.reaches("ours-too", "Running")
        amounts = [entry["amounts"]["gpu"] for entry in (await world.ledger("n1")).values()]
        assert amounts == ["0.5", "0.5"]
        made = {(pod["metadata"]["labels"] or {})["gputask.dev/task"] for pod in made_pods(world)}
        assert made == {"ours", "ours-too"}
        await all_is_well(world)


def made_pods(world: World) -> list[Object]:
    """Every pod that was ever stored."""
    return [obj for _, _, kind, obj in world.cluster.store.history or () if kind == "Pod"]


# --- B67 ------------------------------------------------------------------------------------------------

FORGED = ["bound without entry", "task twice"]
"""What the judge, who believes labels, says of a forged one."""


def forged(name: str, *, spec: Object | None = None, env: dict[str, str] | None = None, **metadata: object) -> Object:
    """A pod that a user made, on n1, asking for 3 cpus, with whatever marks he likes."""
    container: Object = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "3"}}}
    container["env"] = [{"name": key, "value": value} for key, value in (env or {}).items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"containers": [container], "nodeName": "n1", **(spec or {})},
    }


async def told_of(world: World, pod: str) -> list[str]:
    """What the Events of a pod say of marks that are ignored, once there is one."""

    async def there() -> list[str]:
        events = (await world.client.list(EVENTS, "default")).items
        return [e["message"] for e in events if e["involvedObject"]["name"] == pod and e["reason"] == "MarksIgnored"]

    found: list[str] = await eventually(there)
    return found


async def test_b67_a_pod_that_bears_our_marks_is_not_ours_and_counts_as_foreign_use() -> None:
    # Says that it has device a, and of its memory 0 MB.
    allocation = {"node": "n1", "variant": "v", "variantIndex": 0, "devices": ["a"], "amounts": {"gpuMemoryMB/a": "0"}}
    async with operated(gpu_node(cards=DEVICE, cpu=8), excused=FORGED) as world:
        await world.apply(task("t", variants=[on_device(gpuMemoryMB=4000)]))
        await world.reaches("t", "Running")
        uid = (await world.get(GPUTASKS, "t"))["metadata"]["uid"]
        owner = {"apiVersion": "gputask.dev/v1alpha1", "kind": "GpuTask", "name": "t", "uid": uid, "controller": True}
        await world.apply(
            forged("annotated", annotations={"alloc.gputask.dev/devices": "a", "alloc.gputask.dev/gpuMemoryMB": "0"}),
            forged(
                "complete",
                labels={"gputask.dev/task": "t", "gputask.dev/task-uid": uid},
                ownerReferences=[owner],
                env={"GPUTASK_ALLOCATION": json.dumps(allocation)},
            ),
        )
        for name, mark in (("annotated", "annotation alloc.gputask.dev/devices"), ("complete", "controller")):
            (text,) = await told_of(world, name)
            assert text.startswith(f"no GpuTask claims this pod: its {mark} is ignored")
        assert set(await world.ledger("n1")) == {"t"}
        # Of 8 cpus t has one and the strangers six. Of the device they have nothing.
        await world.apply(task("two", variants=[variant(cpu=2)]))
        await world.waits_for("two", "cpu")
        await world.apply(task("one", variants=[on_device(gpuMemoryMB=4000)], priority=1))
        await world.reaches("one", "Running")
        await all_is_well(world, excused=FORGED)
        assert {pod["metadata"]["name"] for pod in (await world.client.list(PODS)).items} >= {"annotated", "complete"}


async def test_b67_a_pod_that_somebody_put_on_a_node_past_us_counts_there() -> None:
    async with operated(gpu_node(cpu=8)) as world:
        await world.apply(forged("past-us", spec={"schedulerName": "gputask-direct"}))
        (text,) = await told_of(world, "past-us")
        assert "scheduler gputask-direct" in text
        await world.apply(task("six", variants=[variant(cpu=6)]))
        await world.waits_for("six", "cpu")
        await world.apply(task("five", variants=[variant(cpu=5)], priority=1))
        await world.reaches("five", "Running")
        assert set(await world.ledger("n1")) == {"five"}
        await all_is_well(world)


async def test_b67_a_status_that_a_user_wrote_is_repaired_from_the_pods() -> None:
    async with operated(gpu_node(cards=DEVICE)) as world:
        await world.apply(task("t", variants=WHOLE, grace=0))
        claim = (await world.reaches("t", "Running"))["reservation"]
        await world.apply(task("forged", variants=WHOLE))
        await world.says("forged", "Reserved", "False")
        mine = {**claim, "pod": "mine", "podUID": "1234"}
        bound = {"phase": "Bound", "replicas": 1, "reservation": mine}
        await world.patch(GPUTASKS, "forged", {"status": bound}, subresource="status")
        await world.patch(GPUTASKS, "t", {"status": {"phase": "Pending", "replicas": 0}}, subresource="status")
        await world.reaches("forged", "Pending")
        await world.reaches("t", "Running")
        await all_is_well(world)
        assert set(await world.ledger("n1")) == {"t"}
        assert (await world.status("t"))["reservation"] == claim
        assert not (await world.status("forged")).get("replicas")
        await world.delete(GPUTASKS, "t")
        await world.reaches("forged", "Running")
