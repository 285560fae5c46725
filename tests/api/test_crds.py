"""The generated CRDs: up to date, structural, and of one mind with the models."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gputask.api.crds import files, generate, main
from gputask.api.gputask import GpuTask
from gputask.api.problems import ManifestError, read
from gputask.local.validation import problems
from support.tasks import gputask, template, variant

ROOT = Path(__file__).parents[2]
SCHEMAS = {crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0] for crd in generate()}
TASK_SCHEMA = SCHEMAS["GpuTask"]["schema"]["openAPIV3Schema"]


def nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    for child in (schema.get("properties") or {}).values():
        yield from nodes(child)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            yield from nodes(schema[key])


def refused_by_schema(manifest: dict[str, Any], old: dict[str, Any] | None = None) -> bool:
    return bool(problems(manifest, old, TASK_SCHEMA))


def refused_by_model(manifest: dict[str, Any]) -> bool:
    try:
        read(GpuTask, manifest)
    except ManifestError:
        return True
    return False


def without(field: str, manifest: dict[str, Any]) -> dict[str, Any]:
    del manifest["spec"][field]
    return manifest


def leased(**fields: Any) -> dict[str, Any]:
    """A lease; a field is one of its lease, or ``binding``. The server's defaults are in it."""
    binding = fields.pop("binding", "Direct")
    return without("template", gputask(lease=fields, binding=binding))


def test_both_accept_a_lease():
    for manifest in (leased(), leased(ttlSeconds=10**9), leased(renewTime="2026-01-31T12:00:00.123456Z")):
        assert not refused_by_model(manifest)
        assert not refused_by_schema(manifest)


def test_a_lease_becomes_no_pod_and_a_pod_no_lease():
    assert refused_by_schema(leased(), gputask(binding="Direct"))
    assert refused_by_schema(gputask(binding="Direct"), leased())


def test_the_files_are_what_the_models_say():
    assert {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")} == files()


def test_the_check_names_a_file_that_is_not_up_to_date(tmp_path, capsys):
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
    (tmp_path / "gputasks.gputask.dev.yaml").write_text("old")
    assert main(["--check", str(tmp_path)]) == 1
    assert "gputasks.gputask.dev.yaml: not as the models say; run: make format" in capsys.readouterr().err
    assert [yaml.safe_load(text) for text in files().values()] == generate()


@pytest.mark.parametrize("kind", ["GpuTask", "GpuNode"])
def test_every_schema_is_structural(kind):
    for node in nodes(SCHEMAS[kind]["schema"]["openAPIV3Schema"]):
        assert "type" in node or node.get("x-kubernetes-int-or-string"), node
        assert not {"$ref", "anyOf", "allOf", "title", "const", "$defs", "patternProperties"} & node.keys()
        assert not ("properties" in node and "additionalProperties" in node)
        assert not isinstance(node.get("exclusiveMinimum"), int) or node["exclusiveMinimum"] is True


def test_every_field_of_the_spec_is_explained():
    undocumented = [
        name for name, node in TASK_SCHEMA["properties"]["spec"]["properties"].items() if not node.get("description")
    ]
    assert undocumented == []


def test_nested_defaults_have_a_default_above_them():
    spec = TASK_SCHEMA["properties"]["spec"]["properties"]
    assert spec["restartPolicy"]["default"] == {}
    assert spec["restartPolicy"]["properties"]["backoffSeconds"]["default"] == 10
    assert "default" not in spec["priority"]


def test_variants_stay_inside_the_api_servers_budget():
    variants = TASK_SCHEMA["properties"]["spec"]["properties"]["variants"]
    resources = variants["items"]["properties"]["resources"]
    assert (variants["maxItems"], variants["x-kubernetes-list-map-keys"]) == (128, ["name"])
    assert (resources["maxProperties"], resources["x-kubernetes-map-type"]) == (32, "atomic")
    assert resources["additionalProperties"]["x-kubernetes-int-or-string"] is True
    assert resources["additionalProperties"]["maxLength"] == 32


def test_kubectl_shows_variant_node_and_devices():
    columns = [column["name"] for column in SCHEMAS["GpuTask"]["additionalPrinterColumns"]]
    assert columns[:5] == ["Phase", "Priority", "Variant", "Node", "Devices"]
    assert [c["name"] for c in SCHEMAS["GpuNode"]["additionalPrinterColumns"]][:3] == ["Devices", "Used", "Free"]


def test_a_gputask_has_a_scale_subresource_and_selectable_fields():
    assert SCHEMAS["GpuTask"]["subresources"]["scale"]["specReplicasPath"] == ".spec.replicas"
    for field in SCHEMAS["GpuTask"]["selectableFields"]:
        node = TASK_SCHEMA
        for name in field["jsonPath"].strip(".").split("."):
            node = node["properties"][name]
        assert node["type"] == "string"


# --- the API server and the models refuse the same ---------------------------------------------------


@pytest.mark.parametrize(
    "manifest",
    [
        gputask(),
        gputask(variant(cpu="0.125", memory="12Gi", **{"runtime/aaa": 1})),
        gputask(variant(devices={"count": 2, "resources": {"gpuSlot": 1}}), priority=4, deviceContainers=["main"]),
        gputask(priorityClassName="high"),
    ],
)
def test_both_accept_a_good_task(manifest):
    assert not refused_by_model(manifest)
    assert not refused_by_schema(manifest)


@pytest.mark.parametrize(
    "manifest",
    [
        gputask(variants=[]),
        gputask(variant(), variant()),
        gputask(variant(cpu="-1")),
        gputask(variant(cpu=-1)),
        gputask(variant(cpu="0.00001")),
        gputask(variant(memory="1E")),
        gputask(variant(cpu=0.5)),
        gputask(variant(**{"n" * 64: 1})),
        gputask(variant(devices={"count": -1, "resources": {"gpuSlot": 1}})),
        gputask(priority=1, priorityClassName="high"),
        gputask(priority="4"),
        gputask(binding="Extender"),
        gputask(timeLimitSeconds=0),
        gputask(replicas=3),
        gputask(template="x"),
        gputask(lease={}),
        leased(ttlSeconds=0),
        leased(ttlSeconds=10**9 + 1),
        leased(renewTime="now"),
        leased(binding="Pinned"),
        without("template", gputask()),
    ],
)
def test_both_refuse_a_bad_task(manifest):
    assert refused_by_model(manifest)
    assert refused_by_schema(manifest)


@given(
    st.text("0123456789.-+eEkMGTPKimx ", max_size=8)
    | st.from_regex(r"\A[0-9]{1,4}(\.[0-9]{1,6})?(m|k|M|G|Ki|Mi|Gi|E|x)?\Z")
    | st.integers(-5, 10**6),
    st.sampled_from(["lic", "gpuMemoryMB", "memory", "cpu"]),
)
def test_the_schema_is_never_stricter_than_the_model_and_refuses_all_that_no_resource_could_have(value, name):
    manifest = gputask(variant(**{name: value}))
    if not refused_by_model(manifest):
        assert not refused_by_schema(manifest)
    if all(refused_by_model(gputask(variant(**{other: value}))) for other in ("lic", "memory")):
        assert refused_by_schema(manifest)


def test_the_template_is_immutable():
    before, after = gputask(), gputask(template=template({"name": "other"}))
    assert refused_by_schema(after, before)
    assert not refused_by_schema(gputask(suspend=True), before)
