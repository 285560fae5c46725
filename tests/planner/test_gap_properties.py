"""R6 and R1 on small random nodes, against brute force over all subsets."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gputask.planner.model import Action, Decision, Node, Task
from gputask.resources.pools import Allocation
from support.cluster import Cluster, NodeBuilder, node, task
from support.possible import delays, together

KEYS = ("c", "m", "p", "mem/0", "slot/0", "mem/1", "slot/1")


def small_node(name: str, sizes: tuple[int, int, int, int]) -> NodeBuilder:
    c, m, labels, slots = sizes
    built = node(name).has(c=c, m=m, p=[f"l{i}" for i in range(labels)])
    for card in "01":
        built.card(card, mem=6, slot=[f"s{i}" for i in range(slots)])
    return built


def requests(fractions: bool) -> st.SearchStrategy[dict[str, str]]:
    whole = st.integers(0, 4).map(str)
    labels = st.sampled_from(["0", "0.25", "0.5", "0.75", "1", "1.5", "2"]) if fractions else st.integers(0, 2).map(str)
    values = {key: labels if key[0] in "ps" else whole for key in KEYS}
    asked = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True)
    return asked.flatmap(lambda keys: st.fixed_dictionaries({key: values[key] for key in keys}))


def clusters(fractions: bool) -> st.SearchStrategy[Cluster]:
    """A node with some running work, and waiting tasks that have not been looked at."""
    sizes = st.tuples(st.integers(3, 9), st.integers(3, 9), st.integers(1, 3), st.integers(1, 3))
    some = st.lists(requests(fractions), min_size=1, max_size=5)

    def build(drawn: tuple[tuple[int, int, int, int], list[dict[str, str]], list[dict[str, str]]]) -> Cluster:
        size, before, after = drawn
        cluster = Cluster(small_node("n", size))
        for i, asked in enumerate(before):
            cluster.submit(task(f"old{i}").wants(asked)).step()
        cluster.waiting.clear()
        cluster.holds = ()
        return cluster.submit(*(task(f"new{i}").wants(asked) for i, asked in enumerate(after)))

    return st.tuples(sizes, some, st.lists(requests(fractions), min_size=2, max_size=6)).map(build)


def crowds() -> st.SearchStrategy[Cluster]:
    """A node with two sum pools, and so many wide and narrow tasks that several holds meet there."""
    running = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 4)), min_size=1, max_size=4)
    wide = st.lists(st.tuples(st.integers(3, 9), st.integers(0, 6)), min_size=2, max_size=3)
    narrow = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=4)

    def build(drawn: tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]) -> Cluster:
        before, high, low = drawn
        cluster = Cluster(node("n").has(c=14, m=9))
        cluster.submit(*(task(f"old{i}").wants(c=c, m=m) for i, (c, m) in enumerate(before))).step()
        cluster.waiting.clear()
        cluster.holds = ()
        cluster.submit(*(task(f"wide{i}", 1).wants(c=c, m=m) for i, (c, m) in enumerate(high)))
        return cluster.submit(*(task(f"low{i}").wants(c=c, m=m) for i, (c, m) in enumerate(low)))

    return st.tuples(running, wide, narrow).map(build)


def split(cluster: Cluster, at: Node, decisions: tuple[Decision, ...], rank: tuple[int, float, str]):
    """What was there or came before a rank, the holds above it, and what started below it."""
    placed = [d for d in decisions if d.action is Action.PLACE and d.node == at.name]
    before = [r.allocation for r in at.running] + [d.allocation for d in placed if d.task.rank < rank]
    higher = [d.allocation for d in decisions if d.action is Action.HOLD and d.task.rank < rank]
    return before, higher, [d.allocation for d in placed if d.task.rank > rank]


def check_no_hold_is_delayed(cluster: Cluster) -> None:
    at = cluster.nodes["n"]
    decided = cluster.step()
    for decision in decided.decisions:
        if decision.action is Action.HOLD:
            before, higher, after = split(cluster, at, decided.decisions, decision.task.rank)
            beside = delays(at, decision.allocation, higher, before, after)
            assert beside is None, f"R6: {decision.task.key} is delayed beside {beside}"


@settings(max_examples=120, deadline=None)
@given(clusters(fractions=False))
def test_no_admission_delays_a_hold_of_whole_labels(cluster: Cluster) -> None:
    check_no_hold_is_delayed(cluster)


@settings(max_examples=120, deadline=None)
@given(clusters(fractions=True))
def test_no_admission_delays_a_hold_of_fractions(cluster: Cluster) -> None:
    check_no_hold_is_delayed(cluster)


@settings(max_examples=120, deadline=None)
@given(crowds())
def test_no_admission_delays_one_of_several_holds(cluster: Cluster) -> None:
    check_no_hold_is_delayed(cluster)


@settings(max_examples=80, deadline=None)
@given(clusters(fractions=False) | crowds())
def test_nothing_waits_that_could_start_without_delaying_a_hold(cluster: Cluster) -> None:
    cluster.step()
    at, decisions = cluster.nodes["n"], cluster.plan.decisions
    running = [r.allocation for r in at.running]
    for waiting in cluster.plan.waiting:
        (variant,) = waiting.task.request.variants
        asked = Allocation(dict(variant.amounts))
        if not together(at, running, [asked]):
            continue
        assert _delays_somebody(cluster, at, decisions, waiting.task, asked), f"{waiting.task.key} could start"


def _delays_somebody(
    cluster: Cluster, at: Node, decisions: tuple[Decision, ...], late: Task, asked: Allocation
) -> bool:
    started = {d.task.uid for d in decisions if d.action is Action.PLACE}
    before_pass = Node(at.name, at.resources, running=tuple(r for r in at.running if r.uid not in started))
    for hold in decisions:
        if hold.action is Action.HOLD and hold.task.rank < late.rank:
            before, higher, after = split(cluster, before_pass, decisions, hold.task.rank)
            if _delays_with(at, hold.allocation, higher, before, after, asked):
                return True
    return False


def _delays_with(
    at: Node,
    hold: Allocation,
    higher: list[Allocation],
    before: list[Allocation],
    after: list[Allocation],
    asked: Allocation,
) -> bool:
    """Whether a task on any labels, free ones now, delays the holder: labels are alike, so try those left over."""
    labelled = _labelled(at, [*before, *after], asked)
    return labelled is None or delays(at, hold, higher, before, [*after, labelled]) is not None


def _labelled(at: Node, running: list[Allocation], asked: Allocation) -> Allocation | None:
    labels: dict[str, tuple[str, ...]] = {}
    for key, units in asked.amounts.items():
        pool = at.resources.pool(key)
        if pool is not None and hasattr(pool, "labels"):
            used = {label for a in running for label in a.labels.get(key, ())}
            free = [label for label in pool.labels if label not in used]
            labels[key] = tuple(free[: units // 10_000])
    return Allocation(asked.amounts, labels)


@settings(max_examples=80, deadline=None)
@given(clusters(fractions=True) | crowds())
def test_a_second_pass_starts_nothing(cluster: Cluster) -> None:
    cluster.step()
    holds = cluster.holds
    again = cluster.step()
    assert [d.task.key for d in again.decisions if d.action is Action.PLACE] == []
    assert [(h.task, h.node) for h in again.holds] == [(h.task, h.node) for h in holds]


@settings(max_examples=80, deadline=None)
@given(clusters(fractions=True) | crowds())
def test_no_higher_task_waits_that_fits_beside_everything(cluster: Cluster) -> None:
    """R1: no inversion. Whoever fits beside all that runs and all holds above it has started."""
    at = cluster.nodes["n"]
    decided = cluster.step()
    for waiting in decided.waiting:
        before, higher, after = split(cluster, at, decided.decisions, waiting.task.rank)
        (variant,) = waiting.task.request.variants
        if after:
            joint = together(at, [*before, *higher], [Allocation(dict(variant.amounts))])
            assert not joint, f"R1: {waiting.task.key} fits, and a lower task started"
