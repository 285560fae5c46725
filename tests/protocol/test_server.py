"""The modelled API server refuses what the real one refuses."""

import pytest

from protocol.model import server
from protocol.model.state import (
    CLAIMED,
    FINISHED,
    GONE,
    RUNNING,
    STOPPING,
    SUCCEEDED,
    Entry,
    GpuNode,
    Pod,
    PutNode,
    PutTask,
    State,
    Task,
    pod_of,
)

UID = (0, 1, 0)


def cluster(**pod_fields) -> State:
    return State((Task(),), (Pod(UID, node=0, **pod_fields),), (GpuNode(rebuilt=True),))


def test_bind_takes_exactly_the_current_resource_version():
    assert pod_of(server.bind(cluster(rv=3), UID, 3, node=0), UID).phase == RUNNING
    assert server.bind(cluster(rv=3), UID, 2, node=0) is None


@pytest.mark.parametrize("phase", [RUNNING, STOPPING, SUCCEEDED, GONE])
def test_bind_refuses_a_pod_that_is_bound_terminating_or_gone(phase):
    assert server.bind(cluster(rv=3, phase=phase), UID, 3, node=0) is None


def test_bind_refuses_another_uid_of_the_same_name():
    assert server.bind(cluster(), (0, 1, 1), 1, node=0) is None


def test_a_name_in_use_already_exists_and_a_free_one_gives_a_new_uid():
    assert server.create_pod(cluster(), 0, 1, node=0) is None
    again = server.create_pod(cluster(phase=GONE), 0, 1, node=0)
    assert [pod.uid for pod in again.pods] == [(0, 1, 0), (0, 1, 1)]


def test_any_write_of_a_pod_ends_the_binds_under_way():
    aimed = cluster(aimed=1)
    assert pod_of(server.patch_pod(aimed, UID), UID).aimed == 0
    assert pod_of(server.patch_pod(aimed, UID), UID).rv == 2


def test_an_unbound_pod_goes_at_once_and_a_bound_one_terminates_first():
    assert pod_of(server.delete_pod(cluster(), UID), UID).phase == GONE
    stopping = server.delete_pod(cluster(phase=RUNNING), UID)
    assert pod_of(stopping, UID).phase == STOPPING
    assert pod_of(server.end_pod(stopping, UID), UID).phase == GONE


def test_the_ledger_is_written_under_its_version_only():
    entries = (Entry(UID, 1),)
    put = PutNode("5", 0, 1, GpuNode(rebuilt=True, entries=entries))
    written = server.put_node(cluster(), put)
    assert written.nodes[0].entries == entries
    assert written.pods[0].aimed == 1
    assert server.put_node(written, put) is None
    assert server.put_node(server.lose_node(cluster(), 0), put) is None


def test_an_entry_with_an_old_resource_version_lets_no_bind_get_under_way():
    put = PutNode("5", 0, 1, GpuNode(rebuilt=True, entries=(Entry(UID, 1),)))
    assert server.put_node(cluster(rv=2), put).pods[0].aimed == 0


def test_a_claim_is_written_under_its_version_only_and_a_users_wish_outdates_it():
    put = PutTask("3", 0, 1, Task(attempt=1, uid=UID, phase=CLAIMED))
    claimed = server.put_task(cluster(), put)
    assert claimed.tasks[0].uid == UID
    assert claimed.pods[0].claimed
    assert server.put_task(claimed, put) is None
    assert server.put_task(server.wish_of_user(cluster(), 0, stop=True), put) is None


def test_a_finished_task_takes_no_more_wishes():
    finished = cluster()._replace(tasks=(Task(phase=FINISHED),))
    assert server.wish_of_user(finished, 0, stop=True) is None
