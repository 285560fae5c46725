"""``gputask local up``: the embedded cluster in the foreground."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from gputask.cli.documents import Document, read
from gputask.cli.errors import BadInputError, CommandError, Exit
from gputask.local.cluster import LocalCluster
from gputask.local.statuses import StatusError
from gputask.local.supervisor import OperatorFailedError, OperatorProcess

COMMAND = "gputask local up"


def up(*, nodes: Sequence[str], kubeconfig: Path, port: int, operator: bool, speed: float) -> int:
    """Run the embedded cluster until SIGTERM or SIGINT; prints ``ready PATH`` when everything in it works.

    :raises BadInputError: one line for each thing that cannot be used: files, manifests, port, kubeconfig path.
    :raises CommandError: the operator did not start.
    """
    if not 0 < speed <= 1000:
        raise BadInputError(f"{COMMAND}: --speed {speed}: must be above 0 and at most 1000")
    if not 0 <= port <= 65535:
        raise BadInputError(f"{COMMAND}: --port {port}: must be from 0 (any free one) to 65535")
    documents = [document for document in read(nodes) if _is_node(document.value)]
    logging.basicConfig(level=logging.WARNING, format=f"{COMMAND}: %(message)s")
    asyncio.run(_serve(documents, kubeconfig, port=port, operator=operator, speed=speed))
    return Exit.FINE


def _is_node(value: object) -> bool:
    return isinstance(value, dict) and value.get("kind") == "Node"


async def _serve(documents: Sequence[Document], kubeconfig: Path, *, port: int, operator: bool, speed: float) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        cluster = LocalCluster(port=port, speed=speed)
        try:
            await stack.enter_async_context(cluster)
        except OSError as error:
            raise BadInputError(f"{COMMAND}: --port {port}: {_reason(error)}; choose a free one, or 0") from error
        _create(cluster, documents)
        try:
            cluster.write_kubeconfig(kubeconfig)
        except OSError as error:
            raise BadInputError(f"{COMMAND}: --kubeconfig {kubeconfig}: cannot be written: {_reason(error)}") from error
        if operator:
            process = await stack.enter_async_context(OperatorProcess(kubeconfig))
            if not await _ready(process, stop):
                return
        print(f"ready {kubeconfig}", flush=True)
        await stop.wait()


def _create(cluster: LocalCluster, documents: Sequence[Document]) -> None:
    problems = []
    for document in documents:
        manifest: Any = document.value
        name = (manifest.get("metadata") or {}).get("name") if isinstance(manifest.get("metadata"), dict) else None
        try:
            cluster.create(manifest)
        except StatusError as error:
            problems.append(f"{document.place}: Node {name or '(without a name)'}: {error.message}")
    if problems:
        raise BadInputError.of(problems)


async def _ready(process: OperatorProcess, stop: asyncio.Event) -> bool:
    """Whether the operator got ready; False if we were told to stop before."""
    ready, stopped = asyncio.create_task(process.ready()), asyncio.create_task(stop.wait())
    await asyncio.wait({ready, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not ready.done():
        ready.cancel()
        return False
    try:
        ready.result()
    except OperatorFailedError as error:
        raise CommandError(f"{COMMAND}: {error}; its own message is above") from error
    return True


def _reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)
