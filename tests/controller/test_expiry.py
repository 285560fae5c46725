"""When a finished task is removed."""

from __future__ import annotations

import asyncio
from typing import Any

from gputask.controller.expiry import Expiry
from gputask.controller.metrics import Metrics
from gputask.controller.store import Store
from gputask.kube.client import Client
from gputask.kube.errors import NotFound
from gputask.kube.resources import GPUTASKS
from gputask.kube.writes import Writes
from gputask.local.cluster import LocalCluster
from support.controller import task
from support.local import eventually


async def test_a_task_written_while_it_was_to_be_removed_is_removed_at_its_next_version() -> None:
    async with LocalCluster() as local, Client(local.connection) as client:
        await client.create(GPUTASKS, task("t", ttlSecondsAfterFinished=0), "default")

        async def write(body: dict[str, Any], **more: Any) -> dict[str, Any]:
            return await client.patch(GPUTASKS, "t", body, "default", **more)

        status = {"phase": "Succeeded", "finishTime": "2026-01-01T00:00:00Z"}
        seen = await write({"status": status}, subresource="status")
        written = await write({"metadata": {"labels": {"a": "b"}}})  # the store does not know of this one yet
        store = Store()
        store.put_task(seen)
        expiry = Expiry(store=store, writes=Writes(client), now=lambda: 2e9, metrics=Metrics())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(expiry.run())
            expiry.look(seen["metadata"]["uid"])
            await asyncio.sleep(0.1)
            assert (await client.get(GPUTASKS, "t", "default"))["metadata"]["labels"] == {"a": "b"}
            store.put_task(written)
            expiry.look(written["metadata"]["uid"])

            async def removed() -> bool:
                try:
                    await client.get(GPUTASKS, "t", "default")
                except NotFound:
                    return True
                return False

            await eventually(removed)
            running.cancel()
