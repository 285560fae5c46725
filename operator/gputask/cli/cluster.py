"""Commands that ask a cluster: one short-lived client, and errors as lines with an exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from gputask.cli.documents import Document
from gputask.cli.errors import BadInputError, NotReachableError
from gputask.kube.client import Client
from gputask.kube.config import connect
from gputask.kube.errors import ApiError, KubeConfigError, KubeError
from gputask.kube.resources import GPUNODES, GPUTASKS, NODES, PODS

T = TypeVar("T")


def ask(command: str, kubeconfig: Path | None, work: Callable[[Client], Awaitable[T]]) -> T:
    """What ``work`` finds on the cluster of ``kubeconfig`` (else $KUBECONFIG, else the own pod's).

    :raises BadInputError: no usable connection settings, or the server refuses; one line.
    :raises NotReachableError: no answer.
    """

    async def connected() -> T:
        async with Client(connect(kubeconfig=kubeconfig)) as client:
            return await work(client)

    try:
        return asyncio.run(connected())
    except (KubeConfigError, ApiError) as error:
        raise BadInputError(f"{command}: {error}") from error
    except KubeError as error:
        raise NotReachableError(f"{command}: no answer from the cluster: {error}") from error


async def everything(client: Client) -> list[Document]:
    """All objects that decide about tasks, as stored now."""
    found: list[Document] = []
    for resource in (NODES, GPUNODES, PODS, GPUTASKS):
        items = (await client.list(resource)).items
        found += [Document(f"cluster {resource.plural}", None, item) for item in items]
    return found
