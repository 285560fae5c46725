"""The real kubectl against the embedded server."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gputask.local.cluster import LocalCluster

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


class Kubectl:
    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "KUBECONFIG": str(cluster.write_kubeconfig(folder / "kubeconfig")),
        }

    def start(self, *arguments: str):
        pipe = subprocess.PIPE
        return asyncio.create_subprocess_exec(
            "kubectl", *arguments, env=self._environment, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT
        )

    async def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        process = await self.start(*arguments)
        out, _ = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
        assert process.returncode == code, out.decode()
        return out.decode()
