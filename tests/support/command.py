"""Commands of ``gputask`` on a cluster of a test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gputask.cli.main import run
from support.operator import World

Said = tuple[int, str, str]


class Command:
    """``gputask`` in this process, on one cluster."""

    def __init__(self, kubeconfig: Path, captured: pytest.CaptureFixture[str]) -> None:
        self._kubeconfig = kubeconfig
        self._captured = captured

    async def __call__(self, *arguments: str) -> Said:
        self._captured.readouterr()
        code = await asyncio.to_thread(run, [*arguments, "--kubeconfig", str(self._kubeconfig)])
        out, err = self._captured.readouterr()
        return code, out, err


def command(world: World, folder: Path, captured: pytest.CaptureFixture[str]) -> Command:
    return Command(world.cluster.write_kubeconfig(folder / "kubeconfig"), captured)
