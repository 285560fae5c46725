"""Random clusters for properties of the planner."""

from __future__ import annotations

import random
from collections.abc import Callable

from support.cluster import Cluster, NodeBuilder, TaskBuilder, node, task

NAMES = ("cpu", "mem", "lic", "slot", "vram")


def random_cluster(seed: int, rename: Callable[[str], str] = str) -> Cluster:
    """A random cluster of unlike nodes, some running work and a queue of unlike tasks."""
    rng = random.Random(seed)
    cpu, mem, lic, slot, vram = (rename(name) for name in NAMES)
    cluster = Cluster(*(_random_node(rng, f"n{i}", cpu, mem, lic, slot, vram) for i in range(rng.randint(2, 5))))
    cluster.submit(*(_random_task(rng, f"old{i}", cpu, mem, lic, slot, vram) for i in range(8))).step(at=0)
    cluster.waiting.clear()
    cluster.holds = ()
    return cluster.submit(*(_random_task(rng, f"t{i}", cpu, mem, lic, slot, vram) for i in range(14)))


def _random_node(rng: random.Random, name: str, cpu: str, mem: str, lic: str, slot: str, vram: str) -> NodeBuilder:
    built = node(name).has({cpu: rng.choice([4, 8]), mem: rng.choice([10, 20])})
    if rng.random() < 0.5:
        built.has({lic: [f"k{i}" for i in range(rng.randint(1, 3))]})
    for card in range(rng.choice([0, 0, 1, 2])):
        built.card(str(card), **{slot: ["a", "b"], vram: rng.choice([8, 16])})
    return built


def _random_task(rng: random.Random, name: str, cpu: str, mem: str, lic: str, slot: str, vram: str) -> TaskBuilder:
    made = task(name, rng.choice([0, 0, 1, 5]), limit=rng.choice([None, None, 30.0, 60.0]))
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(["node", "card", "licence"])
        asked = {cpu: rng.randint(1, 5), mem: rng.randint(0, 8)}
        if kind == "card":
            made.wants(asked, devices=(rng.choice([1, 1, 2]), {slot: 1, vram: rng.randint(2, 9)}))
        elif kind == "licence":
            made.wants({**asked, lic: rng.choice(["0.5", "1", "1.5"])})
        else:
            made.wants(asked)
    return made
