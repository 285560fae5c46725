"""Options and help of ``gputask lease``."""

from __future__ import annotations

from typing import Annotated

import typer

from gputask.cli.errors import BadInputError
from gputask.cli.options import EachNamespace, Kubeconfig, Namespace, Output
from gputask.cli.output import Format

lease = typer.Typer(help="Devices for work outside the cluster's pods: held as long as they are renewed.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The lease, a GpuTask.")]


@lease.command()
def claim(
    *,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Its name.", show_default=False)] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="A GpuTask with spec.lease, or - for stdin.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", metavar="NAME", help="The file's, or default, if absent.")
    ] = None,
    resources: Annotated[str | None, typer.Option(metavar="NAME=AMOUNT,...", help="Of the node, like cpu=4.")] = None,
    devices: Annotated[
        str | None, typer.Option(metavar="NAME=AMOUNT,...", help="Of each device, like gpuSlot=1,gpuMemoryMB=20000.")
    ] = None,
    count: Annotated[int, typer.Option(metavar="N", help="So many devices.")] = 1,
    ttl: Annotated[int | None, typer.Option(metavar="SECONDS", help="It expires so long after a renewal.")] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="Higher is served first, and may preempt.")] = None,
    wait: Annotated[float | None, typer.Option(metavar="SECONDS", min=0, help="Wait until it is held.")] = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TABLE,
) -> int:
    """Claim devices: a variant from options, or a file with several."""
    from gputask.cli import lease as work

    if (name is None) == (file is None):
        raise BadInputError("gputask lease claim: give either NAME with --resources or --devices, or -f FILE")
    if name is not None:
        manifest = work.from_options(
            name,
            namespace=namespace,
            ttl=ttl,
            priority=priority,
            resources=resources,
            devices=devices,
            count=count,
        )
    elif any(option is not None for option in (resources, devices, ttl, priority)):
        raise BadInputError(
            "gputask lease claim: -f FILE says all; leave --resources, --devices, --ttl, --priority out"
        )
    else:
        manifest = work.from_file(file or "-", namespace=namespace)
    return work.claim(manifest, wait=wait, kubeconfig=kubeconfig, output=output)


@lease.command()
def renew(
    *, name: Name, namespace: Namespace = "default", kubeconfig: Kubeconfig = None, output: Output = Format.TABLE
) -> int:
    """Renew a lease: its time to live begins anew. One that has expired is not renewed."""
    from gputask.cli import lease as work

    return work.renew(name, namespace=namespace, kubeconfig=kubeconfig, output=output)


@lease.command()
def release(*, name: Name, namespace: Namespace = "default", kubeconfig: Kubeconfig = None) -> int:
    """Give a lease back; of one that has expired this ends the quarantine of its devices."""
    from gputask.cli import lease as work

    return work.release(name, namespace=namespace, kubeconfig=kubeconfig)


@lease.command("list")
def list_leases(
    *, namespace: EachNamespace = None, kubeconfig: Kubeconfig = None, output: Output = Format.TABLE
) -> int:
    """All leases: who waits, who holds what, what has expired and is quarantined."""
    from gputask.cli import lease as work

    return work.list_leases(namespace=namespace, kubeconfig=kubeconfig, output=output)
