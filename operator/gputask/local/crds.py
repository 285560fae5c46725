"""CustomResourceDefinitions: what they must say, and the resources that they make the server serve."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gputask.local.kinds import Column, Kinds, Path, Resource, Scale
from gputask.local.rules import RuleError, compiled
from gputask.local.schema import Schema
from gputask.local.statuses import Cause, invalid, required
from gputask.local.store import Event, Store
from gputask.local.strategies import Lookup, Strategy

Object = dict[str, Any]

KEY = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that keeps a CRD until its last object is gone."""


class CrdStrategy(Strategy):
    """CRDs are established at once."""

    def on_create(self, obj: Object, lookup: Lookup) -> None:
        spec = obj["spec"] = dict(obj.get("spec") or {})
        names = spec["names"] = dict(spec.get("names") or {})
        names.setdefault("singular", str(names.get("kind", "")).lower())
        names.setdefault("listKind", f"{names.get('kind', '')}List")
        spec.setdefault("conversion", {"strategy": "None"})
        meta = obj["metadata"]
        meta["finalizers"] = sorted({*(meta.get("finalizers") or ()), CLEANUP})
        when = meta["creationTimestamp"]
        texts = {"NamesAccepted": "no conflicts found", "Established": "the initial names have been accepted"}
        reasons = {"NamesAccepted": "NoConflicts", "Established": "InitialNamesAccepted"}
        obj["status"] = {
            "conditions": [
                {"type": type, "status": "True", "reason": reasons[type], "message": text, "lastTransitionTime": when}
                for type, text in texts.items()
            ],
            "acceptedNames": names,
            "storedVersions": [v["name"] for v in spec.get("versions") or () if v.get("storage")],
        }

    def problems(self, obj: Object, old: Object | None) -> Iterator[Cause]:
        spec, name = obj["spec"], obj["metadata"].get("name", "")
        plural, group = spec["names"].get("plural", ""), spec.get("group", "")
        if name != f"{plural}.{group}":
            yield invalid("metadata.name", name, f'must be spec.names.plural+"."+spec.group, here "{plural}.{group}"')
        if not spec["names"].get("kind"):
            yield required("spec.names.kind")
        if spec.get("scope") not in ("Namespaced", "Cluster"):
            yield required("spec.scope")
        versions = spec.get("versions") or []
        if sum(bool(version.get("storage")) for version in versions) != 1:
            yield invalid("spec.versions", [], "must have exactly one version marked as storage version")
        for i, version in enumerate(versions):
            path = f"spec.versions[{i}].schema.openAPIV3Schema"
            root = (version.get("schema") or {}).get("openAPIV3Schema")
            if root is None:
                yield required(path, "schemas are required")
            else:
                yield from _schema_problems(root, path)


def _schema_problems(node: Any, path: str) -> Iterator[Cause]:
    if not isinstance(node, Mapping):
        return
    for i, rule in enumerate(node.get("x-kubernetes-validations") or ()):
        for field in ("rule", "messageExpression"):
            try:
                if field in rule:
                    compiled(rule[field])
            except RuleError as error:
                yield invalid(f"{path}.x-kubernetes-validations[{i}].{field}", rule[field], str(error))
    if "pattern" in node:
        try:
            re.compile(node["pattern"])
        except re.error as error:
            yield invalid(f"{path}.pattern", node["pattern"], f"must be a valid regular expression: {error}")
    for name, child in (node.get("properties") or {}).items():
        yield from _schema_problems(child, f"{path}.properties[{name}]")
    for field in ("items", "additionalProperties"):
        yield from _schema_problems(node.get(field), f"{path}.{field}")


def follow_crds(store: Store, kinds: Kinds) -> None:
    """From now on the served resources follow the stored CRDs."""

    def on_change(resource: str, event: Event) -> None:
        if resource != KEY:
            return
        spec = event.now.obj["spec"]
        kinds.withdraw(spec["group"], spec["names"]["plural"])
        if event.type != "DELETED":
            for custom in custom_resources(event.now.obj):
                kinds.serve(custom)

    store.listeners.append(on_change)


def custom_resources(crd: Object) -> Iterator[Resource]:
    """One resource for each served version of a CRD."""
    spec = crd["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served", True):
            continue
        sub = version.get("subresources") or {}
        yield Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            singular=names["singular"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            has_status="status" in sub,
            custom=True,
            counts_generations=True,
            schema=Schema(version["schema"]["openAPIV3Schema"]),
            columns=_columns(version),
            fields={
                field["jsonPath"].removeprefix("."): _path(field["jsonPath"])
                for field in version.get("selectableFields") or ()
            },
            scale=_scale(sub.get("scale")),
        )


def _columns(version: Mapping[str, Any]) -> tuple[Column, ...]:
    name = Column("Name", "string", ".metadata.name", format="name")
    given = version.get("additionalPrinterColumns")
    if given is None:
        return (name, Column("Age", "date", ".metadata.creationTimestamp"))
    return (
        name,
        *(
            Column(
                column["name"],
                column["type"],
                column["jsonPath"],
                column.get("priority", 0),
                column.get("format", ""),
                column.get("description", ""),
            )
            for column in given
        ),
    )


def _path(text: str) -> Path:
    return tuple(text.strip(".").split("."))


def _scale(given: Mapping[str, Any] | None) -> Scale | None:
    if given is None:
        return None
    selector = given.get("labelSelectorPath")
    return Scale(
        _path(given["specReplicasPath"]), _path(given["statusReplicasPath"]), _path(selector) if selector else None
    )
