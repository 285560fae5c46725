"""The client against the embedded server: requests, and what each kind of failure means."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from gputask.kube.client import Client
from gputask.kube.config import Connection
from gputask.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    OutcomeUnknown,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from gputask.kube.resources import GPUTASKS, NODES, PODS
from gputask.kube.transport import HttpTransport
from gputask.kube.writes import Writes
from gputask.local.cluster import LocalCluster
from support.local import node, pod
from support.protocol import Network, answer, lose_reply, lose_request

pytestmark = pytest.mark.asyncio


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(nodes=[node("n1", simulated=False)], window=5) as made:
        yield made


@pytest.fixture
async def network(cluster: LocalCluster) -> Network:
    return Network(HttpTransport(cluster.connection))


@pytest.fixture
async def client(cluster: LocalCluster, network: Network) -> AsyncIterator[Client]:
    async with Client(cluster.connection, transport=network) as made:
        yield made


async def test_an_object_is_created_read_patched_replaced_listed_and_deleted(client: Client) -> None:
    made = await client.create(PODS, pod("a"), "default")
    await client.patch(PODS, "a", {"metadata": {"labels": {"x": "y"}}}, "default")
    patched = await client.patch(PODS, "a", {"metadata": {"labels": {"z": "1"}}}, "default")
    assert patched["metadata"]["labels"] == {"x": "y", "z": "1"}
    patched["metadata"]["labels"] = {"only": "this"}
    assert (await client.replace(PODS, "a", patched, "default"))["metadata"]["labels"] == {"only": "this"}
    assert (await client.get(PODS, "a", "default"))["metadata"]["uid"] == made["metadata"]["uid"]
    listing = await client.list(PODS, label_selector="only=this", field_selector="metadata.name=a")
    assert [(item["kind"], item["metadata"]["name"]) for item in listing.items] == [("Pod", "a")]
    await client.delete(PODS, "a", "default", uid=made["metadata"]["uid"], grace_seconds=0)
    assert (await client.list(PODS)).items == []


async def test_each_refusal_has_its_class_and_the_servers_own_line(client: Client) -> None:
    await client.create(PODS, pod("a"), "default")
    with pytest.raises(AlreadyExists, match='pods "a" already exists'):
        await client.create(PODS, pod("a"), "default")
    with pytest.raises(NotFound, match='pods "b" not found'):
        await client.get(PODS, "b", "default")
    with pytest.raises(Conflict):
        await client.delete(PODS, "a", "default", uid="another")
    with pytest.raises(Conflict):
        await client.delete(PODS, "a", "default", resource_version="1")
    with pytest.raises(Invalid):
        await client.create(GPUTASKS, {"apiVersion": "gputask.dev/v1alpha1", "kind": "GpuTask"}, "default")


@pytest.mark.parametrize(
    ("status", "kind"), [(403, Forbidden), (429, TooManyRequests), (410, Gone), (418, ApiError), (500, ServerError)]
)
async def test_a_refused_read_says_so(client: Client, network: Network, status: int, kind: type[ApiError]) -> None:
    network.on("GET", "/nodes", answer(status, "", "no"))
    with pytest.raises(kind, match="no") as caught:
        await client.get(NODES, "n1")
    assert type(caught.value) is kind
    assert caught.value.status == status


async def test_a_binding_needs_the_very_uid_and_version(client: Client) -> None:
    made = (await client.create(PODS, pod("a"), "default"))["metadata"]
    with pytest.raises(Conflict):
        await client.bind("default", "a", "n1", uid=made["uid"], resource_version="1")
    with pytest.raises(Conflict):
        await client.bind("default", "a", "n1", uid="other", resource_version=made["resourceVersion"])
    await client.bind("default", "a", "n1", uid=made["uid"], resource_version=made["resourceVersion"])
    assert (await client.get(PODS, "a", "default"))["spec"]["nodeName"] == "n1"


# --- what is known of a write ---


@pytest.mark.parametrize("fault", [lose_reply, lose_request, answer(500), answer(503), answer(504)])
async def test_a_write_without_a_clear_answer_is_unknown(client: Client, network: Network, fault: object) -> None:
    network.on("POST", "/pods", fault)  # type: ignore[arg-type]
    with pytest.raises(OutcomeUnknown):
        await client.create(PODS, pod("a"), "default")


async def test_a_lost_reply_really_took_effect(client: Client, network: Network) -> None:
    network.on("POST", "/pods", lose_reply)
    with pytest.raises(OutcomeUnknown):
        await client.create(PODS, pod("a"), "default")
    assert (await client.get(PODS, "a", "default"))["metadata"]["name"] == "a"


async def test_a_connection_cut_by_the_server_after_the_write_is_unknown(cluster: LocalCluster) -> None:
    async def cut(_request: object, handle: object) -> None:
        handle()  # type: ignore[operator]

    async with Client(cluster.connection) as client:
        cluster.server.fault = cut  # type: ignore[assignment]
        with pytest.raises(OutcomeUnknown):
            await client.create(PODS, pod("a"), "default")
        cluster.server.fault = None
        assert (await client.get(PODS, "a", "default"))["metadata"]["name"] == "a"


async def test_a_server_that_is_not_there_had_no_effect_and_is_told_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with Client(Connection(f"http://127.0.0.1:{taken.getsockname()[1]}")) as client:
            with pytest.raises(Unreachable) as read:
                await client.get(NODES, "n1")
            with pytest.raises(Unreachable) as write:
                await client.create(PODS, pod("a"), "default")
    assert "\n" not in str(read.value) + str(write.value)


async def test_nothing_but_the_three_families_leaves_the_client(client: Client, network: Network) -> None:
    async def broken(_request: object, _send: object) -> object:
        raise aiohttp.ClientPayloadError

    for effect in (broken, answer(200)):
        network.on("GET", "/nodes/n1", effect)  # type: ignore[arg-type]
    with pytest.raises(KubeError):
        await client.get(NODES, "n1")


# --- watches ---


async def test_a_watch_brings_what_happens_after_the_list(client: Client) -> None:
    listing = await client.list(PODS)
    await client.create(PODS, pod("a"), "default")
    async for event in client.watch(PODS, resource_version=listing.resource_version):
        assert (event.type, event.object["metadata"]["name"]) == ("ADDED", "a")
        break


async def test_a_version_that_is_too_old_is_gone(client: Client) -> None:
    listing = await client.list(PODS)
    for i in range(8):  # more than the window of 5
        await client.create(PODS, pod(f"p{i}"), "default")
    with pytest.raises(Gone):
        async for _ in client.watch(PODS, resource_version=listing.resource_version):
            pass


async def test_every_bump_gives_a_new_version(client: Client) -> None:
    writes = Writes(client)
    made = await client.create(PODS, pod("a"), "default")
    versions = {made["metadata"]["resourceVersion"]}
    for _ in range(5):
        bumped = await writes.bump_pod("default", "a", uid=made["metadata"]["uid"])
        versions.add(bumped["metadata"]["resourceVersion"])
    assert len(versions) == 6
    with pytest.raises((Conflict, Invalid)):
        await writes.bump_pod("default", "a", uid="another")
