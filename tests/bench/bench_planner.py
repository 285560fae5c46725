"""The planner on the benchmark instance: ``python tests/bench/bench_planner.py [W,C,T ...]`` prints a table.

The instance: W nodes with 64 cpus and 256000 MB, every fourth with 8 cards; C classes of T tasks, priority c mod 8,
which want a card, and two thirds of them else cpus and memory. Each size runs with one ``devices`` request and with
the 8 card variants written out; both must place the same tasks.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from gputask.planner.model import Action, DeviceDemand, Node, Plan, RequestClass, Snapshot, Task, Variant
from gputask.planner.plan import plan
from gputask.resources.amounts import SCALE
from gputask.resources.pools import Device, IndexedPool, NodeResources, SumPool

SIZES = ((100, 16, 1000), (100, 64, 1000), (500, 16, 1000), (1000, 64, 1000))
CARDS = 8


def nodes(count: int) -> tuple[Node, ...]:
    """Every fourth node has cards."""
    pools = {"cpus": SumPool(64 * SCALE), "mem": SumPool(256_000 * SCALE)}
    return tuple(
        Node(f"n{w:05d}", NodeResources(pools, tuple(_card(k) for k in range(CARDS)) if w % 4 == 0 else ()))
        for w in range(count)
    )


def _card(k: int) -> Device:
    memory = (24_000 + 24_000 * (k % 2)) * SCALE
    return Device(str(k), {"gpuSlot": IndexedPool(("0", "1", "2", "3")), "gpuMemoryMB": SumPool(memory)}, k)


def request(c: int, *, written_out: bool) -> RequestClass:
    """Class c: its card variants, then, unless c mod 3 = 0, cpus and memory."""
    cpus, memory = (1 + c % 4) * SCALE, (8000 + 1000 * (c % 16)) * SCALE
    if written_out:
        variants = [
            Variant(f"card{i}", (("cpus", cpus), (f"gpuMemoryMB/{i}", memory), (f"gpuSlot/{i}", SCALE)))
            for i in range(CARDS)
        ]
    else:
        demand = DeviceDemand(1, (("gpuMemoryMB", memory), ("gpuSlot", SCALE)))
        variants = [Variant("card", (("cpus", cpus),), demand)]
    if c % 3:
        variants.append(Variant("cpu", (("cpus", (4 + c % 8) * SCALE), ("mem", (4000 + 500 * (c % 10)) * SCALE))))
    return RequestClass(tuple(variants))


def tasks(classes: int, each: int, *, written_out: bool, interleaved: bool) -> tuple[Task, ...]:
    """Tasks of one class were created together, or, interleaved, one after the other with those of all classes."""
    requests = [request(c, written_out=written_out) for c in range(classes)]
    return tuple(
        Task(f"ns/c{c}-{t}", f"c{c:04d}-{t:06d}", c % 8, float(t if interleaved else c), requests[c])
        for c in range(classes)
        for t in range(each)
    )


def placed_by_priority(decided: Plan) -> dict[int, int]:
    found = Counter(d.task.priority for d in decided.decisions if d.action is Action.PLACE)
    return dict(sorted(found.items(), reverse=True))


def measure(size: tuple[int, int, int]) -> None:
    """Print one line for each form of one size."""
    for interleaved in (False, True):
        placed = []
        for written_out in (False, True):
            snapshot = Snapshot(
                nodes(size[0]), tasks(size[1], size[2], written_out=written_out, interleaved=interleaved)
            )
            start = time.perf_counter()
            decided = plan(snapshot, 0.0)
            seconds = time.perf_counter() - start
            placed.append([(d.task.key, d.node) for d in decided.decisions if d.action is Action.PLACE])
            form = ("written out" if written_out else "devices") + (", interleaved" if interleaved else "")
            print(
                f"{size!s:>18} {form:<26} {seconds:8.3f} s  holds {len(decided.holds):6}  {placed_by_priority(decided)}"
            )
        if placed[0] != placed[1]:
            raise SystemExit("the two forms placed different tasks")


def main() -> None:
    sizes = [tuple(int(part) for part in text.split(",")) for text in sys.argv[1:]] or SIZES
    for size in sizes:
        measure(size)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
