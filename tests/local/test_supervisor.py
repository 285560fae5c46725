"""The operator as a process beside the embedded server."""

import os
import signal
import socket

import pytest

from gputask.local import supervisor
from gputask.local.cluster import LocalCluster
from gputask.local.supervisor import OperatorFailedError, OperatorProcess
from support.local import eventually


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def test_an_operator_that_is_killed_is_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "RESTART_SECONDS", 0.0)
    async with LocalCluster() as cluster:
        kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        async with OperatorProcess(kubeconfig) as operator:
            await operator.ready()
            first = operator.pid
            os.kill(first, signal.SIGKILL)
            await eventually(lambda: operator.pid != first)
            await eventually(lambda: answers(operator.port))
        assert not answers(operator.port)


async def test_an_operator_that_cannot_start_is_told(tmp_path):
    async with OperatorProcess(tmp_path / "nowhere") as operator:
        with pytest.raises(OperatorFailedError, match="exit code 2 before it was ready"):
            await operator.ready()
