"""Writes the stream as manifests: three unlike nodes, and six classes of tasks submitted tick by tick.

    python generate.py --cards 64 --form devices --tick 4.75 --seconds 180 --out some-folder

Without options it writes the nodes.yaml and tasks.yaml of this folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Literal

import yaml

Manifest = dict[str, Any]
Form = Literal["written-out", "devices"]

JOIN_SECONDS = 3.0
"""The nodes join so long before the first tick."""


@dataclass(frozen=True)
class TaskClass:
    """One row of the stream: ``each`` tasks of it on every ``every``-th tick."""

    name: str
    priority: int
    runs: int
    variants: Callable[[int, Form], list[Manifest]]
    each: int = 1
    every: int = 1


def variant(name: str, **resources: Any) -> Manifest:
    """A variant of plain amounts. Memory is in MiB, as the stream counts it."""
    amounts = {"cpu": resources["cpu"], "runtime/aaa": resources["rt"]}
    if "mem" in resources:
        amounts["memory"] = f"{resources['mem']}Mi"
    return {"name": name, "resources": amounts}


def on_a_card(cards: int, form: Form) -> list[Manifest]:
    """One slot and 20 000 MB on the same card: any card of the node, or each of ``cards`` cards named outright."""
    common = {"cpu": 4, "runtime/aaa": 1, "gpuHostMB": 12000}
    card = {"gpuSlot": 1, "gpuMemoryMB": 20000}
    if form == "devices":
        return [{"name": "gpu", "resources": common, "devices": {"count": 1, "resources": card}, "minTimeSeconds": 600}]
    return [
        {
            "name": f"gpu-{s}",
            "resources": {**common, **{f"{pool}/{s}": amount for pool, amount in card.items()}},
            "minTimeSeconds": 600,
        }
        for s in range(cards)
    ]


def card_or_memory(cards: int, form: Form) -> list[Manifest]:
    """A card, else plain memory."""
    return [*on_a_card(cards, form), {**variant("cpu", cpu=4, rt=1, mem=12000), "minTimeSeconds": 600}]


def fixed(**resources: Any) -> Callable[[int, Form], list[Manifest]]:
    """The one variant of a class that needs no card."""
    return lambda cards, form: [variant("cpu", **resources)]


CLASSES = (
    TaskClass("deg", 1, 8, fixed(cpu=1, mem=2000, rt=1), each=6),
    TaskClass("two", 2, 12, fixed(cpu=2, mem=6000, rt=1)),
    TaskClass("agent", 0, 20, fixed(cpu="0.125", mem=384, rt="0.125")),
    TaskClass("wide", 4, 20, fixed(cpu=4, mem=12000, rt=1), every=5),
    TaskClass("gpu-pref", 4, 15, card_or_memory, every=3),
    TaskClass("gpu-only", 8, 10, on_a_card, every=10),
)
"""In the order of their submission inside a tick."""


def nodes() -> Iterator[Manifest]:
    """Two nodes without a card and one with a card of one slot; they join a tenth of a second apart."""
    plain = {"runtime/aaa": "sum(8)"}
    card = {"gpuSlot/0": "[u0#0]", "gpuMemoryMB/0": "sum(72000)", "gpuHostMB": "sum(30000)"}
    for i, (name, resources) in enumerate([("cpu-1", plain), ("cpu-2", plain), ("gpu-1", {**plain, **card})]):
        declared = "\n".join(f'{key}: "{descriptor}"' for key, descriptor in resources.items())
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {
                    "gputask.dev/resources": declared + "\n",
                    "sim.gputask.dev/node": "true",
                    "sim.gputask.dev/at": f"{i / 10:g}",
                },
            },
            "status": {"allocatable": {"cpu": "8", "memory": "60000Mi", "pods": "110"}},
        }


def tasks(*, cards: int, form: Form, tick: float, length: float) -> Iterator[Manifest]:
    """All tasks of ``length`` seconds of submitting, in the order of their submission."""
    ticks = takewhile(lambda i: i * tick < length, count())
    for i in ticks:
        number = 0
        for task_class in CLASSES:
            for _ in range(task_class.each if i % task_class.every == 0 else 0):
                # Names sort as the tasks are submitted: equal instants are ordered by name.
                name = f"t{i:03}-{number:02}-{task_class.name}"
                yield task(name, task_class, task_class.variants(cards, form), JOIN_SECONDS + i * tick)
                number += 1


def task(name: str, of: TaskClass, variants: list[Manifest], at: float) -> Manifest:
    """One GpuTask that never evicts and is never evicted."""
    return {
        "apiVersion": "gputask.dev/v1alpha1",
        "kind": "GpuTask",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"sim.gputask.dev/at": f"{at:g}", "sim.gputask.dev/runs": str(of.runs)},
        },
        "spec": {
            "priority": of.priority,
            "preemptionPolicy": "Never",
            "preemptible": False,
            "variants": variants,
            "template": {
                "spec": {
                    "containers": [{"name": "main", "image": "busybox:1.37", "command": ["sleep", str(of.runs)]}],
                    "restartPolicy": "Never",
                }
            },
        },
    }


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, and no aliases: every manifest stands for itself."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def write(path: Path, manifests: Iterator[Mapping[str, Any]]) -> None:
    """One YAML document for each manifest."""
    with path.open("w") as out:
        yaml.dump_all(manifests, out, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=120)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the stream as nodes.yaml and tasks.yaml.")
    parser.add_argument("--cards", type=int, default=2, help="cards that a task writes out; only card 0 exists")
    parser.add_argument("--form", choices=["written-out", "devices"], default="written-out")
    parser.add_argument("--tick", type=float, default=2.0, help="seconds between two ticks")
    parser.add_argument("--seconds", type=float, default=45.0, help="how long tasks are submitted")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    write(options.out / "nodes.yaml", nodes())
    stream = tasks(cards=options.cards, form=options.form, tick=options.tick, length=options.seconds)
    write(options.out / "tasks.yaml", stream)


if __name__ == "__main__":
    main()
