"""The built-in resources: no more than the operator, kubectl and the simulated nodes use."""

from __future__ import annotations

from gputask.local.kinds import Column, Resource
from gputask.local.typed import typed_schema

AGE = Column("Age", "date", ".metadata.creationTimestamp")
NAME = Column("Name", "string", ".metadata.name", format="name")


def core_resources() -> tuple[Resource, ...]:
    """Every built-in resource, with the schema of its Go type."""
    return (*_core_group(), *_other_groups())


def _core_group() -> tuple[Resource, ...]:
    return (
        Resource(
            group="",
            version="v1",
            plural="namespaces",
            singular="namespace",
            kind="Namespace",
            namespaced=False,
            short_names=("ns",),
            has_status=True,
            schema=typed_schema("V1Namespace"),
            columns=(NAME, Column("Status", "string", ".status.phase"), AGE),
            fields={"status.phase": ("status", "phase")},
        ),
        Resource(
            group="",
            version="v1",
            plural="nodes",
            singular="node",
            kind="Node",
            namespaced=False,
            short_names=("no",),
            has_status=True,
            schema=typed_schema("V1Node"),
            columns=(
                NAME,
                Column("Status", "string", "node-status"),
                Column("Roles", "string", "node-roles"),
                AGE,
                Column("Version", "string", ".status.nodeInfo.kubeletVersion"),
            ),
            fields={"spec.unschedulable": ("spec", "unschedulable")},
        ),
        Resource(
            group="",
            version="v1",
            plural="pods",
            singular="pod",
            kind="Pod",
            namespaced=True,
            short_names=("po",),
            categories=("all",),
            has_status=True,
            counts_generations=True,
            schema=typed_schema("V1Pod"),
            columns=(
                NAME,
                Column("Ready", "string", "pod-ready"),
                Column("Status", "string", "pod-status"),
                Column("Restarts", "string", "pod-restarts"),
                AGE,
                Column("IP", "string", ".status.podIP", 1),
                Column("Node", "string", ".spec.nodeName", 1),
            ),
            fields={
                "spec.nodeName": ("spec", "nodeName"),
                "spec.schedulerName": ("spec", "schedulerName"),
                "spec.restartPolicy": ("spec", "restartPolicy"),
                "status.phase": ("status", "phase"),
                "status.podIP": ("status", "podIP"),
                "status.nominatedNodeName": ("status", "nominatedNodeName"),
            },
        ),
        _events(),
    )


def _events() -> Resource:
    parts = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    return Resource(
        group="",
        version="v1",
        plural="events",
        singular="event",
        kind="Event",
        namespaced=True,
        short_names=("ev",),
        schema=typed_schema("CoreV1Event"),
        columns=(
            Column("Last Seen", "date", "event-seen"),
            Column("Type", "string", ".type"),
            Column("Reason", "string", ".reason"),
            Column("Object", "string", "event-object"),
            Column("Message", "string", ".message"),
        ),
        fields={f"involvedObject.{part}": ("involvedObject", part) for part in parts}
        | {
            "reason": ("reason",),
            "type": ("type",),
            "source": ("source", "component"),
            "reportingComponent": ("reportingComponent",),
        },
    )


def _other_groups() -> tuple[Resource, ...]:
    return (
        Resource(
            group="coordination.k8s.io",
            version="v1",
            plural="leases",
            singular="lease",
            kind="Lease",
            namespaced=True,
            schema=typed_schema("V1Lease"),
            columns=(NAME, Column("Holder", "string", ".spec.holderIdentity"), AGE),
        ),
        Resource(
            group="policy",
            version="v1",
            plural="poddisruptionbudgets",
            singular="poddisruptionbudget",
            kind="PodDisruptionBudget",
            namespaced=True,
            short_names=("pdb",),
            has_status=True,
            counts_generations=True,
            schema=typed_schema("V1PodDisruptionBudget"),
            columns=(
                NAME,
                Column("Min Available", "string", ".spec.minAvailable"),
                Column("Max Unavailable", "string", ".spec.maxUnavailable"),
                Column("Allowed Disruptions", "integer", ".status.disruptionsAllowed"),
                AGE,
            ),
        ),
        Resource(
            group="scheduling.k8s.io",
            version="v1",
            plural="priorityclasses",
            singular="priorityclass",
            kind="PriorityClass",
            namespaced=False,
            short_names=("pc",),
            schema=typed_schema("V1PriorityClass"),
            columns=(
                NAME,
                Column("Value", "integer", ".value"),
                Column("Global-Default", "boolean", ".globalDefault"),
                AGE,
            ),
        ),
        Resource(
            group="apiextensions.k8s.io",
            version="v1",
            plural="customresourcedefinitions",
            singular="customresourcedefinition",
            kind="CustomResourceDefinition",
            namespaced=False,
            short_names=("crd", "crds"),
            categories=("api-extensions",),
            has_status=True,
            counts_generations=True,
            schema=typed_schema("V1CustomResourceDefinition"),
            columns=(NAME, Column("Created At", "date", ".metadata.creationTimestamp")),
        ),
    )
