"""What a node offers: annotations and allocatable, understood or named as a problem."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputask.resources.amounts import SCALE
from gputask.resources.declarations import DEVICES, MAX_ENTRIES, RESOURCES, understand
from gputask.resources.pools import Fault, Health, IndexedPool, NodeResources, SumPool, UnknownPool


def node(resources: object = None, devices: object = None, **allocatable: str) -> NodeResources:
    """A node by its two annotations (text as it is, anything else as JSON) and its allocatable."""
    annotations = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in ((RESOURCES, resources), (DEVICES, devices))
        if value is not None
    }
    return understand(annotations, allocatable)


def whole(number: float) -> SumPool:
    return SumPool(round(number * SCALE))


def problems(found: NodeResources) -> list[str]:
    return [str(problem) for problem in found.problems]


# --- what is understood --------------------------------------------------------------------------------


def test_the_node_of_the_cases_notation():
    found = node("gpuSlot/0: [a,b]\ngpuMemoryMB/0: 24000\nlic: sum(1.5)\nruntime/aaa: 8", cpu="8", memory="32000Mi")
    assert problems(found) == []
    assert found.pools == {
        "cpu": whole(8),
        "memory": whole(32000),
        "lic": whole(1.5),
        "runtime/aaa": whole(8),
    }
    (device,) = found.devices
    assert (device.id, device.index) == ("0", 0)
    assert device.pools == {"gpuSlot": IndexedPool(("a", "b")), "gpuMemoryMB": whole(24000)}


def test_json_and_yaml_say_the_same():
    entries = {"lic": "sum(1.5)", "slots": ["a", "b"], "x": 0.125, "rt/a": 8}
    as_yaml = "lic: sum(1.5)\nslots: [a, b]\nx: 0.125\nrt/a: 8"
    assert node(entries) == node(as_yaml) == node(json.dumps(entries, indent=1))


def test_the_order_of_names_does_not_matter():
    lines = ["gpuSlot/0: 1", "gpuSlot/1: 1", "gpuMemoryMB/1: 5", "runtime/aaa: 3", "cpu: 1"]
    assert node("\n".join(lines), cpu="1") == node("\n".join(reversed(lines)), cpu="1")


def test_devices_carry_their_own_pools():
    cards = [
        {"id": "GPU-b", "index": 1, "class": "H200", "resources": {"gpuSlot": 1, "gpuMemoryMB": "140Gi"}},
        {"id": "GPU-a", "index": 0, "class": "H200", "health": "Unhealthy", "resources": {"gpuSlot": [1, 2]}},
    ]
    found = node(devices=cards)
    assert problems(found) == []
    first, second = found.devices
    assert (first.id, first.index, first.device_class, first.health) == ("GPU-a", 0, "H200", Health.UNHEALTHY)
    assert first.pools == {"gpuSlot": IndexedPool(("1", "2"))}
    assert second.pools == {"gpuSlot": whole(1), "gpuMemoryMB": whole(140 * 1024)}


def test_a_suffix_is_the_id_of_a_declared_device_else_its_index_else_a_new_device():
    cards = [{"id": "GPU-a", "index": 0, "resources": {"gpuSlot": 1}}]
    found = node("gpuHostMB/GPU-a: 10\ngpuMemoryMB/0: 24000\ngpuSlot/1: 1", cards)
    assert problems(found) == []
    made, declared = found.devices
    assert (declared.id, set(declared.pools)) == ("GPU-a", {"gpuSlot", "gpuHostMB", "gpuMemoryMB"})
    assert (made.id, made.pools) == ("1", {"gpuSlot": whole(1)})


def test_any_other_slash_belongs_to_the_name():
    found = node("runtime/aaa: 8\ngpuSlot/GPU-x: 1\nexample.com/dongle: 2")
    assert set(found.pools) == {"runtime/aaa", "gpuSlot/GPU-x", "example.com/dongle"}
    assert found.devices == ()


def test_a_number_with_leading_zeros_is_the_same_device():
    found = node("gpuSlot/00: 1\ngpuMemoryMB/0: 5")
    assert [device.id for device in found.devices] == ["0"]


def test_b36_capacity_zero_is_understood_as_zero():
    found = node("gpuSlot/0: []\ngpuMemoryMB/0: 0", cpu="4")
    assert problems(found) == []
    assert found.pool("gpuSlot/0") == IndexedPool(())
    assert found.pool("gpuMemoryMB/0") == whole(0)


def test_unknown_is_a_third_state():
    found = node({"gpuMemoryMB/0": "unknown", "gpuSlot/0": 1})
    assert found.pool("gpuMemoryMB/0") == UnknownPool()
    assert found.pool("gpuSlot/0") == whole(1)


def test_allocatable_is_rounded_down():
    assert node(memory="24517636Ki").pools == {"memory": SumPool(239_430_039)}


def test_a_node_without_annotations_has_its_allocatable():
    assert node(cpu="3920m", pods="110").pools == {"cpu": SumPool(39_200), "pods": whole(110)}


def test_an_empty_annotation_declares_nothing():
    assert node("", "") == NodeResources()


# --- what is not: one problem, and the rest stays usable ----------------------------------------------


@pytest.mark.parametrize("value", [8000, "8000", "8000Mi", "8Gi"])
def test_b50_a_value_with_a_unit_is_understood(value):
    expected = 8192 if value == "8Gi" else 8000
    assert node({"gpuMemoryMB/0": value}).pool("gpuMemoryMB/0") == whole(expected)


@pytest.mark.parametrize("value", [-1, "", "eight"])
def test_b50_what_is_no_amount_drops_that_name_and_says_so(value):
    found = node({"gpuMemoryMB/0": value, "gpuSlot/0": 1, "lic": 2})
    assert found.pool("gpuMemoryMB/0") is None
    assert found.pool("gpuSlot/0") == whole(1)
    assert found.pools == {"lic": whole(2)}
    (problem,) = problems(found)
    assert problem.startswith("gputask.dev/resources: gpuMemoryMB/0: ")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1', "neither JSON nor YAML"),
        ("a: [", "neither JSON nor YAML"),
        ("just text", "it is no map; write {name: amount, ...}"),
        ("[1, 2]", "it is no map"),
        ("a: 1\na: 2", "'a' stands there twice"),
        ('{"a": 1, "a": 2}', "'a' stands there twice"),
        ("[" * 60_000, "nested too deeply"),
        ("a: &x [1]\nb: *x", "YAML aliases are not read"),
        ("!!python/object:os.system x", "could not determine a constructor"),
        ("? [a]\n: 1", "a key is no text"),
        ("x" * 250_000, "250000 characters are too many; at most 65536 are read"),
        ("\n".join(f"n{i}: 1" for i in range(MAX_ENTRIES + 1)), "entries are too many"),
        ("a: \ud800", "no valid Unicode"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_one_problem_and_nothing_of_it_counts(text, why):
    found = node(text, [{"id": "GPU-a", "resources": {"gpuSlot": 1}}], cpu="8")
    (problem,) = found.problems
    assert problem.fault is Fault.MALFORMED
    assert (problem.annotation, problem.name) == (RESOURCES, "")
    assert why in problem.message
    assert len(problem.message) < 200
    assert found.pools == {"cpu": whole(8)}
    assert [device.id for device in found.devices] == ["GPU-a"]


def test_text_that_grows_by_its_aliases_is_refused_before_it_grows():
    bomb = "l0: &l0 [a,b]\n" + "".join(f"l{i}: &l{i} [{','.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 30))
    assert "YAML aliases are not read" in problems(node(bomb))[0]


def test_a_name_that_allocatable_has_is_taken():
    found = node("cpu: 64\nexample.com/gpu: 4\nlic: 1", **{"cpu": "8", "example.com/gpu": "2"})
    assert found.pools == {"cpu": whole(8), "example.com/gpu": whole(2), "lic": whole(1)}
    assert [(problem.name, problem.fault) for problem in found.problems] == [
        ("cpu", Fault.NAME_TAKEN),
        ("example.com/gpu", Fault.NAME_TAKEN),
    ]


def test_names_of_kubernetes_come_from_allocatable_only():
    found = node({"memory": "64Gi", "hugepages-2Mi": "1Gi", "pods": 5})
    assert found.pools == {}
    assert {problem.fault for problem in found.problems} == {Fault.NAME_TAKEN}


def test_a_quantity_in_allocatable_that_is_none_drops_that_name():
    found = node({"weird": 7}, cpu="8", weird="1e99")
    assert found.pools == {"cpu": whole(8)}
    assert [(p.annotation, p.name) for p in found.problems] == [("status.allocatable", "weird"), (RESOURCES, "weird")]


def test_duplicate_device_ids_take_all_devices_of_the_node_out_and_nothing_else():
    cards = [{"id": "GPU-a", "resources": {"gpuSlot": 1}}, {"id": "GPU-a", "resources": {"gpuSlot": 1}}]
    found = node("gpuSlot/7: 1\nlic: 1", cards, cpu="8")
    assert found.devices == ()
    assert found.pools == {"cpu": whole(8), "lic": whole(1)}
    assert Fault.DUPLICATE_DEVICE in {problem.fault for problem in found.problems}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"resources": {}}, "id is missing"),
        ({"id": "GPU-b"}, "resources is missing"),
        ({"id": "a/b", "resources": {}}, "cannot be a device id"),
        ({"id": "GPU-b", "resources": {}, "memory": 1}, "'memory' is unknown; a device has class, health, id"),
        ({"id": "GPU-b", "resources": {}, "health": "sick"}, "health 'sick' is unknown; use Healthy, Unhealthy, Lost"),
        ({"id": "GPU-b", "resources": {}, "index": "first"}, "is no whole number"),
        ({"id": "GPU-b", "resources": {}, "index": 0}, "index 0 is taken"),
        ("GPU-b", "it is no map"),
    ],
)
def test_a_device_that_cannot_be_read_is_dropped_and_the_others_stay(entry, why):
    found = node(devices=[{"id": "GPU-a", "index": 0, "resources": {"gpuSlot": 1}}, entry])
    assert [device.id for device in found.devices] == ["GPU-a"]
    (problem,) = found.problems
    assert (problem.annotation, problem.name) == (DEVICES, "[1]")
    assert why in problem.message


def test_a_pool_of_a_device_that_cannot_be_read_is_dropped_and_its_other_pools_stay():
    found = node(devices=[{"id": "GPU-a", "resources": {"gpuSlot": 1, "gpuMemoryMB": "lots"}}])
    assert found.devices[0].pools == {"gpuSlot": whole(1)}
    assert problems(found)[0].startswith("gputask.dev/devices: GPU-a.gpuMemoryMB: 'lots' is not an amount")


@pytest.mark.parametrize("devices", ["{broken", [{"id": "GPU-a", "index": 0}], "text"])
def test_a_card_is_never_offered_twice_while_a_declared_device_is_not_understood(devices):
    found = node("gpuSlot/0: 1\nlic: 1", devices)
    assert found.devices == ()
    assert found.pools == {"lic": whole(1)}
    assert "which device 0 is cannot be told" in problems(found)[-1]


def test_a_pool_that_a_device_has_already_is_not_added_again():
    found = node("gpuSlot/0: 5", [{"id": "GPU-a", "index": 0, "resources": {"gpuSlot": 1}}])
    assert found.devices[0].pools == {"gpuSlot": whole(1)}
    assert "device GPU-a has gpuSlot already" in problems(found)[0]


def test_our_devices_and_a_device_plugin_are_never_offered_together():
    cards = [{"id": "GPU-a", "resources": {"gpuSlot": 1}}]
    found = node("lic: 1", cards, **{"nvidia.com/gpu": "4"})
    assert found.devices == ()
    assert found.pools == {"nvidia.com/gpu": whole(4), "lic": whole(1)}
    assert [problem.fault for problem in found.problems] == [Fault.DEVICE_PLUGIN]
    assert node(devices=cards, **{"nvidia.com/gpu": "0"}).devices != ()


def test_a_problem_repeats_at_most_80_characters_of_somebodys_text():
    found = node(
        {"lic": "x" * 5000, "n" * 5000: 1, "lab": ["y z" * 900]}, devices=[{"id": "z" * 5000, "resources": {}}]
    )
    assert len(found.problems) == 4
    assert all(len(str(problem)) < 350 for problem in found.problems)


texts = st.text(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "index", "resources", "gpuSlot/0", "gpuSlot", "lic", "cpu"]), children)
    ),
    max_leaves=12,
).map(json.dumps)


@given(texts, texts, st.dictionaries(st.sampled_from(["cpu", "memory", "lic", "nvidia.com/gpu"]), st.text(max_size=8)))
def test_nothing_that_stands_in_an_annotation_ever_raises(resources, devices, allocatable):
    found = understand({RESOURCES: resources, DEVICES: devices}, allocatable)
    assert found == understand({DEVICES: devices, RESOURCES: resources}, allocatable)
    assert len({device.id for device in found.devices}) == len(found.devices)
