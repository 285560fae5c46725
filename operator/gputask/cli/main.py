"""The console script ``gputask``: each command's options and help. The work of a command is imported only when
it is called, so that ``gputask --help`` is fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gputask import __version__
from gputask.cli.errors import CommandError, Exit
from gputask.cli.lease_commands import lease
from gputask.cli.options import EachNamespace, Files, Kubeconfig, MoreFiles, Namespace, Now, Output
from gputask.cli.output import Format

app = typer.Typer(
    name="gputask",
    help="GPU work on Kubernetes: variants, priorities, reservations, backfill.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(lease, name="lease")


@app.command()
def plan(*, files: Files = None, more: MoreFiles = None, now: Now = None, output: Output = Format.TABLE) -> int:
    """One planner pass over files: what would start where, what is held, why the rest waits. Writes nothing."""
    from gputask.cli.plan import plan_files

    return plan_files([*(files or ()), *(more or ())], now=now, output=output)


@app.command()
def explain(
    *,
    task: Annotated[str, typer.Argument(metavar="TASK", help="NAMESPACE/NAME, or a name in namespace default.")],
    files: Files = None,
    kubeconfig: Kubeconfig = None,
    now: Now = None,
    output: Output = Format.TABLE,
) -> int:
    """Why a task waits, for each node, variant and resource, and what would make it run. Without files: on the
    cluster."""
    from gputask.cli.explain import explain_task

    return explain_task(task, files or (), kubeconfig=kubeconfig, now=now, output=output)


queue = typer.Typer(help="Who waits, in which order and why; and namespaces that are paused.")
app.add_typer(queue, name="queue")


@queue.callback(invoke_without_command=True)
def list_queue(
    context: typer.Context,
    *,
    namespace: EachNamespace = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TABLE,
) -> int:
    """All waiting tasks in the order in which they are looked at, and what keeps each."""
    from gputask.cli import queue

    if context.invoked_subcommand is not None:
        return Exit.FINE
    return queue.list_queue(kubeconfig=kubeconfig, namespace=namespace, output=output)


@queue.command()
def pause(*, namespace: Namespace = "default", kubeconfig: Kubeconfig = None) -> int:
    """Start nothing new of a namespace; what runs goes on."""
    return _set_mode("Hold", namespace, kubeconfig)


@queue.command()
def drain(*, namespace: Namespace = "default", kubeconfig: Kubeconfig = None) -> int:
    """Pause a namespace, and evict what runs there: it waits at its old rank."""
    return _set_mode("HoldAndDrain", namespace, kubeconfig)


@queue.command()
def resume(*, namespace: Namespace = "default", kubeconfig: Kubeconfig = None) -> int:
    """Let a namespace run again."""
    return _set_mode(None, namespace, kubeconfig)


def _set_mode(mode: str | None, namespace: str, kubeconfig: Path | None) -> int:
    from gputask.api.names import QueueMode
    from gputask.cli.queue import set_mode

    return set_mode(QueueMode(mode) if mode else None, kubeconfig=kubeconfig, namespace=namespace)


@app.command()
def simulate(
    *,
    files: Files = None,
    more: MoreFiles = None,
    until: Annotated[str | None, typer.Option(metavar="SECONDS", help="Stop at this time.")] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="For --node-order shuffle.")] = 0,
    now: Now = None,
    node_order: Annotated[
        str,
        typer.Option(
            metavar="ORDER", help="Which node joins at which instant: given, reverse, shuffle, or NAME,NAME,..."
        ),
    ] = "given",
    output: Output = Format.TABLE,
) -> int:
    """Run the tasks of files through the planner in simulated time, and check every rule at every event."""
    from gputask.cli.simulate import simulate_files

    return simulate_files(
        [*(files or ()), *(more or ())], until=until, seed=seed, now=now, node_order=node_order, output=output
    )


@app.command()
def operator(
    *,
    kubeconfig: Kubeconfig = None,
    metrics_host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where they are served.")] = "0.0.0.0",
    metrics_port: Annotated[int, typer.Option(metavar="N", help="Port of /metrics, /healthz and /readyz.")] = 8080,
    leader_elect: Annotated[bool, typer.Option(help="Act only while this replica holds the Lease.")] = True,
    lease_name: Annotated[str, typer.Option(metavar="NAME", help="The Lease.")] = "gputask-operator",
    lease_namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where the Lease is; by default the namespace we run in.")
    ] = None,
    lease_seconds: Annotated[
        int, typer.Option(metavar="N", min=3, help="How long after its last renewal another replica may take over.")
    ] = 15,
    max_waiting: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Refuse new tasks while so many wait; by default all may wait."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> int:
    """Run the operator until SIGTERM or SIGINT."""
    from gputask.cli.operator import operate

    return operate(
        kubeconfig=kubeconfig,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
        lease_name=lease_name if leader_elect else None,
        lease_namespace=lease_namespace,
        lease_seconds=lease_seconds,
        max_waiting=max_waiting,
        verbose=verbose,
    )


local = typer.Typer(help="An embedded cluster on this machine: API server and simulated nodes.", no_args_is_help=True)
app.add_typer(local, name="local")


@local.command()
def up(
    *,
    nodes: Annotated[
        list[str] | None, typer.Option("--nodes", metavar="FILE", help="Nodes to create at the start. Repeatable.")
    ] = None,
    kubeconfig: Annotated[
        Path, typer.Option(metavar="PATH", help="Where to write the kubeconfig that kubectl uses.")
    ] = Path("gputask.kubeconfig"),
    port: Annotated[int, typer.Option(metavar="N", help="Port of the API server; 0 is any free one.")] = 0,
    operator: Annotated[bool, typer.Option(help="Run the operator beside it.")] = True,
    speed: Annotated[float, typer.Option(metavar="X", help="How much faster than real time pods run.")] = 1.0,
) -> int:
    """Run an API server with simulated nodes, and the operator, until SIGTERM or SIGINT."""
    from gputask.cli.local import up as run_cluster

    return run_cluster(nodes=nodes or (), kubeconfig=kubeconfig, port=port, operator=operator, speed=speed)


@app.command()
def demo(
    *,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Nodes and GpuTasks to apply, each at its time.")
    ] = None,
    speed: Annotated[float, typer.Option(metavar="X", help="How much faster than real time it runs.")] = 10.0,
) -> int:
    """Apply the HyperQueue stream to an embedded cluster, show it live, and judge all that happened."""
    from gputask.cli.demo import demo as run_demo

    return run_demo(files=files or ("examples/hyperqueue-stream",), speed=speed)


@app.callback(invoke_without_command=True)
def _root(
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"gputask {__version__}")
        raise typer.Exit


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    :returns: the exit code (:class:`~gputask.cli.errors.Exit`; 130 when interrupted).
    """
    try:
        result = app(args=list(arguments), prog_name="gputask", standalone_mode=False)
        sys.stdout.flush()
    except CommandError as error:
        print(*error.lines, sep="\n", file=sys.stderr)
        return error.code
    except typer.TyperException as error:
        # Without arguments the help has been printed and no text is left.
        if text := _text(error):
            print(f"gputask: {text}", file=sys.stderr)
        return Exit.BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except (BrokenPipeError, SystemExit):
        # The reader of our output went away (`| head`), which typer and rich turn into an exit; it is no verdict.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FINE
    return result if isinstance(result, int) else Exit.FINE


def _text(error: typer.TyperException) -> str:
    message = getattr(error, "format_message", error.__str__)()
    return " ".join(str(message).split())


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
