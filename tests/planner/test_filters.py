"""Which nodes a task accepts: taints, cordon, Ready, selectors, affinity."""

from __future__ import annotations

import pytest

from gputask.planner.filters import refusal
from gputask.planner.model import NodeConstraints, Requirement, SelectorTerm, Toleration
from support.cluster import node

ANYONE = NodeConstraints()


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("team", "Equal", "x", "NoSchedule"), True),
        (Toleration("team", "Equal", "x"), True),
        (Toleration("team", "Equal", "y"), False),
        (Toleration("team", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("team", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists"), False),
    ],
)
def test_a_taint_needs_a_matching_toleration(toleration: Toleration, tolerated: bool) -> None:
    tainted = node("n").tainted("team", value="x").build()
    assert refusal(tainted, ANYONE) == "taint team=x:NoSchedule is not tolerated"
    assert (refusal(tainted, NodeConstraints(tolerations=(toleration,))) is None) is tolerated


def test_a_preference_repels_nobody() -> None:
    assert refusal(node("n").tainted("team", effect="PreferNoSchedule").build(), ANYONE) is None


def test_a_cordon_is_tolerated_like_its_taint() -> None:
    cordoned = node("n").with_(unschedulable=True).build()
    assert refusal(cordoned, ANYONE) == "the node is cordoned (unschedulable)"
    drainer = NodeConstraints(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    assert refusal(cordoned, drainer) is None


def test_a_declared_reason_comes_first() -> None:
    broken = node("n").with_(out="Overbooked: 3 of 2 slots", ready=False).build()
    assert refusal(broken, ANYONE) == "Overbooked: 3 of 2 slots"


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        (Requirement("zone", "In", ("a", "b")), True),
        (Requirement("zone", "NotIn", ("a",)), False),
        (Requirement("absent", "NotIn", ("a",)), True),
        (Requirement("zone", "Exists"), True),
        (Requirement("absent", "Exists"), False),
        (Requirement("absent", "DoesNotExist"), True),
        (Requirement("cards", "Gt", ("3",)), True),
        (Requirement("cards", "Gt", ("4",)), False),
        (Requirement("cards", "Lt", ("5",)), True),
        (Requirement("zone", "Gt", ("3",)), False),
        (Requirement("absent", "Lt", ("5",)), False),
        (Requirement("cards", "Gt", ("many",)), False),
        (Requirement("cards", "Fancy", ("4",)), False),
    ],
)
def test_affinity_expressions(requirement: Requirement, matches: bool) -> None:
    labelled = node("n").with_(labels={"zone": "a", "cards": "4"}).build()
    constraints = NodeConstraints(affinity=(SelectorTerm((requirement,)),))
    assert (refusal(labelled, constraints) is None) is matches


def test_affinity_terms_are_alternatives_and_their_expressions_are_not() -> None:
    labelled = node("n").with_(labels={"zone": "a"}).build()
    yes, no = Requirement("zone", "In", ("a",)), Requirement("zone", "In", ("b",))
    assert refusal(labelled, NodeConstraints(affinity=(SelectorTerm((no,)), SelectorTerm((yes,))))) is None
    assert refusal(labelled, NodeConstraints(affinity=(SelectorTerm((no, yes)),))) is not None
    assert refusal(labelled, NodeConstraints(affinity=(SelectorTerm(),))) is not None
    assert refusal(labelled, NodeConstraints(affinity=())) is not None


def test_affinity_fields_match_the_name_of_the_node() -> None:
    def named(name: str) -> NodeConstraints:
        return NodeConstraints(affinity=(SelectorTerm(fields=(Requirement("metadata.name", "In", (name,)),)),))

    assert refusal(node("n1").build(), named("n1")) is None
    assert refusal(node("n1").build(), named("n2")) is not None


def test_a_node_selector_names_the_label_that_differs() -> None:
    labelled = node("n").with_(labels={"disk": "hdd"}).build()
    assert refusal(labelled, NodeConstraints((("disk", "hdd"),))) is None
    assert refusal(labelled, NodeConstraints((("disk", "ssd"),))) == "nodeSelector asks label disk=ssd, which is 'hdd'"
    assert refusal(labelled, NodeConstraints((("rack", "7"),))) == "nodeSelector asks label rack=7, which is absent"
