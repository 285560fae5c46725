"""Lists and watches: nothing is missed, nothing is told twice, and what is no longer kept is said to be gone."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from gputask.local.store import decode
from gputask.local.watching import Pace
from support.local import Direct, crd, eventually, node, pod, widget

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODS = "/api/v1/namespaces/default/pods"
WIDGETS = "/apis/example.dev/v1/namespaces/default/widgets"
COLORED = {"type": "object", "properties": {"color": {"type": "string"}}}


@pytest.fixture
def direct():
    return made()


def made(window: int = 10_000) -> Direct:
    server = Direct(window=window)
    server.ok("POST", CRDS, crd(COLORED, selectableFields=[{"jsonPath": ".spec.color"}]))
    return server


class Watcher:
    """Reads a watch in the background. ``events`` are (type, object) so far."""

    def __init__(self, direct: Direct, path: str, **query: str) -> None:
        self.events: list[tuple[str, dict]] = []
        self._told = 0
        self._stream = direct.reply("GET", path, watch="true", **query).stream
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for piece in self._stream:
            self.events += [(event["type"], event["object"]) for event in map(decode, piece.splitlines())]

    async def read(self) -> list[tuple[str, str]]:
        """What has come since the last call, as (type, name)."""
        return [(type, obj.get("metadata", {}).get("name", "")) for type, obj in await self.take()]

    async def take(self) -> list[tuple[str, dict]]:
        """The same, with the objects."""
        for _ in range(20):
            await asyncio.sleep(0)
        fresh, self._told = self.events[self._told :], len(self.events)
        return fresh


def version(direct: Direct, path: str) -> str:
    return direct.ok("GET", path)["metadata"]["resourceVersion"]


async def test_a_watch_from_a_version_tells_every_later_change_in_order(direct):
    direct.ok("POST", WIDGETS, widget("before"))
    watcher = Watcher(direct, WIDGETS, resourceVersion=version(direct, WIDGETS))
    direct.ok("POST", WIDGETS, widget("a", color="red"))
    direct.ok("PATCH", f"{WIDGETS}/a", {"spec": {"color": "blue"}}, type="merge")
    direct.ok("DELETE", f"{WIDGETS}/a")
    assert await watcher.read() == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    numbers = [int(obj["metadata"]["resourceVersion"]) for _, obj in watcher.events]
    assert numbers == sorted(set(numbers))
    assert watcher.events[2][1]["spec"] == {"color": "blue"}


async def test_a_watch_without_a_version_begins_with_what_is_there(direct):
    direct.ok("POST", WIDGETS, widget("a"))
    watcher = Watcher(direct, WIDGETS)
    direct.ok("POST", WIDGETS, widget("b"))
    assert await watcher.read() == [("ADDED", "a"), ("ADDED", "b")]


async def test_initial_events_end_with_a_marked_bookmark(direct):
    direct.ok("POST", WIDGETS, widget("a"))
    query = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan"}
    watcher = Watcher(direct, WIDGETS, **query)
    assert await watcher.read() == [("ADDED", "a"), ("BOOKMARK", "")]
    meta = watcher.events[1][1]["metadata"]
    assert meta["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert meta["resourceVersion"] == version(direct, WIDGETS)


async def test_an_object_that_enters_or_leaves_a_selector_is_added_or_deleted(direct):
    start = version(direct, WIDGETS)
    by_field = Watcher(direct, WIDGETS, resourceVersion=start, fieldSelector="spec.color=red")
    by_label = Watcher(direct, WIDGETS, resourceVersion=start, labelSelector="color=red")
    for color in ("blue", "red", "red", "blue"):
        body = {"metadata": {"labels": {"color": color}}, "spec": {"color": color}}
        if color == "blue" and "a" not in [v["metadata"]["name"] for v in direct.ok("GET", WIDGETS)["items"]]:
            direct.ok("POST", WIDGETS, widget("a", meta={"labels": {"color": color}}, color=color))
        direct.ok("PATCH", f"{WIDGETS}/a", body, type="merge")
    assert await by_field.read() == [("ADDED", "a"), ("DELETED", "a")]
    assert await by_label.read() == [("ADDED", "a"), ("DELETED", "a")]
    gone = by_field.events[1][1]
    assert gone["spec"] == {"color": "red"}
    assert gone["metadata"]["resourceVersion"] == version(direct, WIDGETS)


async def test_a_watch_of_one_namespace_or_name_sees_no_other(direct):
    start = version(direct, "/api/v1/pods")
    one = Watcher(direct, f"{PODS}/a", resourceVersion=start)
    other = Watcher(direct, "/api/v1/namespaces/kube-system/pods", resourceVersion=start)
    everything = Watcher(direct, "/api/v1/pods", resourceVersion=start)
    for name in ("a", "b"):
        direct.ok("POST", PODS, pod(name))
    assert await one.read() == [("ADDED", "a")]
    assert await other.read() == []
    assert await everything.read() == [("ADDED", "a"), ("ADDED", "b")]


async def test_an_old_version_is_answered_with_an_error_event_of_410():
    direct = made(window=3)
    start = version(direct, WIDGETS)
    for i in range(5):
        direct.ok("POST", WIDGETS, widget(f"w{i}"))
    watcher = Watcher(direct, WIDGETS, resourceVersion=start)
    await watcher.read()
    [(type, status)] = watcher.events
    assert type == "ERROR"
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"].startswith(f"too old resource version: {start} (")


async def test_a_reader_that_falls_behind_is_told_so_and_loses_nothing_silently():
    direct = made(window=3)
    watcher = Watcher(direct, WIDGETS, resourceVersion=version(direct, WIDGETS))
    direct.ok("POST", WIDGETS, widget("a"))
    assert await watcher.read() == [("ADDED", "a")]
    for i in range(5):
        direct.ok("POST", WIDGETS, widget(f"w{i}"))
    assert [type for type, _ in await watcher.read()] == ["ERROR"]


async def test_a_version_just_inside_the_window_is_served():
    direct = made(window=3)
    direct.ok("POST", WIDGETS, widget("a"))
    start = version(direct, WIDGETS)
    for i in range(3):
        direct.ok("POST", WIDGETS, widget(f"w{i}"))
    watcher = Watcher(direct, WIDGETS, resourceVersion=start)
    assert await watcher.read() == [("ADDED", "w0"), ("ADDED", "w1"), ("ADDED", "w2")]


async def test_bookmarks_carry_versions_of_changes_elsewhere(direct):
    direct.api._pace = Pace(bookmark_seconds=0.01)
    watcher = Watcher(direct, WIDGETS, resourceVersion=version(direct, WIDGETS), allowWatchBookmarks="true")
    direct.ok("POST", PODS, pod())
    await eventually(lambda: watcher.events)
    types = {type for type, _ in watcher.events}
    assert types == {"BOOKMARK"}
    assert watcher.events[-1][1]["metadata"]["resourceVersion"] == str(direct.api.store.number)
    assert watcher.events[-1][1]["kind"] == "Widget"


async def test_without_asking_there_are_no_bookmarks(direct):
    direct.api._pace = Pace(bookmark_seconds=0.01)
    watcher = Watcher(direct, WIDGETS, resourceVersion=version(direct, WIDGETS))
    await asyncio.sleep(0.05)
    assert await watcher.read() == []


async def test_a_watch_ends_after_its_time(direct):
    stream = direct.reply("GET", WIDGETS, watch="true", timeoutSeconds="1").stream
    pieces = [piece async for piece in stream]
    assert b"".join(pieces) == b""


async def test_a_closing_server_ends_its_watches(direct):
    stream = direct.reply("GET", WIDGETS, watch="true", resourceVersion="1").stream
    await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    direct.api.close()
    with pytest.raises(StopAsyncIteration):
        await waiting


def test_pages_show_one_state_whatever_happens_between_them(direct):
    for i in range(5):
        direct.ok("POST", WIDGETS, widget(f"w{i}"))
    page = direct.ok("GET", WIDGETS, limit="2")
    first, names = page["metadata"]["resourceVersion"], [item["metadata"]["name"] for item in page["items"]]
    assert page["metadata"]["remainingItemCount"] == 3
    direct.ok("DELETE", f"{WIDGETS}/w3")
    direct.ok("POST", WIDGETS, widget("w9"))
    while token := page["metadata"].get("continue"):
        page = direct.ok("GET", WIDGETS, limit="2", **{"continue": token})
        assert page["metadata"]["resourceVersion"] == first
        names += [item["metadata"]["name"] for item in page["items"]]
    assert names == [f"w{i}" for i in range(5)]


def test_a_page_that_is_no_longer_kept_is_gone(direct):
    status = direct.fails("GET", WIDGETS, limit="2", **{"continue": "long-ago"})
    assert (status["code"], status["reason"]) == (410, "Expired")


def test_a_list_at_a_future_version_asks_for_patience(direct):
    status = direct.fails("GET", WIDGETS, resourceVersion="999999")
    assert (status["code"], status["reason"]) == (504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"fieldSelector": "spec.size=3"}, 'field label not supported: "spec.size"'),
        ({"fieldSelector": "nonsense"}, "invalid selector"),
        ({"labelSelector": "a=b=c"}, "unable to parse requirement"),
        ({"resourceVersion": "new"}, "resourceVersion"),
        ({"limit": "-1"}, "limit"),
    ],
)
def test_a_query_that_makes_no_sense_is_a_bad_request(direct, query, said):
    status = direct.fails("GET", WIDGETS, **query)
    assert status["code"] == 400
    assert said in status["message"]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", "abcd"),
        ("color=red", "a"),
        ("color==red", "a"),
        ("color!=red", "bcd"),
        ("color", "ab"),
        ("!color", "cd"),
        ("color in (red, blue)", "ab"),
        ("color notin (red)", "bcd"),
        ("color in (red,blue),size=1", "b"),
        ("example.dev/x", "d"),
    ],
)
def test_label_selectors(direct, selector, found):
    labels = [{"color": "red"}, {"color": "blue", "size": "1"}, {"size": "1"}, {"example.dev/x": ""}]
    for name, given in zip("abcd", labels, strict=True):
        direct.ok("POST", WIDGETS, widget(name, meta={"labels": given}))
    listed = direct.ok("GET", WIDGETS, labelSelector=selector)["items"]
    assert "".join(item["metadata"]["name"] for item in listed) == found


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("spec.nodeName=", "a"),
        ("spec.nodeName!=", "b"),
        ("spec.nodeName=n1,status.phase=Pending", "b"),
        ("metadata.name=a", "a"),
        ("metadata.namespace=default,metadata.name!=a", "b"),
        ("status.phase=Running", ""),
    ],
)
def test_field_selectors_of_pods(direct, selector, found):
    direct.ok("POST", "/api/v1/nodes", node())
    direct.ok("POST", PODS, pod("a"))
    direct.ok("POST", PODS, pod("b", nodeName="n1"))
    listed = direct.ok("GET", "/api/v1/pods", fieldSelector=selector)["items"]
    assert "".join(item["metadata"]["name"] for item in listed) == found


class ReplayedWatches(RuleBasedStateMachine):
    """Whoever replays a watch holds what a list shows, from every version and under every selector."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.direct = made(window=50)
        self.copies: list[tuple[Watcher, dict[str, dict], dict[str, str]]] = []

    def teardown(self) -> None:
        self.direct.api.close()
        self.loop.run_until_complete(asyncio.sleep(0.001))
        self.loop.close()

    @rule(name=st.sampled_from("abc"), color=st.sampled_from(["red", "blue"]))
    def put(self, name: str, color: str) -> None:
        body = widget(name, meta={"labels": {"color": color}}, color=color)
        if self.direct.ask("POST", WIDGETS, body)[0] == 409:
            self.direct.ok("PATCH", f"{WIDGETS}/{name}", {k: body[k] for k in ("metadata", "spec")}, type="merge")

    @rule(name=st.sampled_from("abc"))
    def delete(self, name: str) -> None:
        self.direct.ask("DELETE", f"{WIDGETS}/{name}")

    @rule(query=st.sampled_from([{}, {"labelSelector": "color=red"}, {"fieldSelector": "spec.color!=red"}]))
    def watch(self, query: dict[str, str]) -> None:
        self.loop.run_until_complete(self.start(query))

    async def start(self, query: dict[str, str]) -> None:
        listing = self.direct.ok("GET", WIDGETS, **query)
        copy = {item["metadata"]["name"]: item for item in listing["items"]}
        start = listing["metadata"]["resourceVersion"]
        self.copies.append((Watcher(self.direct, WIDGETS, resourceVersion=start, **query), copy, query))

    @rule()
    def compare(self) -> None:
        for watcher, copy, query in self.copies:
            for type, obj in self.loop.run_until_complete(watcher.take()):
                name = obj["metadata"]["name"]
                assert (type == "ADDED") is (name not in copy)
                if type == "DELETED":
                    del copy[name]
                else:
                    copy[name] = obj
            listed = {item["metadata"]["name"]: item for item in self.direct.ok("GET", WIDGETS, **query)["items"]}
            assert copy == listed


TestReplayedWatches = ReplayedWatches.TestCase
TestReplayedWatches.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
