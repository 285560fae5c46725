"""The CustomResourceDefinitions, generated from the models: ``python -m gputask.api.crds [--check] DIR``.

Structural schemas, CEL rules, printer columns, selectable fields and the scale subresource. The schema facts behind the
rules (what fits the API server's budget, which equality it understands) are in the design's section 3.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from gputask.api import names
from gputask.api.base import ObjectMeta
from gputask.api.gpunode import GpuNode
from gputask.api.gputask import GpuTask

Schema = dict[str, Any]

_HEADER = "# Generated from the models in gputask.api by `make format`; do not edit.\n"

_SPEC_RULES = [
    {
        "rule": "!(has(self.priority) && has(self.priorityClassName))",
        "message": "give at most one of priority and priorityClassName",
    },
    {
        "rule": "has(self.template) != has(self.lease)",
        "message": "give exactly one of template and lease",
    },
    {
        "rule": "!has(self.lease) || self.binding == 'Direct'",
        "message": "a lease has no pod that could be pinned; remove binding",
    },
    {
        "rule": "has(self.template) == has(oldSelf.template) && "
        "(!has(self.template) || self.template == oldSelf.template)",
        "message": "template is immutable; delete the GpuTask and create another",
    },
]
_NAME_RULES = [
    {"rule": "size(self.metadata.name) <= 63", "message": "the name of a GpuTask has at most 63 characters"},
]

_TASK_COLUMNS = [
    ("Phase", "string", ".status.phase", 0),
    ("Priority", "integer", ".status.priority", 0),
    ("Variant", "string", ".status.reservation.variant", 0),
    ("Node", "string", ".status.reservation.node", 0),
    ("Devices", "string", ".status.reservation.devices", 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Reserved")].reason', 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Message", "string", '.status.conditions[?(@.type=="Reserved")].message', 1),
]
_NODE_COLUMNS = [
    ("Devices", "string", ".status.summary.devices", 0),
    ("Used", "string", ".status.summary.used", 0),
    ("Free", "string", ".status.summary.free", 0),
    ("Declared", "string", '.status.conditions[?(@.type=="Declared")].status', 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Message", "string", '.status.conditions[?(@.type=="Declared")].message', 1),
]


def generate() -> list[Schema]:
    """Both CRDs as manifests."""
    return [_gputasks(), _gpunodes()]


def _gputasks() -> Schema:
    schema = structural(GpuTask)
    schema["x-kubernetes-validations"] = _NAME_RULES
    schema["properties"]["spec"]["x-kubernetes-validations"] = _SPEC_RULES
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return _crd(
        kind=names.GPUTASK_KIND,
        plural=names.GPUTASK_PLURAL,
        short="gt",
        scope="Namespaced",
        version={
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": scale},
            "additionalPrinterColumns": _columns(_TASK_COLUMNS),
            "selectableFields": [{"jsonPath": ".status.phase"}, {"jsonPath": ".status.reservation.node"}],
        },
    )


def _gpunodes() -> Schema:
    return _crd(
        kind=names.GPUNODE_KIND,
        plural=names.GPUNODE_PLURAL,
        short="gn",
        scope="Cluster",
        version={
            "schema": {"openAPIV3Schema": structural(GpuNode)},
            "subresources": {"status": {}},
            "additionalPrinterColumns": _columns(_NODE_COLUMNS),
        },
    )


def _crd(*, kind: str, plural: str, short: str, scope: str, version: Schema) -> Schema:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
            },
            "scope": scope,
            "versions": [{"name": names.VERSION, "served": True, "storage": True, **version}],
        },
    }


def _columns(columns: list[tuple[str, str, str, int]]) -> list[Schema]:
    return [
        {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {})}
        for name, kind, path, priority in columns
    ]


# --- from JSON schema to structural schema ----------------------------------------------------------


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of a model: everything in place, no references, no alternatives, no titles."""
    schema = model.model_json_schema(by_alias=True)
    root = _structural(schema, schema.get("$defs", {}))
    root["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    if "spec" in root["properties"]:
        root["required"] = ["spec"]
    else:
        root.pop("required", None)
    return root


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    node = _resolved(node, definitions)
    if node.get("title") == ObjectMeta.__name__:
        return {"type": "object"}  # the API server's own, which no schema may describe
    found: Schema = {key: value for key, value in node.items() if key in _KEPT or key.startswith("x-kubernetes-")}
    if "description" in found:
        found["description"] = " ".join(found["description"].replace("``", "").split())
    if "properties" in node:
        found["properties"] = {name: _structural(child, definitions) for name, child in node["properties"].items()}
    if "items" in node:
        found["items"] = _structural(node["items"], definitions)
    # A structural schema has either properties or additionalProperties; unknown fields are the API server's to refuse.
    if isinstance(node.get("additionalProperties"), Mapping):
        found["additionalProperties"] = _structural(node["additionalProperties"], definitions)
    _adapt_numbers(node, found)
    return found


_KEPT = {
    *("type", "format", "description", "enum", "default", "pattern", "required"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties"),
}


def _resolved(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node with its reference put in place, and of ``X or null`` the X: an absent field is no null."""
    alternatives = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
    if alternatives:
        node = {**alternatives[0], **{key: value for key, value in node.items() if key != "anyOf"}}
    if "$ref" in node:
        target = definitions[node["$ref"].removeprefix("#/$defs/")]
        node = {**_resolved(target, definitions), **{key: value for key, value in node.items() if key != "$ref"}}
    if node.get("default", "") is None:
        node = {key: value for key, value in node.items() if key != "default"}
    return node


def _adapt_numbers(node: Mapping[str, Any], found: Schema) -> None:
    """OpenAPI 3.0 has a flag where JSON schema has a number, and wants to know how wide an integer is."""
    if "exclusiveMinimum" in node:
        found["minimum"], found["exclusiveMinimum"] = node["exclusiveMinimum"], True
    if "const" in node and found.get("type") == "string":
        found["enum"] = [node["const"]]
    if found.get("type") == "integer":
        found["format"] = "int64"
    if found.get("type") == "number":
        found["format"] = "double"


# --- the files --------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Writes everything out: a manifest with aliases is hard to read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def files() -> dict[str, str]:
    """File name -> text of each CRD."""
    return {
        f"{crd['metadata']['name']}.yaml": _HEADER + yaml.dump(crd, Dumper=_Dumper, sort_keys=False, width=120)
        for crd in generate()
    }


def main(arguments: list[str] | None = None) -> int:
    """Write the files into a folder, or with ``--check`` say which of them are not up to date."""
    parser = argparse.ArgumentParser(prog="gputask.api.crds", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    stale = [
        options.folder / name
        for name, text in files().items()
        if not (options.folder / name).exists() or (options.folder / name).read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if options.check:
            print(f"{path}: not as the models say; run: make format", file=sys.stderr)
        else:
            path.write_text(files()[path.name], encoding="utf-8")
            print(f"wrote {path}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
