"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gputask.cli.output import Format

Output = Annotated[Format, typer.Option("--output", "-o", help="A table for people, or JSON or YAML for scripts.")]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="Nodes, GpuNodes, Pods and GpuTasks as kubectl prints them: a file, a folder, or - for stdin. Repeatable.",
    ),
]
MoreFiles = Annotated[list[str] | None, typer.Argument(metavar="FILE", help="More files.", show_default=False)]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="How to reach the cluster; $KUBECONFIG or the own pod's if absent."),
]
Now = Annotated[str | None, typer.Option(metavar="TIME", help="The present (RFC 3339); the clock's if absent.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace.")]
EachNamespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Only those of this namespace.")
]
