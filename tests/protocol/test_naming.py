"""Canonical names lose nothing: the states are the same as with every superseded resourceVersion kept apart."""

from protocol.model.explore import explore
from protocol.model.naming import canonical
from protocol.model.rules import Bounds
from protocol.model.state import GONE, Entry, GpuNode, Pod, PutNode, State, Task

UID = (0, 1, 0)


def test_superseded_resource_versions_may_share_a_name():
    bounds = Bounds(tasks=1, nodes=1, attempts=2)
    coarse, exact = explore(bounds), explore(bounds, exact=True)
    assert exact.broken is None
    assert exact.states > coarse.states
    assert {canonical(state) for state in exact.reached} == set(coarse.reached)


def test_the_current_version_is_one_and_older_ones_are_nought():
    nodes = (GpuNode(rebuilt=True, entries=(Entry(UID, 4),)), GpuNode(rebuilt=True, entries=(Entry(UID, 7),)))
    named = canonical(State((Task(),), (Pod(UID, 0, rv=7),), nodes))
    assert [node.entries[0].rv for node in named.nodes] == [0, 1]
    assert named.pods[0].rv == 1


def test_a_write_under_a_superseded_version_is_dropped_unless_nobody_compares():
    late = PutNode("5", 0, 1, GpuNode(rebuilt=True))
    state = State((Task(),), (), (GpuNode(rv=2, rebuilt=True),), (late,))
    assert canonical(state).writes == ()
    assert canonical(state, unchecked=(PutNode,)).writes == (late,)


def test_a_gone_uid_is_remembered_only_while_something_names_it():
    gone = Pod(UID, 0, GONE)
    named = State((Task(),), (gone,), (GpuNode(rebuilt=True, entries=(Entry(UID, 0),)),))
    assert canonical(named).pods == (gone,)
    assert canonical(named._replace(nodes=(GpuNode(),))).pods == ()
