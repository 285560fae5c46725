"""Nodes: what they declare, and how the planner sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gputask.api import names
from gputask.api.times import epoch
from gputask.planner.model import Foreign, Node, Running, Taint
from gputask.resources.declarations import understand
from gputask.resources.names import is_kubernetes
from gputask.resources.pools import NodeResources, Problem

Manifest = Mapping[str, Any]


def declared(manifest: Manifest) -> NodeResources:
    """What a Node offers, with one problem for each thing that cannot be understood. Never raises."""
    annotations = _annotations(manifest)
    resources = understand(annotations, _allocatable(manifest))
    text = annotations.get(names.LIVES_UNTIL_ANNOTATION)
    if text is not None:
        try:
            epoch(text)
        except ValueError as error:
            problem = Problem(names.LIVES_UNTIL_ANNOTATION, "", str(error))
            resources = replace(resources, problems=(*resources.problems, problem))
    return resources


def extended_resources(manifest: Manifest) -> frozenset[str]:
    """Names in allocatable beyond Kubernetes' own: of what a variant asks, these can become requests of the pod."""
    return frozenset(name for name in _allocatable(manifest) if not is_kubernetes(name))


def planner_node(
    manifest: Manifest,
    *,
    resources: NodeResources | None = None,
    running: tuple[Running, ...] = (),
    foreign: tuple[Foreign, ...] = (),
    out: str | None = None,
) -> Node:
    """A Node as a pass sees it. ``resources`` if they are known already, else they are read from the manifest."""
    spec = manifest.get("spec") or {}
    return Node(
        name=manifest["metadata"]["name"],
        resources=declared(manifest) if resources is None else resources,
        labels=manifest["metadata"].get("labels") or {},
        taints=tuple(
            Taint(taint["key"], taint.get("value") or "", taint.get("effect") or "")
            for taint in spec.get("taints") or ()
        ),
        unschedulable=bool(spec.get("unschedulable")),
        ready=is_ready(manifest),
        out=out,
        lives_until=_lives_until(manifest),
        running=running,
        foreign=foreign,
    )


def _annotations(manifest: Manifest) -> Mapping[str, str]:
    return manifest["metadata"].get("annotations") or {}


def _allocatable(manifest: Manifest) -> Mapping[str, Any]:
    return (manifest.get("status") or {}).get("allocatable") or {}


def is_ready(manifest: Manifest) -> bool:
    """Whether its kubelet says that it takes pods. A Node without conditions is Ready: files have none."""
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return all(c.get("status") == "True" for c in conditions if c.get("type") == "Ready")


def _lives_until(manifest: Manifest) -> float | None:
    try:
        return epoch(_annotations(manifest)[names.LIVES_UNTIL_ANNOTATION])
    except (KeyError, ValueError):
        return None
