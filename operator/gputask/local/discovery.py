"""Discovery and OpenAPI: what tells clients which resources there are, how they are called and what they look like."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gputask.local.kinds import Kinds, Resource
from gputask.local.patch import patch_types
from gputask.local.schema import Node
from gputask.local.typed import PREFIX, component

Object = dict[str, Any]

VERSION: Object = {"major": "1", "minor": "37", "gitVersion": "v1.37.0+gputask", "platform": "linux/amd64"}
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_METADATA = PREFIX + "V1ObjectMeta"


def discovery(path: str, kinds: Kinds) -> Object | None:
    """The document at a path, or None if there is none."""
    match path.strip("/").split("/"):
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(g, kinds) for g in _groups(kinds)]}
        case ["api", version]:
            return _resources("", version, kinds)
        case ["apis", group] if group in _groups(kinds):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, kinds)}
        case ["apis", group, version]:
            return _resources(group, version, kinds)
        case ["openapi", "v3"]:
            return {"paths": {_place(r): {"serverRelativeURL": f"/openapi/v3/{_place(r)}"} for r in kinds}}
        case ["openapi", "v3", *place]:
            found = [r for r in kinds if _place(r) == "/".join(place)]
            return _openapi(found) if found else None
        case _:
            return None


def _groups(kinds: Kinds) -> list[str]:
    return list(dict.fromkeys(r.group for r in kinds if r.group))


def _group(group: str, kinds: Kinds) -> Object:
    versions = list(dict.fromkeys((r.api_version, r.version) for r in kinds if r.group == group))
    named = [{"groupVersion": api_version, "version": version} for api_version, version in versions]
    return {"name": group, "versions": named, "preferredVersion": named[0]}


def _resources(group: str, version: str, kinds: Kinds) -> Object | None:
    served = [r for r in kinds if (r.group, r.version) == (group, version)]
    if not served:
        return None
    listed: list[Object] = []
    for r in served:
        entry: Object = {"name": r.plural, "singularName": r.singular, "namespaced": r.namespaced, "kind": r.kind}
        entry["verbs"] = VERBS
        if r.short_names:
            entry["shortNames"] = list(r.short_names)
        if r.categories:
            entry["categories"] = list(r.categories)
        listed += [entry, *(_subresource(r, name) for name in r.subresources())]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": served[0].api_version, "resources": listed}


def _subresource(resource: Resource, name: str) -> Object:
    kinds: dict[str, tuple[str, list[str], Object]] = {
        "status": (resource.kind, ["get", "patch", "update"], {}),
        "scale": ("Scale", ["get", "patch", "update"], {"group": "autoscaling", "version": "v1"}),
        "binding": ("Binding", ["create"], {}),
        "eviction": ("Eviction", ["create"], {"group": "policy", "version": "v1"}),
        "log": (resource.kind, ["get"], {}),
    }
    kind, verbs, own_type = kinds[name]
    return {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": verbs,
        **own_type,
    }


def _place(resource: Resource) -> str:
    return f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"


def _openapi(resources: Iterable[Resource]) -> Object:
    """OpenAPI v3 of one group and version: schemas for ``kubectl explain``, and the parameters by which kubectl knows
    that it may leave the checking of fields to the server."""
    paths: Object = {}
    schemas: Object = {}
    for resource in resources:
        gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        name = resource.kind if resource.custom else resource.schema.root["$ref"].removeprefix(PREFIX)
        if resource.custom:
            _collect(_METADATA, schemas)
            head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"$ref": _METADATA}}
            properties = {**head, **(resource.schema.root.get("properties") or {}), "metadata": head["metadata"]}
            schemas[name] = {**resource.schema.root, "properties": properties, "x-kubernetes-group-version-kind": [gvk]}
        else:
            _collect(resource.schema.root["$ref"], schemas)
            schemas[name] = {**schemas[name], "x-kubernetes-group-version-kind": [gvk]}
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        body = {"schema": {"$ref": PREFIX + name}}
        parameters = [_parameter("dryRun"), _parameter("fieldManager"), _parameter("fieldValidation")]
        paths[f"/{_place(resource)}{scope}/{resource.plural}/{{name}}"] = {
            "get": {"responses": {"200": {"content": {"application/json": body}}}},
            "patch": {
                "parameters": parameters,
                "requestBody": {
                    "content": {kind: {"schema": {"type": "object"}} for kind in patch_types(custom=resource.custom)}
                },
                "responses": {"200": {"content": {"application/json": body}}},
                "x-kubernetes-group-version-kind": gvk,
                "x-kubernetes-action": "patch",
            },
        }
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _parameter(name: str) -> Object:
    return {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}


def _collect(reference: str, schemas: Object) -> None:
    """Adds a built-in schema and all that it refers to."""
    name = reference.removeprefix(PREFIX)
    if name in schemas:
        return
    schemas[name] = node = component(reference)
    pending: list[Node] = [node]
    while pending:
        part = pending.pop()
        if "$ref" in part:
            _collect(part["$ref"], schemas)
        pending += (part.get("properties") or {}).values()
        pending += [part[field] for field in ("items", "additionalProperties") if isinstance(part.get(field), dict)]
