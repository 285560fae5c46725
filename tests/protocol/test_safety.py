"""No state that the writers can reach breaks a promise, and the states are not vacuous."""

import pytest

from protocol.documented import rows
from protocol.model.configurations import LONG, QUICK
from protocol.model.explore import explore
from protocol.model.recovery import recover
from protocol.model.state import (
    CLAIMED,
    DEAD,
    FINISHED,
    GONE,
    RUNNING,
    STOPPING,
    UNBOUND,
    Pod,
    PutNode,
    PutTask,
    State,
    pod_of,
)
from protocol.model.trace import lines


@pytest.mark.parametrize("name", QUICK)
def test_no_reachable_state_breaks_a_promise(explored, name):
    result = explored(name)
    assert result.broken is None, "\n".join(lines(result.trace, result.broken))
    assert rows()[name][1:] == [f"{result.states:,}", f"{result.transitions:,}"]


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_no_state_within_deeper_bounds_breaks_a_promise_or_stays_stuck(name):
    result = explore(LONG[name])
    print(f"\n{name}: {result.states:,} states, {result.transitions:,} transitions")
    assert result.broken is None, "\n".join(lines(result.trace, result.broken))
    known_good: set[State] = set()
    assert {recover(state, known_good) for state in result.reached} == {None}
    assert rows()[name][1:] == [f"{result.states:,}", f"{result.transitions:,}"]


def aims_without_entry(state: State, pod: Pod) -> bool:
    """A Bind may be under way to a node that admits work, and no entry says so."""
    return any(
        pod.aimed >> number & 1 and node.rebuilt and not any(e.uid == pod.uid and e.rv == pod.rv for e in node.entries)
        for number, node in enumerate(state.nodes)
    )


@pytest.mark.parametrize("name", QUICK)
def test_every_bind_that_may_still_land_has_its_entry(explored, name):
    """The lemma on which the ledger rests: what a late Bind could take is booked until it is fenced."""
    assert not any(
        aims_without_entry(state, pod) for state in explored(name).reached for pod in state.pods if pod.phase == UNBOUND
    )


@pytest.mark.parametrize("name", [name for name in QUICK if not QUICK[name].extender])
def test_at_most_one_living_pod_of_a_task_was_ever_claimed_and_it_is_the_claimed_one(explored, name):
    """The lemma on which the claim rests: it moves on only from a dead UID, so an old claim names a dead one."""
    for state in explored(name).reached:
        for number, task in enumerate(state.tasks):
            living = [p.uid for p in state.pods if p.uid[0] == number and p.claimed and p.phase not in DEAD]
            assert living in ([], [task.uid]), state


MILESTONES = {
    "both tasks finish": lambda s: [task.phase for task in s.tasks] == [FINISHED, FINISHED],
    "one task finishes while another runs": lambda s: (
        any(task.phase == FINISHED for task in s.tasks) and any(pod.phase == RUNNING for pod in s.pods)
    ),
    "a confirmed entry": lambda s: any(entry.bound for node in s.nodes for entry in node.entries),
    "an entry whose pod was written since": lambda s: any(
        entry.rv != pod_of(s, entry.uid).rv and pod_of(s, entry.uid).phase == UNBOUND
        for node in s.nodes
        for entry in node.entries
    ),
    "a Bind under way while the GpuNode is lost": lambda s: any(
        pod.aimed and not s.nodes[0].rebuilt for pod in s.pods if pod.phase == UNBOUND
    ),
    "a claim under way whose pod is gone": lambda s: any(
        isinstance(w, PutTask) and w.line == "3" and pod_of(s, w.body.uid).phase == GONE for w in s.writes
    ),
    "two reservations of one device under way": lambda s: (
        [w.line for w in s.writes if isinstance(w, PutNode)] == ["5"] * 2
    ),
    "a terminating pod still booked": lambda s: any(pod.phase == STOPPING for pod in s.pods) and s.nodes[0].rebuilt,
    "a claimed pod that the user wants stopped": lambda s: any(t.phase == CLAIMED and t.stop for t in s.tasks),
}


@pytest.mark.parametrize("milestone", MILESTONES)
def test_the_exploration_of_two_tasks_reaches(explored, milestone):
    assert any(MILESTONES[milestone](state) for state in explored("two-tasks").reached)
