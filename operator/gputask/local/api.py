"""The API itself: one request in, one reply out. Knows paths, verbs and media types, and nothing of sockets."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gputask.local.checks import check_precondition
from gputask.local.core import core_resources
from gputask.local.crds import follow_crds
from gputask.local.discovery import discovery
from gputask.local.eviction import evict
from gputask.local.kinds import Kinds, Resource
from gputask.local.objects import Deletion, Objects, Options
from gputask.local.patch import patcher
from gputask.local.paths import Target, target_of
from gputask.local.pods import binding_problems, bound
from gputask.local.requests import JSON, Request, body_of, deletion_from, deletion_of, options_of
from gputask.local.scale import scale_of, scaled
from gputask.local.statuses import (
    StatusError,
    bad_request,
    invalid_object,
    no_such_path,
    success,
)
from gputask.local.store import Store, Version, encode
from gputask.local.tables import TableForm
from gputask.local.typed import decoded, typed_schema
from gputask.local.watching import Form, Lists, Pace, PlainForm, Selection, watch

Object = dict[str, Any]

logger = logging.getLogger(__name__)


Log = Callable[[Object, str | None], str]
"""The log of a pod's container (None: the only or first one). Raises: StatusError 400 while there is none."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: a body, or the pieces of a watch. retry_after: seconds, for clients that would repeat at once."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    warnings: tuple[str, ...] = ()
    retry_after: int = 0
    stream: AsyncIterator[bytes] | None = None


_PACE = Pace()
_BINDING, _EVICTION = typed_schema("V1Binding"), typed_schema("V1Eviction")
_CREATED: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _no_log(pod: Object, container: str | None) -> str:
    raise bad_request(f"no kubelet runs pod {json.dumps(pod['metadata']['name'])}")


class Api:
    """The server's logic over one store.

    now: the present in UTC. pace: of watches. log: where container logs come from.
    """

    def __init__(
        self, store: Store, *, now: Callable[[], datetime] = lambda: datetime.now(UTC), pace: Pace = _PACE
    ) -> None:
        self.store = store
        self.kinds = Kinds(store, core_resources())
        self.objects = Objects(store, self.kinds, now=now)
        self.log: Log = _no_log
        self.closing = False
        self._now = now
        self._pace = pace
        self._lists = Lists(store)
        follow_crds(store, self.kinds)

    def close(self) -> None:
        """Ends all watches at once."""
        self.closing = True
        for _, table in self.store.tables():
            table.window.wake()

    def handle(self, request: Request) -> Reply:
        """Answers a request; what goes wrong becomes a Status."""
        try:
            return self._answer(request)
        except StatusError as error:
            retry = (error.details or {}).get("retryAfterSeconds", 0)
            return Reply(error.code, encode(error.body()), retry_after=retry)
        except Exception as error:
            # A fault of this server, but no reason for a client to see anything else than a Status.
            logger.exception("%s %s", request.method, request.path)
            internal = StatusError(500, "InternalError", f"Internal error occurred: {type(error).__name__}: {error}")
            return Reply(500, encode(internal.body()))

    def _answer(self, request: Request) -> Reply:
        if request.path in ("/healthz", "/livez", "/readyz"):
            return Reply(200, b"ok", "text/plain")
        target = target_of(request.path, self.kinds)
        if target is None:
            document = discovery(request.path, self.kinds) if request.method == "GET" else None
            if document is None:
                raise no_such_path()
            return Reply(200, encode(document))
        handlers: dict[str, Callable[[Request, Target], Reply]] = {
            "GET": self._get,
            "POST": self._post,
            "PUT": self._put,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }
        if request.method not in handlers:
            raise _no_method()
        return handlers[request.method](request, target)

    def _form(self, request: Request, resource: Resource) -> Form:
        for media in request.accept.split(","):
            kind = media.partition(";")[0].strip()
            if kind in (JSON, "*/*", "application/*", ""):
                if "as=Table" in media:
                    return TableForm(resource, request.query.get("includeObject", "Metadata"), now=self._now)
                if "as=" not in media:
                    return PlainForm(resource)
        raise StatusError(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/json;as=Table",
        )

    def _get(self, request: Request, target: Target) -> Reply:
        if target.subresource == "log":
            pod = self.objects.get(target.resource, *target.key).obj
            return Reply(200, self.log(pod, request.query.get("container")).encode(), "text/plain")
        form = self._form(request, target.resource)
        watched = request.query.get("watch") in ("true", "1")
        if target.name is not None and not watched:
            version = self.objects.get(target.resource, *target.key)
            if target.subresource == "scale":
                return Reply(200, encode(scale_of(target.resource, version.obj)))
            return Reply(200, form.one(version))
        selection = Selection.of(
            target.resource, self.kinds.table(target.resource), target.namespace, target.name, request.query
        )
        if not watched:
            return Reply(200, self._lists.page(selection, form, request.query))
        lines = watch(selection, form, request.query, store=self.store, pace=self._pace, closing=lambda: self.closing)
        return Reply(200, stream=lines)

    def _post(self, request: Request, target: Target) -> Reply:
        if target.subresource == "binding":
            return self._bind(request, target)
        if target.subresource == "eviction":
            return self._evict(request, target)
        if target.name is not None:
            raise _no_method()
        if target.resource.namespaced and target.namespace is None:
            raise bad_request("an empty namespace may not be set during creation")
        options = options_of(request.query)
        version = self.objects.create(target.resource, target.namespace or "", body_of(request), options)
        return self._written(request, target, version, options, status=201)

    def _put(self, request: Request, target: Target) -> Reply:
        if target.name is None:
            raise _no_method()
        options = options_of(request.query)
        body = body_of(request)
        if target.subresource == "scale":
            return self._rescale(target, body, options, whole=True)
        version = self._updated(target, body, options, whole=True)
        return self._written(request, target, version, options)

    def _updated(self, target: Target, body: Any, options: Options, *, whole: bool) -> Version:
        if target.subresource == "finalize":
            return self._finalized(target, body)
        return self.objects.update(
            target.resource, target.key, body, options, subresource=target.subresource, whole=whole
        )

    def _finalized(self, target: Target, body: Any) -> Version:
        """Sets the spec's finalizers of a namespace, which no other request can."""
        old = self.objects.get(target.resource, *target.key).obj
        finalizers = list((body.get("spec") or {}).get("finalizers") or ())
        new = {**old, "metadata": dict(old["metadata"]), "spec": {"finalizers": finalizers}}
        table = self.kinds.table(target.resource)
        return self.objects.store_update(target.resource, table, target.key, new, dry_run=False)

    def _patch(self, request: Request, target: Target) -> Reply:
        if target.name is None:
            raise _no_method()
        apply = patcher(request.content_type, custom=target.resource.custom)
        options = options_of(request.query)
        old = self.objects.get(target.resource, *target.key).obj
        patch = body_of(request)
        if target.subresource == "scale":
            return self._rescale(target, apply(scale_of(target.resource, old), patch), options, whole=False)
        version = self._updated(target, apply(old, patch), options, whole=False)
        return self._written(request, target, version, options)

    def _rescale(self, target: Target, scale: Any, options: Options, *, whole: bool) -> Reply:
        old = self.objects.get(target.resource, *target.key).obj
        new = scaled(target.resource, old, scale)
        if "resourceVersion" not in new["metadata"]:
            whole = False
        version = self.objects.update(target.resource, target.key, new, options, whole=whole)
        return Reply(200, encode(scale_of(target.resource, version.obj)))

    def _bind(self, request: Request, target: Target) -> Reply:
        body = decoded(body_of(request), _BINDING, "Binding", "v1")
        if (body.get("apiVersion", "v1"), body.get("kind", "Binding")) != ("v1", "Binding"):
            raise bad_request("the request body must be a Binding of apiVersion v1")
        meta = body.get("metadata") or {}
        name = target.name or meta.get("name") or ""
        if meta.get("name", name) != name:
            raise bad_request("name in URL does not match name in Binding object")
        if meta.get("namespace", target.namespace) != target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if causes := list(binding_problems(body)):
            raise invalid_object("", "Binding", name, causes)
        key = (target.namespace or "", name)
        pod = self.objects.get(target.resource, *key).obj
        for what, name in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
            check_precondition(target.resource, pod["metadata"], what, meta.get(name), pod["metadata"][name])
        new = bound(pod, body, self.objects.timestamp())
        if not options_of(request.query).dry_run:
            self.store.put(target.resource.key, self.kinds.table(target.resource), key, new)
        return Reply(201, encode(_CREATED))

    def _evict(self, request: Request, target: Target) -> Reply:
        body = decoded(body_of(request), _EVICTION, "Eviction", "policy/v1")
        if (body.get("metadata") or {}).get("name", target.name) != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        evict(self.objects, target.resource, target.key, deletion_from(body.get("deleteOptions") or {}, request))
        return Reply(201, encode(_CREATED))

    def _delete(self, request: Request, target: Target) -> Reply:
        how = deletion_of(request)
        resource = target.resource
        if target.name is None:
            return self._delete_all(request, target, how)
        version, gone = self.objects.delete(resource, target.key, how)
        if not gone or resource.key == "pods":
            return Reply(200, version.raw)
        uid = version.obj["metadata"]["uid"]
        return Reply(200, encode(success(resource.group, resource.plural, target.name, uid)))

    def _delete_all(self, request: Request, target: Target, how: Deletion) -> Reply:
        table = self.kinds.table(target.resource)
        selection = Selection.of(target.resource, table, target.namespace, None, request.query)
        form, versions = PlainForm(target.resource), selection.versions()
        for version in versions:
            meta = version.obj["metadata"]
            self.objects.delete(target.resource, (meta.get("namespace", ""), meta["name"]), how)
        return Reply(200, form.many(versions, {"resourceVersion": str(self.store.number)}))

    def _written(
        self, request: Request, target: Target, version: Version, options: Options, *, status: int = 200
    ) -> Reply:
        form = self._form(request, target.resource)
        return Reply(status, form.one(version), warnings=tuple(options.warnings))


def _no_method() -> StatusError:
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})
