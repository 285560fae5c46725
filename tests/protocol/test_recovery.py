"""From every reachable state a fresh leader, alone and with fresh reads, frees everything and ends every task."""

from collections import Counter

import pytest

from protocol.model.configurations import QUICK
from protocol.model.naming import canonical
from protocol.model.recovery import ROWS, confirm, next_action, recover
from protocol.model.state import State

PLAN = "plan: create"


@pytest.mark.parametrize("name", QUICK)
def test_from_every_state_a_fresh_leader_frees_and_ends_everything(explored, name):
    known_good: set[State] = set()
    outcomes = Counter(recover(state, known_good) for state in explored(name).reached)
    assert set(outcomes) == {None}
    print(f"\n{name}: {len(known_good):,} states of the cluster recover")


@pytest.mark.parametrize("name", QUICK)
def test_the_fresh_leader_does_nothing_that_the_explored_writers_could_not_do(explored, name):
    """So late writes of dead writers may land between its steps as well: those states have been explored."""
    reached = set(explored(name).reached)
    for state in explored(name).reached:
        action = next_action(state, ROWS)
        # A leader at work needs a write of its own, and plans without the bounds of the exploration.
        if len(state.writes) < QUICK[name].writes and action and action[0] != PLAN:
            assert canonical(action[1]) in reached, (action[0], state)


# To confirm only tells people and the planner what is so: nothing is stuck or unsafe without it.
@pytest.mark.parametrize("row", [row for row in ROWS if row is not confirm], ids=lambda row: row.__name__)
def test_no_other_row_of_the_recovery_table_can_be_left_out(explored, row):
    fewer = tuple(other for other in ROWS if other is not row)
    known_good: set[State] = set()
    assert any(recover(state, known_good, fewer) for state in explored("two-tasks").reached)


def test_every_row_of_the_recovery_table_is_taken_somewhere(explored):
    known_good: set[State] = set()
    for state in explored("two-tasks").reached:
        recover(state, known_good)
    taken = {action[0] for state in known_good if (action := next_action(state, ROWS))}
    assert taken == {
        "GpuNode not rebuilt: bump, list, book",
        "entry, pod gone, terminal or bound elsewhere: release",
        "entry of a pod not to be bound: fence and release",
        "entry InFlight, pod bound here: confirm",
        "claimed pod missing: record the end",
        "claimed pod terminal: record the end",
        "cancelled, claimed pod lives: delete",
        "entry, pod unbound, stored = live: bind",
        "entry, pod unbound, stored and live differ: renew",
        "claimed pod unbound, no entry: reserve",
        "claimed pod unbound, no entry, no room: delete",
        "unclaimed pod of the next attempt: claim",
        "any other unclaimed pod: delete",
        "cancelled without a live pod: record the end",
        PLAN,
        "(the kubelet ends a pod)",
    }
