"""Builders and helpers for tests against the embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gputask.local.api import Api, Reply
from gputask.local.cluster import NAMESPACES
from gputask.local.requests import Request
from gputask.local.store import Store, decode, encode

Object = dict[str, Any]


def node(name: str = "n1", *, simulated: bool = True, **annotations: str) -> Object:
    """A Node with 8 cpus, 32 GiB and room for 110 pods; annotations by key with ``__`` for the slash."""
    marks = {"sim.gputask.dev/node": "true"} if simulated else {}
    marks |= {key.replace("__", "/"): value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": marks},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    }


def pod(name: str = "p1", *, sim: dict[str, str] | None = None, meta: Object | None = None, **spec: Any) -> Object:
    """A pod with one container; ``sim`` gives sim.gputask.dev annotations by their last part."""
    annotations = {f"sim.gputask.dev/{key}": value for key, value in (sim or {}).items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations, **(meta or {})},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never", **spec},
    }


def crd(schema: Object, *, plural: str = "widgets", kind: str = "Widget", **version: Any) -> Object:
    """A CRD of the group example.dev, with status, whose ``spec`` has this schema."""
    root = {"type": "object", "properties": {"spec": schema, "status": _ANYTHING}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": root},
                    "subresources": {"status": {}},
                    **version,
                }
            ],
        },
    }


_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def widget(name: str = "w1", meta: Object | None = None, **spec: Any) -> Object:
    """An object of the kind that :func:`crd` defines."""
    metadata = {"name": name, "namespace": "default", **(meta or {})}
    return {"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": metadata, "spec": spec}


class Direct:
    """Requests to an Api without a socket: ``status, body = direct.get("/api/v1/nodes")``."""

    def __init__(self, *, window: int = 10_000) -> None:
        self.api = Api(Store(history=True, window=window))
        for name in NAMESPACES:
            self.ok("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def reply(self, method: str, path: str, body: Any = None, *, type: str = "json", **query: str) -> Reply:
        content = {"json": "application/json", "yaml": "application/yaml"}.get(type, f"application/{type}-patch+json")
        accept = query.pop("accept", "application/json")
        raw = body if isinstance(body, bytes) else b"" if body is None else encode(body)
        return self.api.handle(Request(method, path, query, raw, content, accept))

    def ask(self, method: str, path: str, body: Any = None, **more: str) -> tuple[int, Object]:
        reply = self.reply(method, path, body, **more)
        return reply.status, decode(reply.body)

    def ok(self, method: str, path: str, body: Any = None, **more: str) -> Object:
        status, answer = self.ask(method, path, body, **more)
        assert status < 300, answer
        return answer

    def fails(self, method: str, path: str, body: Any = None, **more: str) -> Object:
        status, answer = self.ask(method, path, body, **more)
        assert status >= 400, answer
        assert answer["kind"] == "Status"
        assert answer["code"] == status
        return answer


async def eventually(what: Callable[[], Awaitable[Any] | Any], *, seconds: float = 20.0) -> Any:
    """The first true value of a question asked again and again; fails the test after so many seconds."""
    async with asyncio.timeout(seconds):
        while True:
            value = what()
            if isinstance(value, Awaitable):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.01)
