"""The operator as a process beside the embedded server: a crash of one is not the crash of the other."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

logger = logging.getLogger(__name__)

RESTART_SECONDS = 1.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.05


class OperatorFailedError(Exception):
    """The operator ended before it was ready. One line."""


class OperatorProcess:
    """An async context manager that runs ``gputask operator`` on a kubeconfig, and starts it again when it dies."""

    def __init__(self, kubeconfig: Path, *options: str) -> None:
        """``options``: further ones of ``gputask operator``; by default it acts at once, as the only one."""
        self.port = _free_port()
        self._command = [
            *(sys.executable, "-m", "gputask", "operator"),
            *("--kubeconfig", str(kubeconfig), "--metrics-host", "127.0.0.1", "--metrics-port", str(self.port)),
            *(options or ("--no-leader-elect",)),
        ]
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._process = await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None
        return self._process.pid

    async def ready(self) -> None:
        """Until the operator is synced; from then on it is kept running. Raises: OperatorFailedError."""
        assert self._process is not None
        async with aiohttp.ClientSession() as session:
            while not await self._answers(session):
                if (code := self._process.returncode) is not None:
                    raise OperatorFailedError(f"the operator ended with exit code {code} before it was ready")
                await asyncio.sleep(POLL_SECONDS)
        self._keeping = asyncio.create_task(self._keep())

    async def _answers(self, session: aiohttp.ClientSession) -> bool:
        with suppress(aiohttp.ClientError, TimeoutError):
            async with session.get(f"http://127.0.0.1:{self.port}/readyz") as response:
                return response.status == 200
        return False

    async def _keep(self) -> None:
        while True:
            assert self._process is not None
            code = await self._process.wait()
            logger.warning("the operator ended with exit code %s; it is started again", code)
            await asyncio.sleep(RESTART_SECONDS)
            self._process = await self._start()

    async def _start(self) -> asyncio.subprocess.Process:
        # A session of its own: Ctrl-C in a terminal is for us, and we tell it.
        return await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, start_new_session=True
        )


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
