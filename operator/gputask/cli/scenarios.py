"""From the objects of some files to a scenario: what the planner and the simulation work on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from gputask.api import names
from gputask.api.times import epoch
from gputask.cli.claims import Claims, find_claims, is_over
from gputask.cli.errors import BadInputError
from gputask.cli.files import Object, Objects, sim_annotation, sim_seconds
from gputask.cli.placements import Placer
from gputask.planner.model import Foreign
from gputask.simulate.scenario import ForeignUse, Millis, NodeVersion, Scenario, SimTask, seconds
from gputask.translate.nodes import planner_node
from gputask.translate.pods import foreign
from gputask.translate.tasks import ClassTable, TaskError, planner_task, read_task

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A scenario, and one line for each thing that is odd and stops nobody."""

    scenario: Scenario
    warnings: tuple[str, ...]


def build(objects: Objects, *, now: float, simulated: bool) -> Loaded:
    """The scenario of some files.

    :param now: t = 0, in seconds since the epoch.
    :param simulated: whether ``sim.gputask.dev/at`` and the like count, and date the rank of a task.
    :raises BadInputError: one line for each object that cannot be understood.
    """
    builder = _Builder(objects, now, simulated)
    loaded = builder.build()
    if builder.problems:
        raise BadInputError.of(builder.problems)
    return loaded


class _Builder:
    def __init__(self, objects: Objects, now: float, simulated: bool) -> None:
        self.problems: list[str] = []
        self._objects = objects
        self._now = now
        self._simulated = simulated
        self._classes = ClassTable()
        self._warnings: list[str] = []

    def build(self) -> Loaded:
        nodes = [version for found in self._objects.nodes if (version := self._node(found)) is not None]
        if not self._simulated:
            nodes = list({v.node.name: v for v in sorted(nodes, key=lambda v: -v.at)}.values())
        claims = find_claims(self._objects, self.problems)
        sims = [sim for found in self._objects.tasks if (sim := self._task(found, claims)) is not None]
        uses = [use for found in claims.foreign if (use := self._foreign(found)) is not None]
        if not self.problems:
            sims = self._placed(sims, claims, nodes, uses)
        return Loaded(Scenario(tuple(nodes), tuple(sims), tuple(uses)), tuple(self._warnings))

    def _read(self, found: Object, reader: Callable[[], T]) -> T | None:
        """What a reader makes of an object; only a server knows all of a Node's or a Pod's schema, so it may fail."""
        try:
            return reader()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            text = f"missing {error}" if isinstance(error, KeyError) else str(error)[:160]
            self.problems.append(f"{found}: cannot be read as a {found.kind}: {text}")
            return None

    def _at(self, found: Object) -> Millis | None:
        at = sim_seconds(found, names.SIM_AT, self.problems)
        return at if self._simulated else None

    def _until(self, found: Object) -> Millis | None:
        until = sim_seconds(found, names.SIM_UNTIL, self.problems)
        # Whatever is wrong with the other instant is said where that one is read.
        if until is not None and until < (sim_seconds(found, names.SIM_AT, []) or 0):
            at, end = (sim_annotation(found, key) for key in (names.SIM_AT, names.SIM_UNTIL))
            field = f"metadata.annotations[{names.SIM_UNTIL}]"
            self.problems.append(f"{found}: {field}: {end!r} is before its {names.SIM_AT}, {at!r}")
        return until if self._simulated else None

    # --- nodes and foreign pods ---------------------------------------------------------------------

    def _node(self, found: Object) -> NodeVersion | None:
        node = self._read(found, lambda: planner_node(found.manifest))
        if node is None:
            return None
        problems = node.resources.problems
        if problems:
            more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
            self._warnings.append(f"{found}: {problems[0]}{more}")
        if node.lives_until is not None:
            node = replace(node, lives_until=node.lives_until - self._now)
        drain = found.annotations.get(names.SIM_DRAIN, "false")
        if drain not in {"true", "false"}:
            field = f"metadata.annotations[{names.SIM_DRAIN}]"
            self.problems.append(f"{found}: {field}: {drain[:80]!r} is neither; write 'true' or 'false'")
        at = sim_seconds(found, names.SIM_AT, self.problems)
        return NodeVersion(node, at or 0, self._until(found), drain == "true")

    def _foreign(self, found: Object) -> ForeignUse | None:
        node = found.spec.get("nodeName") or found.status.get("nominatedNodeName")
        use = self._read(found, lambda: foreign(found.manifest))
        if use is None or not isinstance(node, str):
            return None
        at, until = self._at(found) or 0, self._until(found)
        runs = sim_seconds(found, names.SIM_RUNS, self.problems)
        if runs is not None and self._simulated:
            began = self._began(found) if found.status.get("startTime") else at
            ends = max(began + runs, at)
            until = ends if until is None else min(until, ends)
        return ForeignUse(node, use, at, until)

    def _began(self, found: Object) -> Millis:
        start = self._read(found, lambda: epoch(found.status["startTime"]))
        return round(((start or 0.0) - self._now) * 1000)

    # --- tasks --------------------------------------------------------------------------------------

    def _task(self, found: Object, claims: Claims) -> SimTask | None:
        over = is_over(found) or found.key in claims.ended
        if over or (found.metadata.get("deletionTimestamp") and found.key not in claims.running):
            return None
        at = self._at(found)
        try:
            task = read_task(found.manifest)
            words = planner_task(task, self._classes, created=self._rank_time(found, at))
        except TaskError as error:
            self.problems += [f"{found}: {line}" for line in error.lines]
            return None
        if task.spec.suspend:
            line = "spec.suspend: the task is suspended; set it to false to let it run"
            words = replace(words, unsupported=(line, *words.unsupported))
        return SimTask(
            words,
            at=at or 0,
            until=self._until(found),
            runs=sim_seconds(found, names.SIM_RUNS, self.problems),
            exit_code=self._exit_code(found),
            crash_limit=task.spec.restart_policy.limit,
            backoff=task.spec.restart_policy.backoff_seconds * 1000,
            preemptible=task.spec.preemptible and task.spec.lease is None,  # a lease has no pod that could be evicted
            min_runtime=task.spec.min_runtime_seconds * 1000,
            stops=sim_seconds(found, names.SIM_STOPS, self.problems) or 0,
        )

    def _rank_time(self, found: Object, at: Millis | None) -> float:
        """``sim/at`` in a simulation, else the creation; an object that was not created yet is the newest."""
        created = found.metadata.get("creationTimestamp")
        if at is not None or created is None:
            return seconds(at or 0)
        try:
            return epoch(created) - self._now
        except ValueError as error:
            self.problems.append(f"{found}: metadata.creationTimestamp: {error}")
            return 0.0

    def _exit_code(self, found: Object) -> int:
        text = sim_annotation(found, names.SIM_EXIT_CODE) or "0"
        if len(text) <= 3 and text.isdecimal() and int(text) < 256:
            return int(text)
        field = f"metadata.annotations[{names.SIM_EXIT_CODE}]"
        self.problems.append(f"{found}: {field}: {text[:80]!r} is no exit code; write '0' to '255'")
        return 0

    def _placed(
        self, sims: list[SimTask], claims: Claims, nodes: list[NodeVersion], uses: list[ForeignUse]
    ) -> list[SimTask]:
        by_node: defaultdict[str, list[Foreign]] = defaultdict(list)
        for use in uses:
            by_node[use.node].append(use.foreign)
        first = {version.node.name: version.node for version in sorted(nodes, key=lambda version: -version.at)}
        foreign_use = {name: tuple(found) for name, found in by_node.items()}
        placer = Placer(first, foreign_use, self._now, self.problems, self._warnings)
        return placer.place(sims, claims.running)
