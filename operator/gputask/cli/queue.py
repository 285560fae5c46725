"""``gputask queue``: who waits, in which order and why; and whole namespaces paused, resumed or drained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gputask.api.conditions import AcceptedReason, Phase, ReservedReason, TaskCondition
from gputask.api.names import QUEUE_ANNOTATION, QueueMode
from gputask.cli.cluster import ask
from gputask.cli.errors import Exit
from gputask.cli.output import SCHEMA_VERSION, Format, show
from gputask.cli.tables import queue_table
from gputask.kube.client import Client
from gputask.kube.resources import GPUTASKS
from gputask.kube.writes import Writes
from gputask.ledger.claims import rank_of

_OUT = (ReservedReason.SUSPENDED, ReservedReason.PAUSED, AcceptedReason.INVALID, AcceptedReason.QUEUE_FULL)
"""Who waits for one of these reasons has no position: nothing that becomes free starts it."""


def list_queue(*, kubeconfig: Path | None, namespace: str | None, output: Format) -> Exit:
    """Print all waiting tasks; positions count over all namespaces.

    :raises BadInputError: the cluster refuses.
    :raises NotReachableError: no answer.
    """

    async def tasks(client: Client) -> list[dict[str, Any]]:
        return (await client.list(GPUTASKS)).items

    found = ask("gputask queue", kubeconfig, tasks)
    rows = [row for row in _rows(found) if namespace is None or row["task"].startswith(f"{namespace}/")]
    show({"schemaVersion": SCHEMA_VERSION, "queue": rows}, output, queue_table)
    return Exit.FINE


def set_mode(mode: QueueMode | None, *, kubeconfig: Path | None, namespace: str) -> Exit:
    """Write the mode of a namespace's queue; None lets it run.

    :raises BadInputError: there is no such namespace, or it is not ours to write.
    :raises NotReachableError: no answer.
    """

    async def write(client: Client) -> None:
        await Writes(client).annotate_namespace(namespace, {QUEUE_ANNOTATION: mode.value if mode is not None else None})

    ask("gputask queue", kubeconfig, write)
    print(f"namespace/{namespace} {mode.value if mode is not None else 'runs'}")
    return Exit.FINE


def _rows(tasks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    waiting = sorted((task for task in tasks if _waits(task)), key=rank_of)
    rows, position = [], 0
    for task in waiting:
        row = _row(task)
        if row["reason"] not in _OUT:
            position += 1
            row["position"] = position
        rows.append(row)
    return rows


def _waits(task: Mapping[str, Any]) -> bool:
    phase = (task.get("status") or {}).get("phase") or Phase.PENDING
    return phase in (Phase.PENDING, Phase.PREEMPTING) and not task["metadata"].get("deletionTimestamp")


def _row(task: Mapping[str, Any]) -> dict[str, Any]:
    meta, status = task["metadata"], task.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    accepted, reserved = conditions.get(TaskCondition.ACCEPTED), conditions.get(TaskCondition.RESERVED)
    told = accepted if accepted and accepted["status"] == "False" else reserved
    return {
        "position": None,
        "task": f"{meta['namespace']}/{meta['name']}",
        "priority": -rank_of(task)[0],
        "since": reserved["lastTransitionTime"] if reserved else meta.get("creationTimestamp"),
        "reason": told["reason"] if told else None,
        "message": told.get("message", "") if told else "not looked at yet",
    }
