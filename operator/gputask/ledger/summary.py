"""Two short lines for the columns of ``kubectl get gpunodes``: what is used and what is free on a node."""

from __future__ import annotations

from gputask.ledger.entries import NodeLedger
from gputask.planner.model import PODS
from gputask.resources.amounts import format_amount
from gputask.resources.pools import Health, UnknownPool

LENGTH = 120


def summary(ledger: NodeLedger) -> dict[str, str]:
    """``used`` and ``free`` of the declared pools, those of devices summed over the healthy ones; ``devices`` as
    healthy/all. Free saturates at 0 for each device by itself: 6000 free in sum may fit no task (B38)."""
    used: dict[str, int] = {}
    free: dict[str, int] = {}
    unknown: set[str] = set()
    healthy = [device for device in ledger.resources.devices if device.health is Health.HEALTHY]
    pools = [(name, name, pool) for name, pool in ledger.resources.pools.items() if name != PODS]
    pools += [(name, f"{name}/{device.id}", pool) for device in healthy for name, pool in device.pools.items()]
    for name, key, pool in pools:
        taken = ledger.used(key)
        used[name] = used.get(name, 0) + taken
        free[name] = free.get(name, 0) + max(0, pool.capacity - ledger.occupied(key))
        if isinstance(pool, UnknownPool):
            unknown.add(name)
    free_texts = {name: "unknown" if name in unknown else format_amount(units) for name, units in free.items()}
    return {
        "devices": f"{len(healthy)}/{len(ledger.resources.devices)}",
        "used": _line({name: format_amount(units) for name, units in used.items() if units}),
        "free": _line(free_texts),
    }


def _line(texts: dict[str, str]) -> str:
    text = ", ".join(f"{name}={text}" for name, text in sorted(texts.items()))
    return text if len(text) <= LENGTH else text[: LENGTH - 3] + "..."
