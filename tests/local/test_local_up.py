"""``gputask local up`` as a user starts it."""

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gputask.kube.client import Client
from gputask.kube.config import connect
from gputask.kube.resources import GPUNODES, GPUTASKS, NODES
from support.local import node

COMMAND = (sys.executable, "-m", "gputask", "local", "up")


async def start(folder: Path, *arguments: str) -> asyncio.subprocess.Process:
    pipe = subprocess.PIPE
    return await asyncio.create_subprocess_exec(*COMMAND, *arguments, cwd=folder, stdout=pipe, stderr=pipe)


async def refused(folder: Path, *arguments: str) -> tuple[int | None, list[str]]:
    """Exit code and lines on stderr of a start that fails; stdout stays empty."""
    process = await start(folder, *arguments)
    out, error = await asyncio.wait_for(process.communicate(), 60)
    assert out == b""
    return process.returncode, error.decode().splitlines()


@pytest.fixture
def nodes(tmp_path) -> str:
    path = tmp_path / "nodes.yaml"
    path.write_text(yaml.safe_dump_all([node("n1"), node("n2")]))
    return str(path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_says_ready_serves_and_ends_when_told(tmp_path, nodes, number):
    process = await start(tmp_path, "--no-operator", "--nodes", nodes, "--kubeconfig", "here.yaml")
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"ready here.yaml\n"
    async with Client(connect(kubeconfig=tmp_path / "here.yaml")) as client:
        assert [item["metadata"]["name"] for item in (await client.list(NODES)).items] == ["n1", "n2"]
        for resource in (GPUTASKS, GPUNODES):
            assert (await client.list(resource)).items == []
    process.send_signal(number)
    out, error = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out, error) == (0, b"", b"")


async def test_writes_its_kubeconfig_where_it_is_started(tmp_path):
    process = await start(tmp_path, "--no-operator")
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"ready gputask.kubeconfig\n"
    assert (tmp_path / "gputask.kubeconfig").is_file()
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_runs_the_operator_until_it_is_told_to_end(tmp_path, nodes):
    process = await start(tmp_path, "--nodes", nodes)
    try:
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"ready gputask.kubeconfig\n"
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0


async def test_a_port_in_use_is_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, lines = await refused(tmp_path, "--no-operator", "--port", str(port))
    assert code == 2
    assert lines == [f"gputask local up: --port {port}: address already in use; choose a free one, or 0"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--port", "99999"), "gputask local up: --port 99999: must be from 0 (any free one) to 65535"),
        (("--speed", "0"), "gputask local up: --speed 0.0: must be above 0 and at most 1000"),
        (("--nodes", "nowhere.yaml"), "nowhere.yaml: cannot be read: No such file or directory"),
        (
            ("--no-operator", "--kubeconfig", "no/such/folder"),
            "gputask local up: --kubeconfig no/such/folder: cannot be written: no such file or directory",
        ),
    ],
)
async def test_arguments_that_cannot_be_used_are_one_line_each(tmp_path, arguments, said):
    code, lines = await refused(tmp_path, *arguments)
    assert (code, lines) == (2, [said])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Node\napiVersion: v1\nmetadata: {name: n1}\nspecs: {}\n", 'unknown field "specs"'),
        ("kind: Node\napiVersion: v1\nmetadata: {}\n", "name or generateName is required"),
        ("kind: Node\napiVersion: v1\nmetadata: {name: Big}\n", "metadata.name: Invalid value"),
        ("kind: Node\napiVersion: v2\nmetadata: {name: n1}\n", 'no matches for kind "Node"'),
        (
            "kind: Node\napiVersion: v1\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: 4 cores}}\n",
            "quantities must match",
        ),
    ],
)
async def test_a_bad_node_manifest_is_one_line_with_its_place(tmp_path, text, said):
    (tmp_path / "nodes.yaml").write_text(text)
    code, lines = await refused(tmp_path, "--no-operator", "--nodes", "nodes.yaml")
    assert code == 2
    assert len(lines) == 1
    assert lines[0].startswith("nodes.yaml:1: Node ")
    assert said in lines[0]
