"""The join instants stay, the names move."""

import pytest

from gputask.simulate.join_order import reorder
from gputask.simulate.scenario import NodeVersion
from support.scenarios import node


def at(t: int, name: str, cpu: int = 1) -> NodeVersion:
    return NodeVersion(node(name, cpu=cpu).node, at=t)


NODES = [at(200, "c"), at(0, "a"), at(100, "b")]


def joins(order: str, seed: int = 0) -> list[tuple[int, str]]:
    return [(version.at, version.node.name) for version in reorder(NODES, order, seed=seed)]


def test_given_is_the_order_of_the_instants():
    assert joins("given") == [(0, "a"), (100, "b"), (200, "c")]


def test_reverse():
    assert joins("reverse") == [(0, "c"), (100, "b"), (200, "a")]


def test_by_name():
    assert joins("b, c,a") == [(0, "b"), (100, "c"), (200, "a")]


def test_shuffle_is_a_function_of_its_seed():
    assert {tuple(joins("shuffle", seed)) for seed in range(50)} == {
        tuple(zip((0, 100, 200), names, strict=True)) for names in ("abc", "acb", "bac", "bca", "cab", "cba")
    }
    assert joins("shuffle", 7) == joins("shuffle", 7)


@pytest.mark.parametrize("order", ["a,b", "a,b,c,d", "a,a,b", "backwards", ""])
def test_what_is_no_order_of_the_nodes_is_one_line(order):
    with pytest.raises(ValueError, match="write given, reverse, shuffle or a,b,c"):
        joins(order)


def test_later_versions_of_a_node_keep_their_instants_and_overtaken_ones_are_not_seen():
    versions = [at(0, "a", 1), at(50, "a", 2), at(300, "a", 3), at(100, "b")]
    moved = reorder(versions, "reverse")
    assert [(v.at, v.node.name, v.node.resources.pools["cpu"].capacity // 10_000) for v in moved] == [
        (0, "b", 1),
        (100, "a", 2),
        (300, "a", 3),
    ]


def test_a_node_that_would_be_gone_when_it_joins_never_comes():
    versions = [NodeVersion(node("a", cpu=1).node, at=0, until=50), at(100, "b")]
    assert [(v.at, v.node.name) for v in reorder(versions, "reverse")] == [(0, "b")]
    assert [(v.at, v.node.name) for v in reorder(versions, "given")] == [(0, "a"), (100, "b")]
