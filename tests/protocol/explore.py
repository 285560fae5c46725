"""Explore the model of the admission protocol: `python tests/protocol/explore.py --config two-tasks`.

Prints states, transitions and, if a promise is broken, the shortest trace to it. Exit 1 if one is broken.
"""

from __future__ import annotations

import argparse
import sys
import time

from model.configurations import LONG, QUICK
from model.explore import explore
from model.recovery import recover
from model.rules import PROTOCOL, Bounds, Rules
from model.state import State
from model.trace import lines
from model.variations import MUTATIONS


def main(arguments: list[str] | None = None) -> int:
    """Without arguments: all quick configurations of the protocol as it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--config", choices=[*QUICK, *LONG, "quick", "long"], default=None, help="default: quick")
    parser.add_argument("--mutation", choices=[mutation.name for mutation in MUTATIONS], help="drop one rule")
    chosen = parser.parse_args(arguments)
    rules, bounds = PROTOCOL, _bounds(chosen.config or "quick")
    if chosen.mutation:
        mutation = next(mutation for mutation in MUTATIONS if mutation.name == chosen.mutation)
        rules = mutation.rules
        bounds = _bounds(chosen.config) if chosen.config else {mutation.name: mutation.bounds}
    print(
        f"{'configuration':24} {'states':>9} {'transitions':>12} {'violations':>10} {'unrecovered':>11} {'seconds':>8}"
    )
    return max(_report(name, each, rules) for name, each in bounds.items())


def _bounds(name: str) -> dict[str, Bounds]:
    groups = {"quick": QUICK, "long": LONG}
    return groups[name] if name in groups else {name: (QUICK | LONG)[name]}


def _report(name: str, bounds: Bounds, rules: Rules) -> int:
    started = time.monotonic()
    result = explore(bounds, rules)
    known_good: set[State] = set()
    unrecovered = 0 if result.broken else sum(bool(recover(state, known_good)) for state in result.reached)
    seconds = time.monotonic() - started
    counts = f"{result.states:>9,} {result.transitions:>12,} {int(bool(result.broken)):>10} {unrecovered:>11,}"
    print(f"{name:24} {counts} {seconds:>8.1f}", flush=True)
    for line in lines(result.trace, result.broken):
        print(line)
    return int(bool(result.broken or unrecovered))


if __name__ == "__main__":
    sys.exit(main())
