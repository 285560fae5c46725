"""The ledger of one node as a value: what fits, and a state machine over all of its changes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gputask.api.gpunode import MOST_RESERVATIONS
from gputask.ledger.changes import (
    Book,
    Confirm,
    Declare,
    DropRoom,
    KeepRoom,
    Quarantine,
    Rebuild,
    Refused,
    Release,
    Renew,
    Reserve,
)
from gputask.ledger.documents import read_ledger, write_ledger
from gputask.ledger.entries import Entry, NodeLedger, RoomKept, State, Victim, check_invariants
from gputask.resources.amounts import SCALE
from gputask.resources.pools import Allocation, Device, Health, IndexedPool, NodeResources, SumPool, UnknownPool

META = {"name": "n1", "uid": "g1", "resourceVersion": "1"}
OFFER = NodeResources(
    pools={"cpu": SumPool(8 * SCALE), "lic": SumPool(SCALE), "port": IndexedPool(("a", "b")), "odd": UnknownPool()},
    devices=(
        Device("x", {"mem": SumPool(24_000 * SCALE), "slot": IndexedPool(("0", "1"))}),
        Device("y", {"mem": SumPool(8_000 * SCALE)}, health=Health.LOST),
    ),
)


def ledger(*entries: Entry, **more: object) -> NodeLedger:
    made = NodeLedger("n1", "g1", "1", node_uid="u1", rebuilt="u1", resources=OFFER)
    for entry in entries:
        made = made.with_entry(entry)
    return replace(made, **more)  # type: ignore[arg-type]


def entry(
    name: str, devices: tuple[str, ...] = (), labels: dict[str, tuple[str, ...]] | None = None, **asks: float
) -> Entry:
    """An entry of pod ``name``; amounts by key, with ``_`` for the slash."""
    amounts = {key.replace("_", "/"): round(value * SCALE) for key, value in asks.items()}
    return Entry(
        task=f"default/{name}",
        task_uid=f"task-{name}",
        pod=f"pod-{name}",
        pod_uid=name,
        pod_version="1",
        attempt=1,
        node="n1",
        variant="v",
        variant_index=0,
        allocation=Allocation(amounts, labels or {}, devices),
    )


# --- what fits ---


def test_what_fits_beside_the_others_may_be_reserved() -> None:
    assert ledger(entry("a", mem_x=16_000)).fits(entry("b", ("x",), mem_x=8_000)) is None


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (entry("b", mem_x=8_001), "mem/x on n1: asked 8001, free 8000"),
        (entry("b", cpu=8.0001), "cpu on n1: asked 8.0001, free 8"),
        (entry("b", gpu=1), "n1 declares no gpu"),
        (entry("b", odd=1), "how much odd n1 has is not known"),
        (entry("b", ("y",), mem_y=1), "n1 has no healthy device y"),
        (entry("b", ("z",)), "n1 has no healthy device z"),
        (entry("b", labels={"port": ("c",)}, port=1), "port on n1: there is no label c"),
        (entry("b", labels={"port": ("a",)}, port=1), "port on n1: label a is taken"),
        (entry("b", labels={"port": ("b",)}, port=2), "port on n1: asked 2, free 1.5"),
        (entry("b", labels={"port": ("b", "b")}, port=1.5), "port on n1: labels ['b', 'b'] do not make 1.5"),
        (entry("b", labels={}, port=1), "port on n1: labels [] do not make 1"),
    ],
)
def test_what_does_not_fit_says_which_pool_is_short(asked: Entry, why: str) -> None:
    running = entry("a", labels={"port": ("a",)}, mem_x=16_000, port=0.5)
    assert ledger(running).fits(asked) == why


def test_b34_who_is_on_a_label_that_was_lost_takes_none_of_the_others() -> None:
    small = replace(OFFER, pools={**OFFER.pools, "port": IndexedPool(("a",))})
    now = ledger(entry("on-b", labels={"port": ("b",)}, port=1), resources=small)
    assert now.occupied("port") == 0
    assert now.fits(entry("next", labels={"port": ("a",)}, port=1)) is None
    assert now.fits(entry("next", labels={"port": ("b",)}, port=1)) == "port on n1: there is no label b"


def test_b09_tenths_of_a_sum_add_up_to_exactly_one() -> None:
    rng = random.Random(9)
    now = ledger()
    for i in range(10):
        now = Reserve(entry(str(i), lic=0.1)).apply(now)
    with pytest.raises(Refused, match=r"lic on n1: asked 0\.1, free 0$"):
        Reserve(entry("eleventh", lic=0.1)).apply(now)
    for uid in rng.sample(sorted(now.entries), 10):
        now = Release(uid, "1").apply(now)
    assert now.fits(entry("whole", lic=1)) is None


def test_b38_free_memory_is_never_summed_over_devices() -> None:
    two = replace(OFFER, devices=tuple(Device(i, {"mem": SumPool(23_000 * SCALE)}) for i in ("x", "y")))
    now = ledger(resources=two)
    for name, card in (("1", "x"), ("2", "x"), ("3", "y"), ("4", "y")):
        now = Reserve(entry(name, (card,), **{f"mem_{card}": 10_000})).apply(now)
    assert [now.fits(entry("5", (c,), **{f"mem_{c}": 10_000})) for c in ("x", "y")] == [
        "mem/x on n1: asked 10000, free 3000",
        "mem/y on n1: asked 10000, free 3000",
    ]


def test_nothing_is_admitted_before_the_ledger_is_rebuilt_for_the_present_node() -> None:
    for wrong in ({"rebuilt": ""}, {"rebuilt": "u0"}, {"node_uid": "", "rebuilt": ""}):
        assert ledger(**wrong).fits(entry("a", cpu=1)) == "the ledger of n1 is not rebuilt for its Node yet"


def test_a_full_ledger_admits_no_more() -> None:
    full = ledger(*(entry(str(i), cpu=0.0001) for i in range(MOST_RESERVATIONS)))
    assert "most that one ledger holds" in str(full.fits(entry("more", cpu=0.0001)))


def test_two_live_owners_are_both_kept_and_nothing_is_admitted_until_one_is_gone() -> None:
    one, two = (entry(name, labels={"port": ("a",)}, port=1) for name in ("a", "b"))
    both = Book(two).apply(ledger(one))
    assert (set(both.entries), both.overbooked, check_invariants(both)) == ({"a", "b"}, True, [])
    assert "overbooked" in str(both.fits(entry("c", cpu=1)))
    assert Release("a", "1").apply(both).fits(entry("c", cpu=1)) is None


def test_b34_a_capacity_that_shrank_touches_no_other_pool_and_is_no_double_ownership() -> None:
    now = ledger(*(entry(str(i), lic=0.25, cpu=1) for i in range(4)))
    less = replace(OFFER, pools={**OFFER.pools, "lic": SumPool(7500)})
    now = Declare("u1", less).apply(now)
    assert (len(now.entries), now.overbooked) == (4, False)
    assert now.fits(entry("k", cpu=1)) is None
    assert now.fits(entry("g", cpu=1, lic=0.25)) == "lic on n1: asked 0.25, free 0"
    now = Release("0", "1").apply(Release("1", "1").apply(now))
    assert now.fits(entry("g", cpu=1, lic=0.25)) is None


def test_b113_a_pool_declared_no_more_keeps_its_entry_and_admits_nothing() -> None:
    now = Declare("u1", NodeResources()).apply(ledger(entry("t1", mem_x=4_000)))
    assert now.fits(entry("t2", mem_x=2_000)) == "n1 declares no mem/x"
    again = Declare("u1", OFFER).apply(now)
    assert again.fits(entry("t2", mem_x=20_000)) is None
    assert again.fits(entry("t2", mem_x=20_001)) is not None


# --- room that is kept (protocol line 16) ---


def room(name: str, priority: int, *victims: str, **asks: float) -> RoomKept:
    return RoomKept(
        task=f"default/{name}",
        task_uid=f"task-{name}",
        priority=priority,
        created=0.0,
        variant="v",
        variant_index=0,
        allocation=entry(name, **asks).allocation,
        victims=tuple(Victim(f"default/{v}", f"pod-{v}", v) for v in victims),
        start_time=0.0,
        expires_at=60.0,
    )


def making_room(*rooms: RoomKept) -> NodeLedger:
    """Of 8 cpus 1 is free; a has 3 and b has 4."""
    made = ledger(entry("a", cpu=3), entry("b", cpu=4))
    for each in rooms:
        made = KeepRoom(each).apply(made)
    return made


LOW, HIGH = (-1, 0.0, "z"), (-9, 0.0, "z")


def test_kept_room_is_taken_by_nobody_of_lower_rank_and_what_it_does_not_need_is_free() -> None:
    kept = making_room(room("h", 5, "a", cpu=3))
    assert kept.fits(entry("low", cpu=1), LOW) is None
    assert "room on n1 is kept for default/h" in (
        making_room(room("h", 5, "a", cpu=4)).fits(entry("low", cpu=1), LOW) or ""
    )
    assert making_room(room("h", 5, "a", cpu=4)).fits(entry("high", cpu=1), HIGH) is None


def test_what_the_victims_of_others_will_give_is_not_there_yet() -> None:
    kept = making_room(room("h", 5, "a", cpu=4), room("h2", 4, "b", cpu=2))
    assert kept.fits(entry("low", cpu=1), LOW) is not None, "though 2 are left once both victims are gone"
    assert KeepRoom(room("h", 5, "a", cpu=4)).apply(kept) is kept


def test_room_that_the_victims_do_not_make_is_not_kept() -> None:
    with pytest.raises(Refused, match="cpu on n1: asked 5, free 4"):
        making_room(room("h", 5, "a", cpu=5))
    with pytest.raises(Refused, match="default/a is evicted for default/h already"):
        making_room(room("h", 5, "a", cpu=4), room("h2", 4, "a", cpu=1))


def test_room_becomes_the_reservation_of_its_task_in_one_change() -> None:
    kept = making_room(room("h", 5, "a", cpu=4)).without_entry("a")
    reserved = Reserve(entry("h", cpu=4), (-5, 0.0, "task-h")).apply(kept)
    assert not reserved.holds
    assert set(reserved.entries) == {"b", "h"}


def test_only_the_hold_that_was_seen_is_dropped() -> None:
    kept = making_room(room("h", 5, "a", cpu=4))
    assert DropRoom("task-h", room("h", 5, "b", cpu=4).victims).apply(kept) is kept
    assert not DropRoom("task-h", room("h", 5, "a", cpu=4).victims).apply(kept).holds


# --- changes ---


def test_a_release_holds_for_its_pair_only_and_a_second_one_changes_nothing() -> None:
    now = Renew("a", "2", under="1", expires_at=None).apply(ledger(entry("a", cpu=1)))
    with pytest.raises(Refused, match="renewed"):
        Release("a", "1").apply(now)
    gone = Release("a", "2").apply(now)
    assert gone.used("cpu") == 0
    assert Release("a", "2").apply(gone) is gone


def test_a_quarantined_entry_stays_taken_and_only_a_proof_that_knows_of_it_releases_it() -> None:
    before = ledger(entry("a", ("x",), mem_x=20_000))
    kept = Quarantine("a", "1").apply(before)
    assert kept.entries["a"].state is State.QUARANTINED
    assert Quarantine("a", "1").apply(kept) is kept
    with pytest.raises(Refused, match="what it held is quarantined"):
        Confirm("a", 1.0).apply(kept)
    assert kept.fits(entry("b", mem_x=5_000)) is not None
    assert read_ledger(write_ledger({"metadata": META}, kept, now=0)).entries == kept.entries
    with pytest.raises(Refused, match="quarantined meanwhile"):
        Release("a", "1").apply(kept)
    assert Release("a", "1", quarantined=True).apply(kept).entries == {}
    with pytest.raises(Refused, match="renewed meanwhile"):
        Quarantine("a", "2").apply(before)
    assert Quarantine("b", "1").apply(before) is before


def test_a_renewal_needs_the_ledger_version_that_was_in_hand_before_the_pod_was_read() -> None:
    moved = replace(ledger(entry("a", cpu=1)), version="7")
    with pytest.raises(Refused, match="changed after the pod was read"):
        Renew("a", "2", under="1", expires_at=None).apply(moved)


def test_a_rebuild_for_a_gpunode_that_was_replaced_is_refused() -> None:
    with pytest.raises(Refused, match="replaced"):
        Rebuild("another", "u1", []).apply(ledger(rebuilt=""))


def test_a_new_node_uid_keeps_the_entries_and_asks_for_a_rebuild() -> None:
    now = Declare("u2", OFFER).apply(ledger(entry("a", cpu=1)))
    assert set(now.entries) == {"a"}
    assert now.fits(entry("b", cpu=1)) is not None
    assert Rebuild("g1", "u2", []).apply(now).fits(entry("b", cpu=1)) is None


# --- the state machine ---


@settings(max_examples=150, stateful_step_count=40)
class Ledgers(RuleBasedStateMachine):
    """All changes in any order, each twice: sums never exceed what was declared when they were admitted."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = ledger()
        self.names = 0
        self.may_book = False

    @initialize(may_book=st.booleans())
    def begin(self, may_book: bool) -> None:
        self.may_book = may_book

    def do(self, change: object) -> None:
        try:
            after = change.apply(self.ledger)  # type: ignore[attr-defined]
        except Refused:
            return
        if not isinstance(change, Renew):
            assert change.apply(after) is after  # type: ignore[attr-defined]
        self.ledger = replace(after, version=str(int(after.version) + 1)) if after is not self.ledger else after

    def _entry(self, draw: st.DataObject) -> Entry:
        self.names += 1
        asks, labels, devices = {}, {}, ()
        if draw.draw(st.booleans()):
            asks["cpu"] = draw.draw(st.integers(1, 50_000)) / SCALE
        if draw.draw(st.booleans()):
            asks["mem_x"], devices = draw.draw(st.integers(1, 14_000)), ("x",)
        units = draw.draw(st.sampled_from([0, 2500, 5000, 10_000, 15_000, 20_000]))
        if units:
            count = -(-units // SCALE)
            labels["port"] = tuple(draw.draw(st.permutations(["a", "b"]))[:count])
            asks["port"] = units / SCALE
        return entry(f"p{self.names}", devices, labels, **(asks or {"cpu": 1}))

    @rule(draw=st.data())
    def reserve(self, draw: st.DataObject) -> None:
        self.do(Reserve(self._entry(draw)))

    @precondition(lambda self: self.may_book)
    @rule(draw=st.data())
    def book(self, draw: st.DataObject) -> None:
        self.do(Book(self._entry(draw)))

    @precondition(lambda self: self.ledger.entries)
    @rule(draw=st.data(), version=st.sampled_from(["1", "2"]))
    def release(self, draw: st.DataObject, version: str) -> None:
        self.do(Release(draw.draw(st.sampled_from(sorted(self.ledger.entries))), version))

    @precondition(lambda self: self.ledger.entries)
    @rule(draw=st.data())
    def renew_and_confirm(self, draw: st.DataObject) -> None:
        uid = draw.draw(st.sampled_from(sorted(self.ledger.entries)))
        self.do(Renew(uid, "2", under=self.ledger.version, expires_at=5.0))
        self.do(Confirm(uid, 1.0))
        assert self.ledger.entries[uid].state is State.BOUND

    @rule()
    def stored_and_read_again(self) -> None:
        shell = {"metadata": META | {"resourceVersion": self.ledger.version}}
        assert read_ledger(write_ledger(shell, self.ledger, now=0.0)) == self.ledger

    @invariant()
    def nothing_is_broken(self) -> None:
        assert check_invariants(self.ledger) == []

    @invariant()
    def nothing_admitted_is_over_capacity(self) -> None:
        if self.may_book:
            return
        total: Counter[str] = Counter()
        for known in self.ledger.entries.values():
            total.update(known.allocation.amounts)
        assert total["cpu"] <= 8 * SCALE
        assert total["mem/x"] <= 24_000 * SCALE
        assert total["port"] <= 2 * SCALE


TestLedgers = Ledgers.TestCase
