"""Named bounds: those that every test run explores, and those that take minutes."""

from __future__ import annotations

from .rules import Bounds

QUICK = {
    "two-tasks": Bounds(tasks=2, nodes=1, attempts=1),
    "two-nodes": Bounds(tasks=1, nodes=2, attempts=2),
    "three-writes": Bounds(tasks=1, nodes=1, attempts=2, writes=3),
    "namesakes": Bounds(tasks=1, nodes=1, attempts=2, namesakes=2),
    "batched": Bounds(tasks=2, nodes=1, attempts=1, writes=1, batched=True),
    "extender": Bounds(tasks=2, nodes=2, writes=1, extender=True),
}

LONG = {
    "two-tasks-two-attempts": Bounds(tasks=2, nodes=1, attempts=2),
    "two-tasks-two-nodes": Bounds(tasks=2, nodes=2, attempts=1),
    "two-tasks-three-writes": Bounds(tasks=2, nodes=1, attempts=1, writes=3),
    "two-tasks-batched": Bounds(tasks=2, nodes=1, attempts=1, batched=True),
    "two-nodes-namesakes": Bounds(tasks=1, nodes=2, attempts=2, namesakes=2),
    "three-attempts": Bounds(tasks=1, nodes=1, attempts=3, namesakes=2),
    "extender-two-writes": Bounds(tasks=2, nodes=2, extender=True),
}
