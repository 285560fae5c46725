"""``gputask lease`` on a cluster: what it prints, and the exit codes that scripts use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gputask.kube.resources import GPUTASKS
from support.command import Command, command
from support.controller import FakeClock, on_device, task
from support.local import eventually
from support.manifests import write
from support.operator import Object, World, gpu_node, operated


def card() -> Object:
    return gpu_node(cards={"a": {"gpuMemoryMB": 8000}})


async def rows(gputask: Command, *arguments: str) -> list[Any]:
    code, out, err = await gputask("lease", *arguments, "-o", "json")
    assert (code, err) == (0, "")
    found: list[Any] = json.loads(out)["leases"]
    return found


async def test_a_claim_waits_until_it_is_held_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with operated(card(), speed=20) as world:
        gputask = command(world, tmp_path, capsys)
        asked = ("--resources", "cpu=4", "--devices", "gpuMemoryMB=5000", "--ttl", "60", "--priority", "3")
        (row,) = await rows(gputask, "claim", "l", *asked, "--wait", "20")
        assert row | {"message": ""} == {
            "task": "default/l",
            "state": "Held",
            "node": "n1",
            "variant": "lease",
            "devices": ["a"],
            "amounts": {"cpu": "4", "gpuMemoryMB/a": "5000"},
            "labels": {},
            "ttlSeconds": 60,
            "renewTime": None,
            "message": "",
        }
        code, out, _ = await gputask("lease", "claim", "more", "--devices", "gpuMemoryMB=5000", "--wait", "0.5")
        assert code == 1, "it is not held"
        assert "Waiting" in out
        code, out, _ = await gputask("lease", "list")
        assert (code, "default/l" in out, "default/more" in out) == (0, True, True)
        code, _, err = await gputask("lease", "claim", "l", *asked)
        assert (code, err.count("\n"), "already exists" in err) == (2, 1, True)


async def test_a_claim_from_a_file_takes_the_first_variant_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with operated(card(), speed=20) as world:
        gputask = command(world, tmp_path, capsys)
        variants = [on_device("large", gpuMemoryMB=9000), on_device("small", gpuMemoryMB=8000)]
        path = write(tmp_path, task("l", lease={"ttlSeconds": 60}, variants=variants))
        (row,) = await rows(gputask, "claim", "-f", path, "--wait", "20")
        assert (row["variant"], row["devices"]) == ("small", ["a"])


async def test_a_held_lease_is_renewed_and_one_that_waits_or_has_expired_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with operated(card(), speed=20) as world:
        world.engine.lease_terms.clock = clock = FakeClock()
        gputask = command(world, tmp_path, capsys)
        (held,) = await rows(gputask, "claim", "l", "--devices", "gpuMemoryMB=8000", "--wait", "20")
        await rows(gputask, "claim", "next", "--devices", "gpuMemoryMB=8000")
        for at in (100, 300):  # the one at 200 is missed
            clock.seconds = 1_000 + at
            (row,) = await rows(gputask, "renew", "l")
            assert row["renewTime"] != held["renewTime"]
            held = row
            await seen(world, "l")
        await world.says("next", "Reserved", "False")
        code, out, err = await gputask("lease", "renew", "next")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "it is not held, so there is nothing to renew" in err
        clock.seconds = 1_000 + 601
        await world.reaches("l", "Failed")
        code, out, err = await gputask("lease", "renew", "l")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "has expired (LeaseExpired): not renewed for 300 s; a on n1 is quarantined" in err
        assert [row["state"] for row in await rows(gputask, "list", "-n", "default")] == ["Expired", "Waiting"]
        assert await gputask("lease", "release", "l") == (0, "default/l released: its quarantine ends\n", "")
        await world.reaches("next", "Bound")
        assert await gputask("lease", "release", "next") == (0, "default/next released\n", "")
        await world.ledger_is("n1", ())
        assert await rows(gputask, "list") == []


async def seen(world: World, name: str) -> None:
    async def so() -> bool:
        found = await world.get(GPUTASKS, name)
        return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

    await eventually(so)


async def test_what_is_no_lease_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with operated(card(), speed=20) as world:
        gputask = command(world, tmp_path, capsys)
        await world.apply(task("t"))
        for verb in ("renew", "release"):
            code, _, err = await gputask("lease", verb, "nobody")
            assert (code, err) == (2, "default/nobody: there is no such lease\n")
            code, _, err = await gputask("lease", verb, "t")
            assert (code, err) == (2, "default/t: is no lease: it has a template, and its pod needs no renewal\n")
        kubeconfig = world.cluster.write_kubeconfig(tmp_path / "kubeconfig")
    gputask = Command(kubeconfig, capsys)
    for arguments in (("list",), ("renew", "l"), ("release", "l"), ("claim", "l", "--resources", "cpu=1")):
        code, out, err = await gputask("lease", *arguments)
        assert (code, out, err.count("\n")) == (3, "", 1)
