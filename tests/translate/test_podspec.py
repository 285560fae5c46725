"""How a variant reaches the pod that we make."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputask.api.gputask import Variant
from gputask.resources.amounts import SCALE
from gputask.resources.effective import effective_requests
from gputask.translate.podspec import SpecError, with_variant
from support.tasks import template, variant


def container(name: str = "main", limits: dict[str, Any] | None = None, **requests: Any) -> dict[str, Any]:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {"name": name, **({"resources": resources} if resources else {})}


def made(
    manifest: dict[str, Any], asked: dict[str, Any], *, extended: tuple[str, ...] = (), first: str = "main"
) -> Any:
    return with_variant(manifest, Variant.model_validate(asked), device_containers=[first], extended=extended)


def resources_of(spec: Any, name: str = "main") -> dict[str, Any]:
    return next(c.get("resources", {}) for c in spec["containers"] if c["name"] == name)


def test_cpu_and_memory_become_requests_of_the_first_device_container():
    spec = made(template(container("side"), container("main")), variant(cpu=4, memory="12000Mi"))
    assert resources_of(spec) == {"requests": {"cpu": "4", "memory": "12000Mi"}}
    assert resources_of(spec, "side") == {}


def test_a_fraction_of_a_cpu_is_written_as_such():
    assert resources_of(made(template(), variant(cpu="0.125")))["requests"] == {"cpu": "0.125"}


def test_what_the_other_containers_ask_is_taken_off():
    spec = made(template(container("main"), container("side", cpu="1", memory="1Gi")), variant(cpu=4, memory="4Gi"))
    assert resources_of(spec)["requests"] == {"cpu": "3", "memory": "3072Mi"}


def test_a_sidecar_runs_beside_the_container_so_its_part_is_taken_off_too():
    sidecar = {**container("proxy", cpu="1"), "restartPolicy": "Always"}
    spec = made(template(initContainers=[sidecar]), variant(cpu=4))
    assert resources_of(spec)["requests"] == {"cpu": "3"}
    assert effective_requests(spec) == {"cpu": 4 * SCALE}


def test_an_init_container_runs_before_so_nothing_is_taken_off():
    spec = made(template(initContainers=[container("setup", cpu="6")]), variant(cpu=4))
    assert resources_of(spec)["requests"] == {"cpu": "4"}
    assert effective_requests(spec) == {"cpu": 6 * SCALE}


def test_other_containers_that_ask_more_than_the_variant_are_one_line_with_the_field():
    with pytest.raises(SpecError) as caught:
        made(template(container("main"), container("side", cpu="5")), variant(cpu=4))
    assert caught.value.field == "resources.cpu"
    assert str(caught.value) == (
        "the template's other containers ask 5, more than the variant's 4; raise it or lower theirs"
    )


def test_a_name_that_the_variant_lacks_stays_as_in_the_template():
    spec = made(template(container(memory="2Gi")), variant(cpu=1))
    assert resources_of(spec)["requests"] == {"memory": "2Gi", "cpu": "1"}


def test_an_explicit_zero_is_as_if_it_were_absent():
    assert resources_of(made(template(container(cpu="2")), variant(cpu=0))) == {"requests": {"cpu": "2"}}


def test_a_limit_is_raised_to_the_request_and_never_lowered():
    spec = made(template(container(limits={"cpu": "2", "memory": "64Gi"})), variant(cpu=4, memory="12Gi"))
    assert resources_of(spec)["limits"] == {"cpu": "4", "memory": "64Gi"}


def test_no_limit_appears_where_none_was():
    assert "limits" not in resources_of(made(template(), variant(cpu=4, memory="12Gi")))


def test_extended_resources_and_huge_pages_have_equal_requests_and_limits():
    asked = variant(**{"nvidia.com/gpu": 2, "hugepages-2Mi": "4Mi"})
    spec = made(template(), asked, extended=("nvidia.com/gpu",))
    expected = {"nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"}
    assert resources_of(spec) == {"requests": expected, "limits": expected}


def test_pools_of_our_ledger_never_reach_the_pod():
    spec = made(
        template(), variant(cpu=1, lic="0.5", **{"gpuSlot/0": 1, "runtime/aaa": 1}), extended=("nvidia.com/gpu",)
    )
    assert resources_of(spec) == {"requests": {"cpu": "1"}}


def test_where_only_our_ledger_knows_a_name_the_templates_request_of_it_goes():
    gpu = {"example.com/gpu": "1"}
    manifest = template({"name": "main", "resources": {"requests": gpu, "limits": gpu}})
    asked = variant(**{"example.com/gpu": 1})
    assert resources_of(made(manifest, asked)) == {"requests": {}, "limits": {}}
    assert resources_of(made(manifest, asked, extended=("example.com/gpu",)))["requests"] == gpu


def test_b48_a_part_of_an_extended_resource_is_refused_before_any_pod_is_made():
    with pytest.raises(SpecError) as caught:
        made(template(), variant(**{"example.com/gpu": "0.5"}), extended=("example.com/gpu",))
    assert caught.value.field == "resources[example.com/gpu]"
    assert str(caught.value).startswith("0.5 is not whole, as extended resources are")


def test_pod_level_resources_take_the_variants_amounts():
    manifest = template(container(cpu="1"), resources={"requests": {"cpu": "2"}, "limits": {"cpu": "3"}})
    spec = made(manifest, variant(cpu=4))
    assert spec["resources"] == {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    assert effective_requests(spec) == {"cpu": 4 * SCALE}


def test_the_template_is_never_changed():
    manifest = template(container(cpu="1", limits={"cpu": "1"}), initContainers=[container("setup")])
    before = repr(manifest)
    spec = made(manifest, variant(cpu=4, memory="1Gi"))
    spec["containers"][0]["env"] = []
    spec["initContainers"][0]["env"] = []
    spec["schedulerName"] = "x"
    assert repr(manifest) == before


cpus = st.integers(1, 64)


@given(asked=cpus, main=cpus, side=st.integers(0, 64), init=cpus, sidecar=st.integers(0, 64))
def test_the_pod_asks_what_the_variant_says_unless_an_init_container_asks_more(asked, main, side, init, sidecar):
    manifest = template(
        container("main", cpu=str(main)),
        container("side", cpu=str(side)),
        initContainers=[
            {**container("proxy", cpu=str(sidecar)), "restartPolicy": "Always"},
            container("s", cpu=str(init)),
        ],
    )
    try:
        spec = made(manifest, variant(cpu=asked))
    except SpecError:
        assert side + sidecar > asked
    else:
        assert effective_requests(spec) == {"cpu": max(asked, sidecar + init) * SCALE}
