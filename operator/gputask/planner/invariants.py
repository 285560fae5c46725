"""What every plan must keep, checked by code that shares nothing with the pass. For tests, and for doubt.

Slow and plain on purpose: no arrays, no classes, no caches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gputask.planner.filters import refusal
from gputask.planner.model import HOST_PORT, PODS, Action, Decision, Node, Plan, Snapshot, Task, Variant
from gputask.resources.amounts import SCALE
from gputask.resources.pools import Allocation, Health, IndexedPool, Pool, UnknownPool


class InvariantError(AssertionError):
    """A plan breaks a rule; the message starts with the rule's name."""


def check_invariants(snapshot: Snapshot, plan: Plan) -> None:
    """Check one plan against its snapshot.

    :raises InvariantError: with the rule, the task and the node.
    """
    nodes = {node.name: node for node in snapshot.nodes}
    _check_inversions(nodes, plan)
    _check_answers(snapshot, plan)
    _check_order(plan)
    placed = [d for d in plan.decisions if d.action is Action.PLACE]
    held = [d for d in plan.decisions if d.action is not Action.PLACE]
    _check_evictions(nodes, snapshot.budgets, plan)
    for decision in plan.decisions:
        _check_request(decision, nodes[decision.node])
    for node in snapshot.nodes:
        starting = [d.allocation for d in placed if d.node == node.name]
        if starting:
            _check_fits("R1 nothing is booked twice", node, starting, [r.allocation for r in node.running])
        holding = [d.allocation for d in held if d.node == node.name]
        if holding:
            _check_fits("R5 all holds of a node fit it when empty", node, holding, [])


def _expect(condition: bool, rule: str, message: str) -> None:
    if not condition:
        raise InvariantError(f"{rule}: {message}")


def _check_answers(snapshot: Snapshot, plan: Plan) -> None:
    """Each task is placed or waits; only waiting tasks hold, at most once."""
    placed = [d.task.uid for d in plan.decisions if d.action is Action.PLACE]
    holding = [d.task.uid for d in plan.decisions if d.action is not Action.PLACE]
    waiting = [w.task.uid for w in plan.waiting]
    rule = "R12 every task is answered once"
    _expect(len(set(holding)) == len(holding), "R5 one hold for a task", f"{sorted(holding)}")
    _expect(set(holding) <= set(waiting), "R5 only waiting tasks hold", f"{sorted(set(holding) - set(waiting))}")
    _expect(len(set(placed + waiting)) == len(placed + waiting), rule, "a task is placed or waits twice")
    if not plan.faults:
        _expect(set(placed + waiting) == {t.uid for t in snapshot.tasks}, rule, "a task is missing")
    for waiting_task in plan.waiting:
        if waiting_task.task.uid in holding:
            _expect(waiting_task.feasible, "R4 only feasible tasks hold", waiting_task.task.key)


def _check_order(plan: Plan) -> None:
    ranks = [d.task.rank for d in plan.decisions]
    _expect(ranks == sorted(ranks), "R1 decisions come in rank order", f"{[d.task.key for d in plan.decisions]}")


def _check_inversions(nodes: Mapping[str, Node], plan: Plan) -> None:
    """No lower task starts where a higher waiting one fits beside all that runs and all holds above it."""
    for waiting in plan.waiting:
        higher = waiting.task
        started_below = {d.node: d for d in plan.decisions if d.action is Action.PLACE and d.task.rank > higher.rank}
        for name, lower in started_below.items():
            node = nodes[name]
            above = [d.allocation for d in plan.decisions if d.node == name and d.task.rank < higher.rank]
            used = [*(r.allocation for r in node.running), *above]
            message = f"{higher.key} fits on {name}, and {lower.task.key} starts there"
            _expect(not _fits_somehow(higher, node, used), "R1 no inversion", message)


def _check_evictions(nodes: Mapping[str, Node], budgets: Mapping[str, int], plan: Plan) -> None:
    """R11: only who may go, nobody twice, within the budgets, and only where it is both enough and needed."""
    gone: set[str] = set()
    spent: dict[str, int] = defaultdict(int)
    for decision in (d for d in plan.decisions if d.action is Action.PREEMPT):
        task, node = decision.task, nodes[decision.node]
        hold = next(h for h in plan.holds if h.uid == task.uid)
        for victim in decision.victims:
            which = f"{victim.task} for {task.key}"
            _expect(victim in node.running and victim.uid not in gone, "R11 a victim runs there, and goes once", which)
            _expect(victim.priority < task.priority and task.may_preempt, "R11 victims are lower in priority", which)
            _expect(victim.preemptible and not victim.leaving, "R11 victims may be evicted", which)
            gone.add(victim.uid)
            for budget in victim.budgets:
                spent[budget] += 1
                _expect(spent[budget] <= budgets.get(budget, spent[budget]), "R11 budgets are obeyed", which)
        going = gone | set(hold.victims) | {work.uid for work in node.running if work.leaving}
        above = [d.allocation for d in plan.decisions if d.node == node.name and d.task.rank < task.rank]
        staying = [work.allocation for work in node.running if work.uid not in going]
        rule = "R11 the task fits once its victims are gone"
        _check_fits(rule, node, [decision.allocation], [*staying, *above])
        for victim in () if hold.committed else decision.victims:
            used = [*staying, *above, victim.allocation]
            message = f"{task.key} fits beside {victim.task}"
            _expect(
                not _variant_fits(task.request.variants[decision.variant_index], node, used),
                "R11 no victim could stay",
                message,
            )


def _fits_somehow(task: Task, node: Node, used: Sequence[Allocation]) -> bool:
    """Whether a variant fits beside these; only what is certain counts (no shared labels, devices one by one)."""
    if task.unsupported or node.name in task.excluded_nodes or refusal(node, task.request.constraints) is not None:
        return False
    return any(_variant_fits(variant, node, used) for variant in task.request.variants)


def _variant_fits(variant: Variant, node: Node, used: Sequence[Allocation]) -> bool:
    if node.lives_until is not None and variant.min_time > 0:
        return False  # a clock would be needed
    fixed = [(node.resources.resolve(key) or key, units) for key, units in variant.amounts]
    if len({key for key, _ in fixed}) < len(fixed) or not all(_left(node, k, used) >= u for k, u in fixed):
        return False
    if variant.devices is None:
        return True
    named = {key for key, _ in fixed}
    able = [
        d
        for d in node.resources.devices
        if d.health is Health.HEALTHY
        and all(
            f"{p}/{d.id}" not in named and _left(node, f"{p}/{d.id}", used) >= u for p, u in variant.devices.amounts
        )
    ]
    return len(able) >= variant.devices.count


def _left(node: Node, key: str, used: Sequence[Allocation]) -> int:
    """Units that are certainly left for one request: of an indexed pool its untouched labels."""
    pool = _pool(node, key)
    if pool is None and key == PODS:
        return 1 << 62
    foreign = sum(dict(f.amounts).get(key, 0) for f in node.foreign)
    if isinstance(pool, IndexedPool):
        touched = _label_sum(used, key)
        if any(units > SCALE for units in touched.values()):
            return 0  # a hold waits for these labels, and may take others
        whole_foreign = -(-foreign // SCALE)
        return (len(set(pool.labels) - touched.keys()) - whole_foreign) * SCALE
    capacity = SCALE if pool is None and key.startswith(HOST_PORT) else 0 if pool is None else pool.capacity
    return capacity - foreign - _sum(used).get(key, 0)


def _check_request(decision: Decision, node: Node) -> None:
    """The allocation is what the named variant asks, on a node that the task accepts."""
    task, allocation = decision.task, decision.allocation
    where = f"{task.key} on {node.name}"
    _expect(refusal(node, task.request.constraints) is None, "R1 filters are obeyed", where)
    _expect(node.name not in task.excluded_nodes and not task.unsupported, "R1 exclusions are obeyed", where)
    variant = task.request.variants[decision.variant_index]
    _expect(variant.name == decision.variant, "R2 index and name of a variant agree", where)
    expected = _expected(variant, node, allocation)
    _expect(dict(allocation.amounts) == expected, "R2 the allocation is what the variant asks", f"{where}: {expected}")
    healthy = {d.id for d in node.resources.devices if d.health is Health.HEALTHY}
    _expect(set(allocation.devices) <= healthy, "R3 only healthy devices are offered", where)
    for key, units in allocation.amounts.items():
        if isinstance(node.resources.pool(key), IndexedPool):
            labels = allocation.labels.get(key, ())
            _expect(
                len(labels) == -(-units // SCALE) == len(set(labels)), "R3 a label for each whole", f"{where} {key}"
            )


def _expected(variant: Variant, node: Node, allocation: Allocation) -> dict[str, int]:
    amounts: dict[str, int] = defaultdict(int)
    for key, units in variant.amounts:
        amounts[node.resources.resolve(key) or key] += units
    if variant.devices is None:
        return dict(amounts)
    named = set(amounts)
    chosen = [
        d
        for d in allocation.devices
        if all(
            allocation.amounts.get(f"{pool}/{d}", 0) >= units + amounts.get(f"{pool}/{d}", 0)
            for pool, units in variant.devices.amounts
        )
    ]
    wanted = [d for d in chosen if not all(f"{pool}/{d}" in named for pool, _ in variant.devices.amounts)]
    _expect(len(chosen) >= variant.devices.count, "R2 the allocation has count devices", f"{chosen} of {node.name}")
    for device in (wanted + [d for d in chosen if d not in wanted])[: variant.devices.count]:
        for pool, units in variant.devices.amounts:
            amounts[f"{pool}/{device}"] += units
    return dict(amounts)


def _check_fits(rule: str, node: Node, new: Iterable[Allocation], running: Iterable[Allocation]) -> None:
    """What is new fits beside foreign use and running work, pool by pool and label by label."""
    new = list(new)
    used = _sum([*new, *running])
    for key in {key for allocation in new for key in allocation.amounts}:
        pool = _pool(node, key)
        foreign = sum(dict(f.amounts).get(key, 0) for f in node.foreign)
        _expect(not isinstance(pool, UnknownPool), "R4 unknown pools admit nothing", f"{node.name} {key}")
        if pool is None and key == PODS:
            continue
        capacity = SCALE if pool is None and key.startswith(HOST_PORT) else 0 if pool is None else pool.capacity
        lost = _lost_units(pool, key, running)
        total = used[key] - lost + foreign
        _expect(total <= capacity, rule, f"{node.name} {key}: {total} of {capacity}")
        if isinstance(pool, IndexedPool):
            for label, units in _label_sum([*new, *running], key).items():
                _expect(label not in pool.labels or units <= SCALE, rule, f"{node.name} {key} label {label}: {units}")
            fresh = set(_label_sum(new, key))
            _expect(fresh <= set(pool.labels), rule, f"{node.name} {key}: no such label {sorted(fresh)}")


def _pool(node: Node, key: str) -> Pool | None:
    """The pool behind a flat key; devices that are not healthy offer none."""
    lost = {d.id for d in node.resources.devices if d.health is not Health.HEALTHY}
    if key not in node.resources.pools and key.rpartition("/")[2] in lost:
        return None
    return node.resources.pool(key)


def _lost_units(pool: Pool | None, key: str, running: Iterable[Allocation]) -> int:
    """Use of labels that the pool no longer has: it takes nothing from those that it has."""
    if not isinstance(pool, IndexedPool):
        return 0
    return sum(units for label, units in _label_sum(running, key).items() if label not in pool.labels)


def _sum(allocations: Iterable[Allocation]) -> Mapping[str, int]:
    total: dict[str, int] = defaultdict(int)
    for allocation in allocations:
        for key, units in allocation.amounts.items():
            total[key] += units
    return total


def _label_sum(allocations: Iterable[Allocation], key: str) -> Mapping[str, int]:
    total: dict[str, int] = defaultdict(int)
    for allocation in allocations:
        if key in allocation.amounts:
            for label, units in allocation.label_units(key):
                total[label] += units
    return total
