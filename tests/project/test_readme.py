"""The README's commands are run as they stand there."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


def commands(word: str) -> list[str]:
    """The command lines of the README that contain a word, without their comments."""
    text = "\n".join(BLOCKS).replace("\\\n", " ")
    found = re.findall(r"^(?:[^\n'#]|'[^']*')+", text, re.M)
    return [command.strip() for command in found if word in command]


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "KUBECONFIG": str(ROOT / "gputask.kubeconfig"), "COLUMNS": "160"}


def run(command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def eventually(command: str, text: str, *, seconds: float = 30.0) -> str:
    deadline = time.monotonic() + seconds
    while text not in (out := run(command)):
        assert time.monotonic() < deadline, f"{command} never said {text!r}:\n{out}"
        time.sleep(0.2)
    return out


@pytest.fixture
def local_cluster():
    (command,) = commands("gputask local up")
    server = subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdout.readline().startswith("ready ")
    yield
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=20) == 0


@pytest.mark.parametrize(
    "command", [*commands("gputask plan"), *commands("gputask simulate"), *commands("gputask explain")]
)
def test_the_commands_without_a_cluster_end_with_exit_0_and_say_something(command):
    assert run(command).strip()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
def test_the_quick_start_with_kubectl_works_as_written(local_cluster):
    apply, get, logs, describe, delete, *declare = [c for c in commands("kubectl") if "KUBECONFIG" not in c]
    assert [apply.split()[1], delete.split()[1]] == ["apply", "delete"]
    run(apply)
    table = eventually(get, "Running")
    assert re.search(r"train-7 .*gpu .*gpu-1 .*GPU-a1", table), table
    printed = eventually(logs, "GPUTASK_VARIANT")
    assert "GPUTASK_VARIANT=gpu\n" in printed
    assert "GPUTASK_DEVICES=GPU-a1\n" in printed
    assert "NVIDIA_VISIBLE_DEVICES=GPU-a1\n" in printed
    assert "Bound" in run(describe)
    run(delete)
    assert "train-7" not in run("kubectl get gt,pods")
    for command in declare:
        run(f"{command} --overwrite")
