"""``gputask lease``: devices for work outside the cluster's pods, claimed, renewed, released and listed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gputask.api import names
from gputask.api.conditions import FinishedReason, Phase, TaskCondition
from gputask.api.gputask import GpuTask, Lease
from gputask.api.problems import ManifestError, read
from gputask.api.times import rfc3339
from gputask.cli.cluster import ask
from gputask.cli.errors import BadInputError, CommandError, Exit
from gputask.cli.files import load
from gputask.cli.output import SCHEMA_VERSION, Format, show
from gputask.cli.tables import lease_table
from gputask.kube.client import Client
from gputask.kube.errors import Conflict, NotFound
from gputask.kube.resources import GPUTASKS
from gputask.kube.writes import Writes

Object = dict[str, Any]

POLL_SECONDS = 0.3
TRIES = 8

WAITING, HELD, EXPIRED = "Waiting", "Held", "Expired"


def claim(manifest: Object, *, wait: float | None, kubeconfig: Path | None, output: Format) -> Exit:
    """Create a lease and print it; with ``wait`` (seconds) once it is held, or when that time is over.

    :returns: FALSE if it was waited for and is not held; it stays and waits.
    :raises BadInputError: the cluster refuses it.
    :raises NotReachableError: no answer.
    """

    async def claimed(client: Client) -> Object:
        row = _row(await Writes(client).create_task(manifest))
        until = time.monotonic() + (wait or 0.0)
        while wait is not None and row["state"] == WAITING and time.monotonic() < until:
            await asyncio.sleep(min(POLL_SECONDS, max(0.0, until - time.monotonic())))
            row = _row(await _stored(client, manifest["metadata"]["namespace"], manifest["metadata"]["name"]))
        return row

    row = ask("gputask lease claim", kubeconfig, claimed)
    _print([row], output)
    return Exit.FINE if wait is None or row["state"] == HELD else Exit.FALSE


def renew(name: str, *, namespace: str, kubeconfig: Path | None, output: Format) -> Exit:
    """Write the present into ``spec.lease.renewTime``.

    :raises CommandError: there is nothing to renew: it has expired, or is not held.
    :raises BadInputError: there is no such lease.
    :raises NotReachableError: no answer; renewing again is always right.
    """

    async def renewed(client: Client) -> Object:
        for _ in range(TRIES):
            stored = await _stored(client, namespace, name)
            row = _row(stored)
            if row["state"] != HELD:
                raise CommandError(f"gputask lease renew: {row['task']}: {_why_not_renewed(row)}")
            try:
                # Under the version that says that it is held: one that has expired meanwhile is looked at again.
                version = stored["metadata"]["resourceVersion"]
                now = rfc3339(time.time())
                return _row(await Writes(client).renew_lease(namespace, name, now, resource_version=version))
            except Conflict:
                continue
        raise CommandError(f"gputask lease renew: {namespace}/{name}: was written {TRIES} times meanwhile; try again")

    _print([ask("gputask lease renew", kubeconfig, renewed)], output)
    return Exit.FINE


def release(name: str, *, namespace: str, kubeconfig: Path | None) -> Exit:
    """Delete the lease: what it holds is free, and where it has expired its quarantine ends.

    :raises BadInputError: there is no such lease.
    :raises NotReachableError: no answer.
    """

    async def released(client: Client) -> Object:
        stored = await _stored(client, namespace, name)
        await Writes(client).delete_task(namespace, name, uid=stored["metadata"]["uid"])
        return _row(stored)

    row = ask("gputask lease release", kubeconfig, released)
    had = {WAITING: "it held nothing", EXPIRED: "its quarantine ends"}.get(row["state"])
    print(f"{row['task']} released" + (f": {had}" if had else ""))
    return Exit.FINE


def list_leases(*, namespace: str | None, kubeconfig: Path | None, output: Format) -> Exit:
    """Print all leases of a namespace, or of all.

    :raises BadInputError: the cluster refuses.
    :raises NotReachableError: no answer.
    """

    async def tasks(client: Client) -> list[Object]:
        return (await client.list(GPUTASKS, namespace)).items

    found = [task for task in ask("gputask lease list", kubeconfig, tasks) if "lease" in task["spec"]]
    _print(sorted(map(_row, found), key=lambda row: str(row["task"])), output)
    return Exit.FINE


# --- what is claimed ----------------------------------------------------------------------------------


def from_file(file: str, *, namespace: str | None) -> Object:
    """The one lease of a file.

    :raises BadInputError: it holds none, several, or one that cannot be understood.
    """
    tasks = load([file]).tasks
    if len(tasks) != 1:
        raise BadInputError(f"{file}: holds {len(tasks)} GpuTasks; a claim is one, with spec.lease")
    found = tasks[0]
    if "lease" not in found.spec:
        raise BadInputError(f"{found}: spec.lease: missing; write lease: {{ttlSeconds: 300}} in place of the template")
    if namespace is not None and found.metadata.get("namespace") not in (None, "", namespace):
        raise BadInputError(f"{found}: metadata.namespace: is not the {namespace!r} of --namespace; leave one out")
    metadata = {**found.metadata, "namespace": namespace or found.namespace}
    return _checked(str(found), {**found.manifest, "metadata": metadata})


def from_options(
    name: str,
    *,
    namespace: str | None,
    ttl: int | None,
    priority: int | None,
    resources: str | None,
    devices: str | None,
    count: int,
) -> Object:
    """A lease of one variant; ``resources`` and ``devices`` are like ``cpu=4,gpuHostMB=12000``.

    :raises BadInputError: one line for each thing that cannot be.
    """
    variant: Object = {"name": "lease", "resources": _amounts("--resources", resources)}
    if devices is not None:
        variant["devices"] = {"count": count, "resources": _amounts("--devices", devices)}
    if not variant["resources"] and devices is None:
        raise BadInputError("gputask lease claim: asks for nothing; give --resources or --devices, or -f FILE")
    return _checked(
        "gputask lease claim",
        {
            "apiVersion": names.API_VERSION,
            "kind": names.GPUTASK_KIND,
            "metadata": {"name": name, "namespace": namespace or "default"},
            "spec": {
                **({} if priority is None else {"priority": priority}),
                "variants": [variant],
                "lease": {} if ttl is None else {"ttlSeconds": ttl},
            },
        },
    )


def _amounts(option: str, text: str | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(",") if text is not None else ():
        name, equals, amount = part.strip().partition("=")
        if not equals or not name or not amount:
            raise BadInputError(f"{option}: {part[:80]!r} is no NAME=AMOUNT; write them like cpu=4,gpuHostMB=12000")
        if name in found:
            raise BadInputError(f"{option}: {name[:80]!r} stands twice; remove one")
        found[name] = amount
    return found


def _checked(place: str, manifest: Object) -> Object:
    try:
        read(GpuTask, manifest)
    except ManifestError as error:
        raise BadInputError.of(f"{place}: {line}" for line in error.lines) from None
    return manifest


# --- what is there ------------------------------------------------------------------------------------


async def _stored(client: Client, namespace: str, name: str) -> Object:
    """The lease of this name as stored now."""
    try:
        stored = await client.get(GPUTASKS, name, namespace)
    except NotFound:
        raise BadInputError(f"{namespace}/{name}: there is no such lease") from None
    if "lease" not in stored["spec"]:
        raise BadInputError(f"{namespace}/{name}: is no lease: it has a template, and its pod needs no renewal")
    return stored


def _row(task: Mapping[str, Any]) -> Object:
    meta, status, lease = task["metadata"], task.get("status") or {}, task["spec"]["lease"]
    state = _state(status)
    reservation = (status.get("reservation") or {}) if state != WAITING else {}
    return {
        "task": f"{meta['namespace']}/{meta['name']}",
        "state": state,
        "node": reservation.get("node"),
        "variant": reservation.get("variant"),
        "devices": reservation.get("devices") or [],
        "amounts": reservation.get("amounts") or {},
        "labels": reservation.get("labels") or {},
        "ttlSeconds": lease.get("ttlSeconds", Lease().ttl_seconds),
        "renewTime": lease.get("renewTime"),
        "message": _message(state, status),
    }


def _state(status: Mapping[str, Any]) -> str:
    if status.get("phase") == Phase.BOUND:
        return HELD
    return EXPIRED if status.get("phase") == Phase.FAILED else WAITING


def _message(state: str, status: Mapping[str, Any]) -> str:
    """Why it waits, or how it ended."""
    told = {c["type"]: c for c in status.get("conditions") or ()}
    accepted = told.get(TaskCondition.ACCEPTED, {})
    if accepted.get("status") == "False":
        return str(accepted.get("message", ""))
    kind = {WAITING: TaskCondition.RESERVED, EXPIRED: TaskCondition.FINISHED}.get(state)
    return str(told.get(kind, {}).get("message", "")) if kind is not None else ""


def _why_not_renewed(row: Mapping[str, Any]) -> str:
    if row["state"] == EXPIRED:
        return f"it has expired ({FinishedReason.LEASE_EXPIRED}): {row['message']}; release it, and claim another"
    return f"it is not held, so there is nothing to renew: {row['message'] or 'not looked at yet'}"


def _print(rows: Sequence[Object], output: Format) -> None:
    show({"schemaVersion": SCHEMA_VERSION, "leases": list(rows)}, output, lease_table)
