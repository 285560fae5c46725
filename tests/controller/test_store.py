"""The store: what it keeps, what it refuses to believe, and whom it wakes."""

from __future__ import annotations

from gputask.controller.store import Store
from support.controller import pod, task


def test_a_change_wakes_every_consumer_and_names_what_changed() -> None:
    store = Store()
    first, second = store.subscribe(), store.subscribe()
    first.take(10)
    store.put_task(task("a", uid="u1"))
    assert first.wake.is_set()
    assert first.take(10) == (["u1"], [])
    assert not first.wake.is_set()
    assert second.take(10) == (["u1"], [])


def test_taking_a_part_leaves_the_consumer_awake() -> None:
    store = Store()
    dirty = store.subscribe()
    for number in range(3):
        store.put_task(task(f"t{number}", uid=f"u{number}"))
    dirty.take(2)
    assert dirty.wake.is_set()


def test_a_version_that_was_overtaken_by_our_own_write_is_not_taken_in_again() -> None:
    store = Store()
    old = task("a", uid="u1", version="1")
    new = task("a", uid="u1", version="2", status={"phase": "Running"})
    store.put_task(old)
    store.put_task(new)
    store.put_task(old)  # the watch brings it late
    assert store.tasks["u1"] == new


def test_a_deleted_object_does_not_come_back_with_an_older_list() -> None:
    store = Store()
    store.put_task(task("a", uid="u1", version="1"))
    store.drop_task(task("a", uid="u1", version="2"))
    store.put_task(task("a", uid="u1", version="1"))
    assert not store.tasks


def test_a_name_taken_anew_drops_the_task_before_it() -> None:
    store = Store()
    store.put_task(task("a", uid="u1"))
    store.put_task(task("a", uid="u2"))
    assert list(store.tasks) == ["u2"]


def test_a_pod_is_found_by_its_node_and_by_the_task_that_controls_it() -> None:
    store = Store()
    store.put_pod(pod("p", uid="p1", owner="u1", version="1"))
    assert [p["metadata"]["uid"] for p in store.pods_of("u1")] == ["p1"]
    assert not list(store.pods_on("n1"))
    store.put_pod(pod("p", uid="p1", owner="u1", node="n1", version="2"))
    assert [p["metadata"]["uid"] for p in store.pods_on("n1")] == ["p1"]
    store.drop_pod(pod("p", uid="p1", owner="u1", node="n1", version="3"))
    assert not list(store.pods_on("n1"))
    assert not list(store.task_uids())


def test_a_label_alone_makes_no_pod_ours() -> None:
    store = Store()
    forged = pod("p", uid="p1")
    forged["metadata"]["labels"] = {"gputask.dev/task-uid": "u1"}
    store.put_pod(forged)
    assert not list(store.pods_of("u1"))
