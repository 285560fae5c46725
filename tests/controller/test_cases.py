"""Cases of the field and of the planner, against the operator on the embedded server; numbers as published."""

from __future__ import annotations

import pytest

from gputask.kube.resources import GPUTASKS, NODES, PODS
from gputask.local.api import Request
from gputask.local.store import decode
from support.afterwards import all_is_well
from support.controller import on_device, task, variant
from support.faults import Faults, binds, lose_reply, refuse, task_statuses
from support.local import eventually
from support.operator import World, gpu_node, operated

BUSY = ("Reserved", "Bound", "Running")


def booked(entries: dict[str, dict], pool: str) -> int:
    """The sum of a pool over all entries of a ledger, in wholes."""
    return sum(int(entry["amounts"].get(pool, "0")) for entry in entries.values())


async def race(world: World, first: dict, second: dict, *, card: str) -> set[str]:
    """Submit two at the same instant; who is reserved, once the other says why it is not."""
    names = {first["metadata"]["name"], second["metadata"]["name"]}
    await world.apply(first, second)

    async def settled() -> tuple[str, str] | None:
        said = {name: await world.condition(name, "Reserved") for name in names}
        won = [name for name in names if said[name].get("status") == "True"]
        lost = [name for name in names if card in said[name].get("message", "") and name not in won]
        return (won[0], lost[0]) if len(won) == len(lost) == 1 else None

    winner, loser = await eventually(settled)
    assert {winner, loser} == names
    return {winner}


@pytest.mark.parametrize("turns", [pytest.param(200, id="200 times")])
async def test_v24_of_two_tasks_for_one_card_exactly_one_is_reserved(turns: int) -> None:
    card = {"gpuMemoryMB": 24576}
    async with operated(gpu_node(cards={"card-a": card}), speed=1000) as world:
        for turn in range(turns):
            a, b = f"a{turn}", f"b{turn}"
            reserved = await race(
                world,
                task(a, variants=[on_device(gpuMemoryMB=16384)]),
                task(b, variants=[on_device(gpuMemoryMB=12288)]),
                card="card-a",
            )
            entries = dict(await world.ledger("n1"))
            assert set(entries) == reserved
            assert booked(entries, "gpuMemoryMB/card-a") in (16384, 12288)
            await world.delete(GPUTASKS, a, b)
            await world.ledger_is("n1", ())
        sums = {
            booked(version.get("status", {}).get("reservations") or {}, "gpuMemoryMB/card-a")
            for _, _, kind, version in world.cluster.store.history
            if kind == "GpuNode"
        }
        assert sums == {0, 16384, 12288}


async def test_b11_two_equal_tasks_at_the_same_instant_never_share_what_only_one_can_have() -> None:
    async with operated(gpu_node(cards={"card-a": {"gpuMemoryMB": 8000}}), speed=1000) as world:
        for turn in range(50):
            a, b = f"a{turn}", f"b{turn}"
            wants = [on_device(gpuMemoryMB=5000)]
            await race(world, task(a, variants=wants), task(b, variants=wants), card="card-a")
            assert booked(dict(await world.ledger("n1")), "gpuMemoryMB/card-a") == 5000
            await world.delete(GPUTASKS, a, b)
            await world.ledger_is("n1", ())


async def test_v30_sixteen_at_once_on_four_cards_run_two_on_each() -> None:
    cards = {f"card-{letter}": {"gpuMemoryMB": 24000} for letter in "abcd"}
    async with operated(gpu_node(cards=cards)) as world:
        await world.apply(*(task(f"t{number:02}", variants=[on_device(gpuMemoryMB=12000)]) for number in range(16)))

        async def eight_wait_for_memory() -> list[dict] | None:
            waiting = [await world.condition(name, "Reserved") for name in await world.in_phase("Pending")]
            told = [said for said in waiting if said.get("status") == "False" and "gpuMemoryMB" in said["message"]]
            return told if len(told) == 8 and len(await world.in_phase("Running")) == 8 else None

        await eventually(eight_wait_for_memory)
        entries = dict(await world.ledger("n1"))
        assert [booked(entries, f"gpuMemoryMB/{card}") for card in cards] == [24000] * 4
        for _, _, kind, version in world.cluster.store.history:
            if kind == "GpuNode":
                reservations = version.get("status", {}).get("reservations") or {}
                assert all(booked(reservations, f"gpuMemoryMB/{card}") <= 24000 for card in cards)


async def test_v27_waiting_tasks_start_by_priority_and_then_by_age() -> None:
    async with operated(gpu_node(cards={"card-a": {"gpuMemoryMB": 8192}}), speed=100) as world:
        await world.apply(task("first", preemptionPolicy="Never", variants=[on_device(gpuMemoryMB=8192)]))
        await world.reaches("first", "Running")
        for name, priority in (("t1", 100), ("t2", 300), ("t3", 300)):
            await world.apply(
                task(name, priority=priority, preemptionPolicy="Never", variants=[on_device(gpuMemoryMB=8192)])
            )
            await world.says(name, "Reserved", "False")
        older, younger = await by_age(world, "t2", "t3")
        done = "first"
        for following in (older, younger, "t1"):
            await world.delete(GPUTASKS, done)
            await world.reaches(following, *BUSY)
            assert set(await world.ledger("n1")) == {following}
            done = following


async def by_age(world: World, *names: str) -> list[str]:
    """In creation order as the planner knows it: whole seconds, then UID (R1)."""
    tasks = [(await world.get(GPUTASKS, name))["metadata"] for name in names]
    return [m["name"] for m in sorted(tasks, key=lambda m: (m["creationTimestamp"], m["uid"]))]


async def test_b04_a_task_that_fits_no_node_blocks_nobody_and_starts_when_one_joins() -> None:
    async with operated(gpu_node("n1", cpu=2), gpu_node("n2", cpu=2)) as world:
        await world.apply(
            task("h", priority=10, variants=[variant(cpu=3)]), *(task(f"l{number}") for number in range(4))
        )
        for number in range(4):
            await world.reaches(f"l{number}", "Running")
        said = await world.says("h", "Feasible", "False")
        assert "cpu" in said["message"]
        assert "2" in said["message"]
        await world.apply(gpu_node("n3", cpu=4))
        status = await world.reaches("h", "Running")
        assert status["reservation"]["node"] == "n3"
        assert (await world.condition("h", "Feasible"))["status"] == "True"


async def test_b88_hundreds_of_tasks_that_can_never_run_do_not_hide_the_four_that_can() -> None:
    async with operated(gpu_node(cpu=4)) as world:
        await world.apply(
            *(task(f"h{number}", priority=100, variants=[variant(gpuSlot__7=1)]) for number in range(500))
        )
        await world.apply(*(task(f"l{number}") for number in range(4)))
        for number in range(4):
            await world.reaches(f"l{number}", "Running")
        assert len(await world.ledger("n1")) == 4


async def test_v31_a_pod_deleted_between_decision_and_bind_leaves_nothing_reserved() -> None:
    async with operated(gpu_node(cards={"card-a": {"gpuSlot": 1}}), speed=100) as world:
        binds = 0

        async def delete_before_the_first_bind(request, handle):  # type: ignore[no-untyped-def]
            nonlocal binds
            if request.path.endswith("/binding"):
                binds += 1
                if binds == 1:
                    world.cluster.api.handle(Request("DELETE", request.path.removesuffix("/binding"), {}))
            return handle()

        world.cluster.server.fault = delete_before_the_first_bind
        await world.apply(task("x", variants=[on_device(gpuSlot=1)]))
        await world.reaches("x", "Running")  # by its next attempt
        assert binds == 2
        assert (await world.status("x"))["reservation"]["attempt"] == 2
        assert set(await world.ledger("n1")) == {"x"}
        await world.delete(GPUTASKS, "x")
        await world.ledger_is("n1", ())


def claims(request: Request) -> bool:
    """The write that says which pod may run for a task (protocol line 3)."""
    return task_statuses(request) and bool(decode(request.body)["status"].get("reservation"))


async def test_v26_a_claim_that_is_answered_with_500_ten_times_holds_nothing_meanwhile_and_then_reserves_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gputask.ledger.claims.TRIES", 3)  # then the task pauses, and is planned anew
    monkeypatch.setattr("gputask.controller.backoff.FIRST_SECONDS", 0.1)
    async with operated(gpu_node(cards={"a": {"gpuMemoryMB": 8000}})) as world:
        rule = Faults(world.cluster).on(claims, refuse(500, "InternalError"), times=10)
        await world.apply(task("t", variants=[on_device(gpuMemoryMB=8000)]))
        await world.reaches("t", "Running")
        assert len(rule.met) == 10
        claimed = False
        entries = []
        for _, _, kind, version in world.cluster.store.history:
            status = version.get("status") or {}
            if kind == "GpuTask":
                claimed = claimed or bool(status.get("reservation"))
                assert claimed or status.get("phase", "Pending") == "Pending"
            elif kind == "GpuNode":
                assert claimed or not status.get("reservations")
                entries += [uid for uid in status.get("reservations") or {} if uid not in entries]
        assert len(entries) == 1
        assert booked(dict(await world.ledger("n1")), "gpuMemoryMB/a") == 8000
        await all_is_well(world)


async def test_v32_a_bind_that_took_effect_and_whose_reply_was_lost_is_success_for_the_same_pod_and_devices() -> None:
    async with operated(gpu_node(cards={"a": {"gpuSlot": 1}, "b": {"gpuSlot": 1}})) as world:
        rule = Faults(world.cluster).on(binds, lose_reply, times=1)
        await world.apply(task("t", variants=[on_device(gpuSlot=1)]))
        claim = (await world.reaches("t", "Running"))["reservation"]
        bound = [
            obj for _, _, kind, obj in world.cluster.store.history if kind == "Pod" and obj["spec"].get("nodeName")
        ]
        assert {pod["metadata"]["uid"] for pod in bound} == {claim["podUID"]}
        assert {pod["spec"]["nodeName"] for pod in bound} == {claim["node"]} == {"n1"}
        # The same bind once more, as a client repeats it whose answer was lost.
        answer = world.cluster.api.handle(rule.met[0])
        assert answer.status == 409
        await all_is_well(world)
        assert (await world.ledger("n1"))["t"]["devices"] == claim["devices"]
        assert (await world.status("t"))["reservation"] == claim


async def test_b113_a_withdrawn_declaration_admits_nothing_and_touches_nobody() -> None:
    node = gpu_node(cards={"a": {"gpuMemoryMB": 8000}})
    declared = node["metadata"]["annotations"]["gputask.dev/devices"]
    async with operated(node) as world:
        await world.apply(task("t1", variants=[on_device(gpuMemoryMB=4000)]))
        await world.reaches("t1", "Running")
        await world.patch(NODES, "n1", {"metadata": {"annotations": {"gputask.dev/devices": None}}})
        await world.apply(task("t2", variants=[on_device(gpuMemoryMB=2000)]))
        await world.says("t2", "Feasible", "False")
        assert (await world.status("t1"))["phase"] == "Running"
        assert set(await world.ledger("n1")) == {"t1"}
        await world.patch(NODES, "n1", {"metadata": {"annotations": {"gputask.dev/devices": declared}}})
        await world.reaches("t2", "Running")
        assert booked(dict(await world.ledger("n1")), "gpuMemoryMB/a") == 6000


async def test_b33_a_finished_task_does_not_change_with_its_pod() -> None:
    async with operated(gpu_node(), speed=100) as world:
        await world.apply(task("t", sim={"runs": "1"}))
        await world.reaches("t", "Succeeded")
        (pod,) = (await world.client.list(PODS, "default")).items
        await world.client.patch(
            PODS, pod["metadata"]["name"], {"status": {"phase": "Failed"}}, "default", subresource="status"
        )
        await world.delete(PODS, pod["metadata"]["name"])
        await world.apply(task("later", sim={"runs": "1"}))
        await world.reaches("later", "Succeeded")
        assert (await world.status("t"))["phase"] == "Succeeded"
        await world.ledger_is("n1", ())
