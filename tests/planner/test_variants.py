"""R2 and R3: written-out cards are one option; where tasks go; implicit pools."""

from __future__ import annotations

from collections import Counter

import pytest

from gputask.planner.model import HOST_PORT, DeviceDemand, RequestClass, Variant
from gputask.planner.options import options_of
from gputask.resources.pools import Health
from support.cluster import Cluster, amounts, many, node, task


def variants(*asked: dict[str, int], devices: DeviceDemand | None = None) -> RequestClass:
    return RequestClass(tuple(Variant(f"v{i}", amounts(a), devices) for i, a in enumerate(asked)))


def spans(request: RequestClass, node_level: set[str] | None = None) -> list[tuple[int, int]]:
    """First variant and length of each option."""
    return [(option.first, len(option.names)) for option in options_of(request, frozenset(node_level or ()))]


def test_variants_equal_but_for_one_device_are_one_option() -> None:
    cards = [{"cpu": 4, f"slot/{i}": 1, f"mem/{i}": 20} for i in range(64)]
    assert spans(variants(*cards, {"cpu": 4})) == [(0, 64), (64, 1)]


def test_the_order_of_other_variants_stays() -> None:
    first, second, cpu = {"slot/0": 1}, {"slot/1": 1}, {"cpu": 1}
    assert spans(variants(first, cpu, second)) == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"slot/0": 1, "mem/0": 5}, {"slot/1": 1, "mem/1": 6}),
        ({"slot/0": 1, "mem/0": 5}, {"slot/1": 1, "mem/2": 5}),
        ({"slot/0": 1, "mem/0": 5}, {"slot/0": 1, "mem/1": 5}),
        ({"slot/0": 1}, {"slot/0": 1}),
        ({"slot/0": 1}, {"mem/1": 1}),
        ({"slot/0": 1}, {"slot/1": 1, "cpu": 1}),
        ({"slot": 1}, {"slot/1": 1}),
    ],
)
def test_what_differs_in_more_than_one_device_stays_apart(one: dict[str, int], other: dict[str, int]) -> None:
    assert spans(variants(one, other)) == [(0, 1), (1, 1)]


def test_a_slash_in_the_name_of_a_node_level_pool_is_no_device() -> None:
    request = variants({"runtime/aaa": 1}, {"runtime/bbb": 1})
    assert spans(request, {"runtime/aaa"}) == [(0, 1), (1, 1)]


def test_a_third_card_joins_the_first_two_and_a_repeated_one_does_not() -> None:
    assert spans(variants({"slot/0": 1}, {"slot/1": 1}, {"slot/2": 1}, {"slot/0": 1})) == [(0, 3), (3, 1)]


def test_two_cards_written_out_move_one_at_a_time() -> None:
    assert spans(variants({"slot/0": 1, "slot/1": 1}, {"slot/0": 1, "slot/2": 1})) == [(0, 2)]


def test_written_out_cards_behave_like_the_devices_request() -> None:
    def run(written_out: bool) -> list[tuple[str | None, tuple[str, ...]]]:
        nodes = [node(f"n{i}").has(cpu=9) for i in range(3)]
        for built in nodes[:2]:
            for card in range(3):
                built.card(str(card), slot=["a", "b"], mem=10 + 6 * card)
        cluster = Cluster(*nodes)
        for i, each in enumerate(many(14, "t")):
            asked = {"slot": 1, "mem": 2 + i % 5}
            each = each.on_any_card(3, {"cpu": 1}, **asked) if written_out else each.wants(cpu=1, devices=(1, asked))
            cluster.submit(each.or_else(cpu=2))
        cluster.step()
        return [
            (cluster.where(f"t{i}"), cluster.placed[f"ns/t{i}"].allocation.devices if cluster.where(f"t{i}") else ())
            for i in range(14)
        ]

    assert run(written_out=True) == run(written_out=False)


def test_the_variant_of_the_chosen_card_is_reported() -> None:
    cluster = Cluster(node("n").card("0", mem=4).card("1", mem=9).card("2", mem=6))
    cluster.submit(task("t").on_any_card(3, {}, mem=5)).step()
    decision = cluster.took("t")
    assert (decision.variant, decision.variant_index, decision.allocation.devices) == ("v2", 2, ("2",))


def test_a_written_out_card_is_found_by_id_before_index() -> None:
    cluster = Cluster(node("n").card("GPU-a", index=0, slot=["x"]).card("GPU-b", index=1, slot=["y"]))
    cluster.submit(task("by-id").wants({"slot/GPU-b": 1}), task("by-index").wants({"slot/0": 1})).step()
    assert cluster.took("by-id").allocation.devices == ("GPU-b",)
    assert cluster.took("by-index").allocation.devices == ("GPU-a",)
    assert cluster.took("by-index").allocation.amounts == dict(amounts({"slot/GPU-a": 1}))


def test_the_same_device_named_by_id_and_index_is_asked_for_both() -> None:
    cluster = Cluster(node("n").card("GPU-a", index=0, mem=10))
    cluster.submit(task("twice").wants({"mem/0": 6, "mem/GPU-a": 5}), task("fits").wants({"mem/0": 6, "mem/GPU-a": 4}))
    cluster.step()
    assert cluster.running() == ["fits"]


def test_only_healthy_devices_are_offered() -> None:
    built = node("n").card("0", slot=["a"], health=Health.UNHEALTHY).card("1", slot=["b"], health=Health.LOST)
    cluster = Cluster(built.card("2", slot=["c"]))
    cluster.submit(*(t.wants(devices=(1, {"slot": 1})) for t in many(2, "any")), task("named").wants({"slot/0": 1}))
    cluster.step()
    assert cluster.running() == ["any0"]
    assert cluster.took("any0").allocation.devices == ("2",)
    assert not cluster.feasible("named")


def test_several_devices_are_distinct() -> None:
    cluster = Cluster(node("n").card("0", mem=20).card("1", mem=9).card("2", mem=9))
    cluster.submit(task("two").wants(devices=(2, {"mem": 8})), task("big").wants(devices=(1, {"mem": 20}))).step()
    assert cluster.took("two").allocation.devices == ("1", "2")
    assert cluster.took("big").allocation.devices == ("0",)


def test_an_unknown_pool_admits_nothing_that_asks_for_it() -> None:
    cluster = Cluster(node("n").has(cpu=4).card("0", slot=["a"], mem=None))
    cluster.submit(task("mem").wants({"mem/0": 1}), task("slot").wants({"slot/0": 1})).step()
    assert cluster.running() == ["slot"]
    assert not cluster.feasible("mem")


def test_a_node_without_a_pod_limit_has_none() -> None:
    cluster = Cluster(node("free").has(cpu=50))
    cluster.submit(*(t.wants(cpu=1, pods=1) for t in many(30, "t"))).step()
    assert len(cluster.running()) == 30


def test_pods_are_counted_where_the_node_limits_them() -> None:
    cluster = Cluster(node("n").has(cpu=50, pods=3).lends("pod:kube-system/dns", {"pods": 1}))
    cluster.submit(*(t.wants(cpu=1, pods=1) for t in many(4, "t"))).step()
    assert len(cluster.running()) == 2


def test_a_host_port_is_taken_once_on_each_node() -> None:
    everywhere, address = {f"{HOST_PORT}TCP:8080": 1}, f"{HOST_PORT}TCP:8080:10.0.0.1"
    on_address = {f"{HOST_PORT}TCP:8080": "0.0001", address: 1}
    cluster = Cluster(node("n1").has(cpu=9), node("n2").has(cpu=9))
    cluster.submit(*(t.wants({**everywhere, "cpu": 1}) for t in many(3, "any")))
    cluster.step()
    assert sorted(Counter(cluster.where(name) for name in cluster.running()).items()) == [("n1", 1), ("n2", 1)]
    cluster.finish("any0")
    cluster.waiting.clear()
    cluster.submit(*(t.wants(on_address) for t in many(2, "address")), task("other").wants(everywhere)).step()
    assert cluster.running("address") == ["address0"]
    assert cluster.where("other") is None


def test_foreign_use_of_an_indexed_pool_takes_labels_that_ours_do_not_use() -> None:
    built = node("n").has(p=["1", "2", "10"]).lends("pod:ns/x", {"p": "1"}).runs("r", {"p": 1}, labels={"p": ("10",)})
    cluster = Cluster(built)
    cluster.submit(*(t.wants(p=1) for t in many(2, "t"))).step()
    assert cluster.took("t0").allocation.labels["p"] == ("1",)
    assert cluster.where("t1") is None


def test_a_cpu_task_avoids_card_nodes_and_then_fills_the_fullest() -> None:
    nodes = [
        node("a").has(cpu=8).card("0", slot=["x"]),
        node("b").has(cpu=8),
        node("c").has(cpu=8).runs("r", {"cpu": 2}),
    ]
    cluster = Cluster(*nodes)
    cluster.submit(*(t.wants(cpu=3) for t in many(5, "t"))).step()
    assert [cluster.where(f"t{i}") for i in range(5)] == ["c", "c", "b", "b", "a"]


def test_nodes_without_holds_come_first() -> None:
    cluster = Cluster(node("a").has(cpu=9).runs("r", {"cpu": 2}), node("b").has(cpu=7))
    cluster.submit(task("H", 9).wants(cpu=8), task("L").wants(cpu=1)).step()
    assert [h.node for h in cluster.holds] == ["a"]
    assert cluster.where("L") == "b"
