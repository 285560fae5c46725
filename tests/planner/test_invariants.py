"""The checker of plans finds what it is there to find, and names the rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputask.planner.invariants import InvariantError, check_invariants
from gputask.planner.model import Action, Decision, Plan, Snapshot, Waiting
from gputask.planner.plan import plan
from gputask.resources.pools import Allocation
from support.cluster import Cluster, node, task


def case() -> tuple[Snapshot, Plan]:
    """One card with two slots, cpu for one; the first task starts, the second holds."""
    cluster = Cluster(node("n").has(cpu=4).card("0", slot=["a", "b"], mem=10), node("m").has(cpu=1))
    cluster.submit(*(task(name).wants(cpu=3, devices=(1, {"slot": 1, "mem": 4})) for name in ("one", "two")))
    snapshot = cluster.snapshot()
    return snapshot, plan(snapshot, 0.0)


def broken(decided: Plan, **changes: object) -> Plan:
    """The plan with its first decision changed."""
    first, *others = decided.decisions
    return replace(decided, decisions=(replace(first, **changes), *others))  # type: ignore[arg-type]


def starts(decided: Plan) -> Plan:
    """The plan with the hold started."""
    one, two = decided.decisions
    waiting = tuple(w for w in decided.waiting if w.task.uid != two.task.uid)
    return replace(decided, decisions=(one, replace(two, action=Action.PLACE)), waiting=waiting)


def other_labels(decision: Decision, **labels: tuple[str, ...]) -> Allocation:
    renamed = {key.replace("_", "/"): value for key, value in labels.items()}
    return replace(decision.allocation, labels=renamed)


def test_a_right_plan_passes() -> None:
    check_invariants(*case())


@pytest.mark.parametrize(
    ("rule", "breaks"),
    [
        ("R1 nothing is booked twice", starts),
        (
            "R1 exclusions are obeyed",
            lambda p: broken(p, task=replace(p.decisions[0].task, excluded_nodes=frozenset("n"))),
        ),
        ("R2 index and name", lambda p: broken(p, variant="other")),
        ("R2 the allocation", lambda p: broken(p, allocation=Allocation({"cpu": 1}))),
        ("R3 a label for each whole", lambda p: broken(p, allocation=other_labels(p.decisions[0], slot_0=()))),
        ("R1 nothing is booked twice", lambda p: broken(p, allocation=other_labels(p.decisions[0], slot_0=("z",)))),
        ("R5 one hold", lambda p: replace(p, decisions=(*p.decisions, p.decisions[-1]))),
        ("R5 only waiting", lambda p: replace(p, waiting=())),
        ("R12 every task", lambda p: replace(p, decisions=p.decisions[1:])),
        ("R4 only feasible", lambda p: replace(p, waiting=(replace(p.waiting[0], feasible=False),))),
        ("R1 decisions come in rank order", lambda p: replace(p, decisions=p.decisions[::-1])),
    ],
)
def test_a_broken_plan_names_the_rule(rule: str, breaks) -> None:  # type: ignore[no-untyped-def]
    snapshot, decided = case()
    with pytest.raises(InvariantError, match=f"^{rule}"):
        check_invariants(snapshot, breaks(decided))


def test_an_inversion_is_found() -> None:
    cluster = Cluster(node("n").has(c=2))
    cluster.submit(task("high", 9).wants(c=2), task("low").wants(c=1))
    snapshot = cluster.snapshot()
    high, low = snapshot.tasks
    placed = Decision(Action.PLACE, low, "n", "v0", 0, Allocation(dict(low.request.variants[0].amounts)))
    with pytest.raises(InvariantError, match=r"^R1 no inversion: ns/high fits on n, and ns/low starts there"):
        check_invariants(snapshot, Plan((placed,), (Waiting(high, True, ({},), ""),), ()))
