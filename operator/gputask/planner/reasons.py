"""R12: why a task waits, as data. Counts by cause for all nodes at once, and the cells of one node.

A node's cause: Short if the option does not fit beside what runs; else Held if a hold of higher rank leaves
nothing at all, else Gap; NodeOut with the filter's message; NodeLife; Unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gputask.planner.labels import largest_request
from gputask.planner.model import Cause, Reason
from gputask.planner.nodes import NodeState, Place, holders
from gputask.planner.options import DevicePart, Option
from gputask.planner.placement import choose, start
from gputask.planner.probe import Probe
from gputask.planner.table import Bools, Table, View
from gputask.resources.amounts import format_amount


def count_causes(probe: Probe, table: Table, excluded: Bools) -> Mapping[Cause, int]:
    """How many nodes refuse an option that fits nowhere now, by cause."""
    table.sync()
    out = excluded | ~probe.usable
    lasting = probe.lasting & ~out
    free = probe.fits(View.NOW, lasting)
    held = free & table.held
    unknown = np.zeros_like(free)
    for state in table.with_unknown:
        unknown[state.index] = lasting[state.index] and not held[state.index] and _asks_unknown(state, probe.option)
    causes = {
        Cause.NODE_OUT: out,
        Cause.NODE_LIFE: ~out & ~lasting,
        Cause.UNKNOWN: unknown,
        Cause.SHORT: lasting & ~held & ~unknown,
        Cause.HELD: held & probe.without_room(),
        Cause.GAP: held & ~probe.without_room(),
    }
    return {cause: count for cause, mask in causes.items() if (count := int(mask.sum()))}


def cells(state: NodeState, option: Option) -> list[Reason]:
    """Every resource that keeps an option from starting on a usable node; empty if it starts there."""
    found = [*_node_cells(state, option)]
    for part in option.parts:
        found += _part_cells(state, option, part)
    if found or start(state, option) is not None:
        return found
    if choose(state, option, state.now) is None:
        text = f"{state.node.name}: each amount is free, but not all of them on the same devices and labels"
        return [_reason(state, option, 0, Cause.SHORT, text)]
    return list(_room_cells(state, option))


def _node_cells(state: NodeState, option: Option) -> Iterator[Reason]:
    for key, units in option.amounts:
        yield from _key_cells(state, option, 0, key, state.flat(key), units)


def _part_cells(state: NodeState, option: Option, part: DevicePart) -> list[Reason]:
    """One reason for each device that is short, if too few devices cover the part."""
    places = state.places(part.pools, part.named)
    short = [
        [
            cell
            for flat, units in zip(place.flats, part.units, strict=True)
            for cell in _key_cells(state, option, place.position, flat, flat, units)
        ]
        for place in places
    ]
    if sum(1 for cell in short if not cell) >= part.count:
        return []
    found = [cell for cells_of_place in short for cell in cells_of_place]
    if len(places) < part.count and not found:
        found = list(_absent_cells(state, option, part, len(places)))
    return found


def _absent_cells(state: NodeState, option: Option, part: DevicePart, devices: int) -> Iterator[Reason]:
    for pool, units in zip(part.pools, part.units, strict=True):
        key = pool if part.named is None else f"{pool}/{part.named[0]}"
        text = f"{state.node.name}: asks {key} on {part.count} device(s), and {devices} have it"
        yield _reason(state, option, 0, Cause.SHORT, text, resource=key, asked=units, free=0, capacity=0, short=units)


def _key_cells(
    state: NodeState, option: Option, position: int, written: str, flat: str | None, units: int
) -> Iterator[Reason]:
    """Unknown or Short, for one key of one node or device."""
    if flat is not None and state.is_unknown(flat):
        text = f"{state.node.name}: how much {flat} there is is not known"
        yield _reason(state, option, position, Cause.UNKNOWN, text, resource=flat, asked=units)
        return
    free = _free(state, flat)
    if flat is not None and free >= units:
        return
    capacity = state.capacity(flat)
    text = (
        f"{state.node.name}: asks {format_amount(units)} {flat or written}, "
        f"{format_amount(free)} free of {format_amount(capacity)}"
    )
    yield _reason(
        state,
        option,
        position,
        Cause.SHORT,
        text,
        resource=flat or written,
        asked=units,
        free=free,
        capacity=capacity,
        short=units - free,
        held_by=_users(state, flat),
    )


def _room_cells(state: NodeState, option: Option) -> Iterator[Reason]:
    """The resources of which the holds leave too little."""
    asked = [(0, flat, units) for key, units in option.amounts if (flat := state.flat(key)) is not None]
    for part in option.parts:
        places = state.places(part.pools, part.named)
        tight = [place for place in places if _is_tight(state, place, part)]
        if len(places) - len(tight) < part.count:
            asked += [
                (place.position, flat, units)
                for place in tight
                for flat, units in zip(place.flats, part.units, strict=True)
            ]
    found = False
    for position, flat, units in asked:
        left = state.room.limit(flat)
        if left < units:
            found = True
            yield _held_cell(state, option, position, flat, units, left)
    if not found:
        by = tuple(o.task for o in state.holds)
        text = f"{state.node.name}: fits, but not beside the room held for {_names(by)}"
        yield _reason(state, option, 0, Cause.GAP, text, held_by=by)


def _is_tight(state: NodeState, place: Place, part: DevicePart) -> bool:
    return any(
        min(state.room.limit(flat), state.now.available(flat)) < units
        for flat, units in zip(place.flats, part.units, strict=True)
    )


def _held_cell(state: NodeState, option: Option, position: int, flat: str, units: int, left: int) -> Reason:
    by = holders(state.holds, flat)
    text = (
        f"{state.node.name}: asks {format_amount(units)} {flat}, and the room held for {_names(by)} "
        f"leaves {format_amount(left)}"
    )
    return _reason(
        state,
        option,
        position,
        Cause.GAP if left else Cause.HELD,
        text,
        resource=flat,
        asked=units,
        free=left,
        capacity=state.capacity(flat),
        short=units - left,
        held_by=by,
    )


def _reason(
    state: NodeState,
    option: Option,
    position: int,
    cause: Cause,
    message: str,
    *,
    resource: str | None = None,
    asked: int | None = None,
    free: int | None = None,
    capacity: int | None = None,
    short: int | None = None,
    held_by: tuple[str, ...] = (),
) -> Reason:
    return Reason(
        cause=cause,
        message=message,
        node=state.node.name,
        variant=option.names[position],
        variant_index=option.first + position,
        resource=resource,
        device=state.device_of.get(resource or ""),
        asked=asked,
        free=free,
        capacity=capacity,
        short=short,
        held_by=held_by,
    )


def _free(state: NodeState, flat: str | None) -> int:
    """The most units that one request can take beside what runs."""
    if flat is None:
        return 0
    table = state.now.labels.get(flat)
    return max(0, state.now.available(flat)) if table is None else largest_request(table)


def _users(state: NodeState, flat: str | None) -> tuple[str, ...]:
    if flat is None:
        return ()
    foreign = [f.owner for f in state.node.foreign if dict(f.amounts).get(flat)]
    return (*holders(state.running, flat), *sorted(foreign))


def _names(tasks: tuple[str, ...], most: int = 3) -> str:
    return ", ".join(tasks[:most]) + (f" and {len(tasks) - most} more" if len(tasks) > most else "")


def _asks_unknown(state: NodeState, option: Option) -> bool:
    flats = [flat for key, _ in option.amounts if (flat := state.flat(key)) is not None]
    flats += [f for part in option.parts for place in state.places(part.pools, part.named) for f in place.flats]
    return any(state.is_unknown(flat) for flat in flats)
