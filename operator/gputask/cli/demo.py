"""``gputask demo``: manifests applied over HTTP to the embedded server as a user would, shown live, then judged."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.live import Live

from gputask.api import names
from gputask.cli.demo_view import Seen, screen, summary
from gputask.cli.errors import BadInputError, CommandError, Exit
from gputask.cli.files import Object, load, sim_seconds
from gputask.kube import client as kube
from gputask.kube.informer import Informer
from gputask.kube.resources import GPUNODES, GPUTASKS, NODES
from gputask.local.clock import Clock
from gputask.local.cluster import LocalCluster
from gputask.local.judge import judge
from gputask.local.supervisor import OperatorFailedError, OperatorProcess

COMMAND = "gputask demo"

PATIENCE_SECONDS = 60.0
"""How long the demo waits for its tasks to end, in real time."""

FRAMES_A_SECOND = 4


@dataclass(frozen=True, slots=True)
class Step:
    """One object to apply, ``at`` seconds after the start (of simulated time)."""

    at: float
    object: Object


def demo(*, files: Sequence[str], speed: float) -> int:
    """Run the demo.

    :returns: 0 only if every task ended and no rule was broken, else 1.
    :raises BadInputError: one line for each file or object that cannot be used.
    :raises CommandError: the operator did not start.
    """
    if not 0 < speed <= 100:
        raise BadInputError(f"{COMMAND}: --speed {speed}: must be above 0 and at most 100")
    return asyncio.run(_run(_steps(files), speed=speed))


def _steps(files: Sequence[str]) -> list[Step]:
    objects = load(files)
    problems: list[str] = []
    steps = [
        Step((sim_seconds(found, names.SIM_AT, problems) or 0) / 1000, found)
        for found in (*objects.nodes, *objects.tasks)
    ]
    if problems:
        raise BadInputError.of(problems)
    if not objects.tasks:
        raise BadInputError(f"{COMMAND}: {', '.join(files)}: no GpuTask there; name a folder with manifests")
    return sorted(steps, key=lambda step: step.at)


async def _run(steps: Sequence[Step], *, speed: float) -> int:
    console = Console()
    total = sum(step.object.kind == names.GPUTASK_KIND for step in steps)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(LocalCluster(history=True, speed=speed))
        await _start_operator(cluster, stack)
        clock = Clock(speed)
        seen = Seen(clock=clock, total=total)
        await stack.enter_async_context(_watching(cluster, seen))
        with Live(console=console, auto_refresh=False, transient=True) as live:
            showing = asyncio.create_task(_show(live, seen)) if console.is_terminal else None
            await _apply(cluster.url, steps, clock)
            await _all_ended(seen)
            if showing is not None:
                showing.cancel()
        findings = judge(cluster.store.history)
        console.print(screen(seen), summary(seen, findings))
    return Exit.FINE if seen.all_ended.is_set() and not findings else Exit.FALSE


async def _start_operator(cluster: LocalCluster, stack: AsyncExitStack) -> None:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gputask-demo-"))
    kubeconfig = cluster.write_kubeconfig(Path(folder) / "kubeconfig")
    process = await stack.enter_async_context(OperatorProcess(kubeconfig))
    try:
        await process.ready()
    except OperatorFailedError as error:
        raise CommandError(f"{COMMAND}: {error}") from error


@asynccontextmanager
async def _watching(cluster: LocalCluster, seen: Seen) -> AsyncIterator[None]:
    """Everything that the server tells while the context is open goes into ``seen``."""
    keepers = ((NODES, seen.node_changed), (GPUNODES, seen.gpunode_changed), (GPUTASKS, seen.task_changed))
    async with kube.Client(cluster.connection) as client, asyncio.TaskGroup() as group:
        informers = [Informer(client, r, on_add=keep, on_update=_new_only(keep)) for r, keep in keepers]
        running = [group.create_task(informer.run()) for informer in informers]
        for informer in informers:
            await informer.synced.wait()
        yield
        for task in running:
            task.cancel()


def _new_only(keep: Callable[[kube.Object], None]) -> Callable[[kube.Object, kube.Object], None]:
    return lambda _, new: keep(new)


async def _show(live: Live, seen: Seen) -> None:
    while True:
        live.update(screen(seen), refresh=True)
        await asyncio.sleep(1 / FRAMES_A_SECOND)


async def _apply(url: str, steps: Sequence[Step], clock: Clock) -> None:
    """Each object when its time has come, by the same POST that kubectl makes."""
    start, never = clock.now(), asyncio.Event()
    async with aiohttp.ClientSession() as session:
        for step in steps:
            await clock.wait(never, start + step.at)
            async with session.post(url + _path(step.object), json=step.object.manifest) as response:
                if response.status >= 400:
                    raise CommandError(f"{step.object}: {(await response.json())['message']}")


def _path(found: Object) -> str:
    if found.kind == "Node":
        return "/api/v1/nodes"
    return f"/apis/{names.API_VERSION}/namespaces/{found.namespace}/{names.GPUTASK_PLURAL}"


async def _all_ended(seen: Seen) -> None:
    """Wait until all tasks ended, or until our patience has."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await seen.all_ended.wait()
