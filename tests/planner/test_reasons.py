"""R12: every waiting task says why, as counts, as one line and as the full matrix."""

from __future__ import annotations

import pytest

from gputask.planner.explain import explain
from gputask.planner.model import Cause, NodeConstraints, Reason
from support.cluster import Cluster, NodeBuilder, amount, many, node, task


def matrix(cluster: Cluster, name: str) -> list[Reason]:
    return explain(cluster.snapshot(), cluster.now, f"ns/{name}")


def counts(cluster: Cluster, name: str) -> tuple[dict[Cause, int], ...]:
    waiting = next(w for w in cluster.plan.waiting if w.task.key == f"ns/{name}")
    return tuple(dict(by_cause) for by_cause in waiting.counts)


def test_short_says_by_how_much_and_who_has_it() -> None:
    built = node("n").has(c=10).runs("ns/r", {"c": 4}).lends("pod:x/y", {"c": 1})
    cluster = Cluster(built)
    cluster.submit(task("t").wants(c=7)).step()
    (reason,) = matrix(cluster, "t")
    assert (reason.cause, reason.node, reason.variant, reason.variant_index) == (Cause.SHORT, "n", "v0", 0)
    assert (reason.resource, reason.device) == ("c", None)
    assert (reason.asked, reason.free, reason.capacity, reason.short) == tuple(map(amount, (7, 5, 10, 2)))
    assert reason.held_by == ("ns/r", "pod:x/y")
    assert reason.message == "n: asks 7 c, 5 free of 10"


def test_a_shortage_over_several_devices_gives_one_reason_for_each() -> None:
    built = node("n").card("0", mem=10).card("1", mem=10)
    cluster = Cluster(built.runs("ns/a", {"mem/0": 7}).runs("ns/b", {"mem/1": 6}))
    cluster.submit(task("t").wants(devices=(1, {"mem": 5}))).step()
    found = [(r.cause, r.resource, r.device, r.short, r.held_by) for r in matrix(cluster, "t")]
    assert found == [
        (Cause.SHORT, "mem/0", "0", amount(2), ("ns/a",)),
        (Cause.SHORT, "mem/1", "1", amount(1), ("ns/b",)),
    ]
    assert cluster.reason("t") == "n: asks 5 mem/1, 4 free of 10"


def _held(low: int) -> Cluster:
    cluster = Cluster(node("n").has(c=10).runs("ns/r", {"c": 4}))
    return cluster.submit(task("H", 9).wants(c=8), task("L").wants(c=low))


def test_gap_says_what_the_hold_leaves() -> None:
    cluster = _held(low=3)
    cluster.step()
    assert counts(cluster, "L") == ({Cause.GAP: 1},)
    (reason,) = matrix(cluster, "L")
    assert (reason.cause, reason.resource, reason.held_by) == (Cause.GAP, "c", ("ns/H",))
    assert (reason.asked, reason.free, reason.short) == tuple(map(amount, (3, 2, 1)))


def test_held_says_that_a_hold_leaves_nothing() -> None:
    cluster = _held(low=1)
    cluster.nodes["n"] = node("n").has(c=10).runs("ns/r", {"c": 2}).runs("ns/s", {"c": 1}).build()
    cluster.step()
    assert counts(cluster, "L") == ({Cause.HELD: 1},)
    (reason,) = matrix(cluster, "L")
    assert (reason.cause, reason.free, reason.held_by) == (Cause.HELD, 0, ("ns/H",))


def test_a_device_with_a_hold_is_named() -> None:
    built = node("n").has(c=4).runs("ns/r", {"c": 3}).card("0", mem=10)
    cluster = Cluster(built)
    cluster.submit(task("H", 9).wants(c=2, devices=(1, {"mem": 10})), task("L").wants(devices=(1, {"mem": 1}))).step()
    assert counts(cluster, "L") == ({Cause.HELD: 1},)
    (reason,) = matrix(cluster, "L")
    assert (reason.cause, reason.resource, reason.device, reason.held_by) == (Cause.HELD, "mem/0", "0", ("ns/H",))


def _causes() -> list[tuple[NodeBuilder, Cause, str]]:
    return [
        (node("n").has(c=9).with_(ready=False), Cause.NODE_OUT, "n: the node is not Ready"),
        (node("n").has(c=9).with_(lives_until=5.0), Cause.NODE_LIFE, "n: asks 10 s, and the node lives 5 s"),
        (node("n").has(c=None), Cause.UNKNOWN, "n: how much c there is is not known"),
        (node("n").has(m=1), Cause.SHORT, "n: asks 2 c, 0 free of 0"),
    ]


@pytest.mark.parametrize(("built", "cause", "message"), _causes(), ids=[c.value for _, c, _ in _causes()])
def test_each_cause_is_counted_and_explained_alike(built: NodeBuilder, cause: Cause, message: str) -> None:
    cluster = Cluster(built)
    cluster.submit(task("t").wants(c=2, min_time=10)).step()
    assert counts(cluster, "t") == ({cause: 1},)
    assert [(r.cause, r.message) for r in matrix(cluster, "t")] == [(cause, message)]
    assert not cluster.feasible("t")


def test_what_the_binding_cannot_honour_is_unsupported_everywhere() -> None:
    cluster = Cluster(node("n").has(c=9), node("m").has(c=9))
    cluster.submit(task("t").wants(c=1).or_else(c=2).with_(unsupported=("spec.volumes: use Pinned",))).step()
    assert counts(cluster, "t") == ({Cause.UNSUPPORTED: 2}, {Cause.UNSUPPORTED: 2})
    assert [(r.cause, r.message) for r in matrix(cluster, "t")] == [(Cause.UNSUPPORTED, "spec.volumes: use Pinned")]
    assert cluster.reason("t") == "spec.volumes: use Pinned"


def test_a_node_that_refused_the_task_is_out_for_now() -> None:
    cluster = Cluster(node("n").has(c=9), node("m").has(c=1))
    cluster.submit(task("t").wants(c=2).with_(excluded_nodes=frozenset({"n"}))).step()
    assert counts(cluster, "t") == ({Cause.NODE_OUT: 1, Cause.SHORT: 1},)
    assert [(r.node, r.cause) for r in matrix(cluster, "t")] == [("m", Cause.SHORT), ("n", Cause.NODE_OUT)]


def test_a_pausing_task_says_nothing_wrong_about_its_class() -> None:
    cluster = Cluster(node("n").has(c=9), node("m").has(c=1))
    cluster.submit(task("pauses", 2).wants(c=5).with_(excluded_nodes=frozenset({"n"})))
    cluster.submit(*(t.wants(c=5) for t in many(2, "t"))).step()
    assert counts(cluster, "pauses") == ({Cause.NODE_OUT: 1, Cause.SHORT: 1},)
    assert cluster.reason("pauses") == "pauses on every node that is large enough, after refusals there"
    assert cluster.where("t0") == "n"
    assert counts(cluster, "t1") == ({Cause.SHORT: 2},)
    assert cluster.reason("t1") == "n: asks 5 c, 4 free of 9"


def test_a_fraction_without_a_label_is_short_of_the_best_label() -> None:
    built = node("n").has(p=["a", "b"])
    built.runs("ns/x", {"p": "0.5"}, labels={"p": ("a",)}).runs("ns/y", {"p": "0.75"}, labels={"p": ("b",)})
    cluster = Cluster(built)
    cluster.submit(task("t").wants(p="0.75")).step()
    (reason,) = matrix(cluster, "t")
    assert (reason.cause, reason.free, reason.short) == (Cause.SHORT, amount("0.5"), amount("0.25"))


def test_written_out_cards_are_explained_one_by_one() -> None:
    cluster = Cluster(node("n").card("0", slot=["a"]).runs("ns/r", {"slot/0": 1}, labels={"slot/0": ("a",)}))
    cluster.submit(task("t").on_any_card(2, {}, slot=1)).step()
    found = [(r.variant_index, r.resource, r.device, r.capacity) for r in matrix(cluster, "t")]
    assert found == [(0, "slot/0", "0", amount(1)), (1, "slot/1", None, 0)]
    assert counts(cluster, "t") == ({Cause.SHORT: 1}, {Cause.SHORT: 1})


def test_a_node_where_it_starts_has_no_reason() -> None:
    cluster = Cluster(node("n").has(c=1), node("m").has(c=2))
    cluster.submit(task("t").wants(c=2))
    assert [r.node for r in matrix(cluster, "t")] == ["n"]


def test_explaining_an_unknown_task_is_an_error_in_one_line() -> None:
    with pytest.raises(LookupError, match="no waiting task 'ns/nobody'"):
        matrix(Cluster(node("n")), "nobody")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            {"devices": (1, {"gpuMemoryMB": 30000})},
            "asks 30000 gpuMemoryMB on one device; the largest is 24000 on gpu-1",
        ),
        ({"c": 9}, "asks 9 c; the largest is 8 on cpu-1"),
        ({"lic": 1}, "asks 1 lic, and no node has any"),
        ({"devices": (3, {"slot": 1})}, "asks 3 such devices; the most on one node is 2 on gpu-1"),
        ({"devices": (1, {"tpu": 1})}, "asks 1 tpu on one device, and no node has any"),
        ({"c": 8, "devices": (1, {"slot": 1})}, "no node has all of c, slot together"),
    ],
)
def test_an_infeasible_task_names_the_resource_and_the_largest_value(wanted: dict, message: str) -> None:
    gpu = node("gpu-1").has(c=4).card("0", gpuMemoryMB=24000, slot=["a"]).card("1", gpuMemoryMB=8000, slot=["b"])
    cluster = Cluster(gpu, node("cpu-1").has(c=8))
    devices = wanted.pop("devices", None)
    cluster.submit(task("t").wants(wanted, devices=devices)).step()
    assert not cluster.feasible("t")
    assert cluster.reason("t") == message


def test_a_task_whose_selector_matches_nothing_says_so() -> None:
    cluster = Cluster(node("n").has(c=1))
    cluster.submit(task("t").only_where(NodeConstraints((("disk", "ssd"),))).wants(c=1)).step()
    assert cluster.reason("t") == "no usable node among 1; n: nodeSelector asks label disk=ssd, which is absent"


def test_counts_say_for_each_node_what_the_matrix_says() -> None:
    cluster = Cluster(
        node("a").has(c=8).runs("ns/r", {"c": 5}),
        node("b").has(c=8, m=1).runs("ns/s", {"c": 5}),
        node("d").has(c=2),
        node("e").has(c=8).with_(unschedulable=True),
    )
    cluster.submit(*(t.wants(c=6) for t in many(2, "H", 9)), task("L").wants(c=3)).step()
    by_cause: dict[Cause, int] = {}
    for _, cause in {(r.node, r.cause) for r in matrix(cluster, "L")}:
        by_cause[cause] = by_cause.get(cause, 0) + 1
    assert counts(cluster, "L") == (by_cause,)
