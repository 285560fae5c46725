"""``gputask explain``: why one task waits, and what would make it run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputask.cli.main import run
from support.manifests import gputask, node, reserved, variant, write

NOW = "2026-01-31T12:00:00Z"
Explained = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Explained:
    """Explain one task of some manifests: the exit code, and what JSON says."""

    def explain(task: str, *manifests: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        code = run(["explain", task, "-f", write(tmp_path, *manifests), "--now", NOW, "-o", "json"])
        return code, json.loads(capsys.readouterr().out)

    return explain


def test_a_blocked_task_is_told_what_is_short_who_has_it_and_what_would_make_it_run(explained: Explained) -> None:
    busy = reserved(gputask("busy", variant("a", c=6), timeLimitSeconds=600), node="n1", variant="a", startTime=NOW)
    code, shape = explained("t", node("n1", c=10), busy, gputask("t", variant("a", c=7)))
    assert code == 0
    assert (shape["phase"], shape["feasible"], shape["position"]) == ("Pending", True, 1)
    (cell,) = shape["matrix"]
    assert (cell["cause"], cell["asked"], cell["free"], cell["short"]) == ("Short", "7", "4", "3")
    (way,) = shape["wouldRunIf"]
    assert (way["node"], way["variant"], way["freed"], way["heldBy"]) == ("n1", "a", {"c": "3"}, ["default/busy"])
    assert way["notBefore"] == "2026-01-31T12:10:00Z", "when its time limit is over"


def test_a_task_that_no_node_can_run_is_infeasible_and_nothing_would_help(explained: Explained) -> None:
    code, shape = explained("t", node("n1", c=10), gputask("t", variant("a", c=11)))
    assert code == 1
    assert (shape["feasible"], shape["wouldRunIf"]) == (False, [])


def test_the_way_with_the_least_to_be_freed_comes_first(explained: Explained) -> None:
    full = reserved(gputask("x", variant("a", c=9)), node="n1", variant="a", startTime=NOW)
    half = reserved(gputask("y", variant("a", c=5)), node="n2", variant="a", startTime=NOW)
    nodes = (node("n1", c=10), node("n2", c=10))
    _, shape = explained("t", *nodes, full, half, gputask("t", variant("a", c=6)))
    assert [(way["node"], way["freed"]) for way in shape["wouldRunIf"]] == [("n2", {"c": "1"}), ("n1", {"c": "5"})]


def test_a_hold_of_higher_rank_is_somebody_who_has_the_room(explained: Explained) -> None:
    busy = reserved(gputask("busy", variant("a", c=4)), node="n1", variant="a", startTime=NOW)
    high = gputask("high", variant("a", c=8), priority=9)
    _, shape = explained("low", node("n1", c=10), busy, high, gputask("low", variant("a", c=3)))
    assert shape["position"] == 2
    assert {cell["cause"] for cell in shape["matrix"]} == {"Gap"}
    assert "default/high" in shape["wouldRunIf"][0]["heldBy"]


def test_a_task_that_starts_now_has_no_reason_to_wait(explained: Explained) -> None:
    code, shape = explained("t", node("n1", c=10), gputask("t", variant("a", c=3)))
    assert (code, shape["feasible"], shape["matrix"]) == (0, True, [])


def test_a_running_task_is_said_to_run(explained: Explained) -> None:
    busy = reserved(gputask("busy", variant("a", c=4)), node="n1", variant="a", startTime=NOW)
    code, shape = explained("default/busy", node("n1", c=10), busy)
    assert (code, shape["phase"], shape["position"], shape["matrix"]) == (0, "Running", None, [])


def test_without_nodes_the_reason_says_so(explained: Explained) -> None:
    code, shape = explained("t", gputask("t", variant("a", c=4)))
    assert (code, [cell["message"] for cell in shape["matrix"]]) == (1, ["there is no node"])


def test_a_task_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "ghost", "-f", write(tmp_path, node("n1"))]) == 2
    assert capsys.readouterr().err == ("gputask explain: default/ghost: no GpuTask of this name waits or runs here\n")


def test_the_table_is_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "t", "-f", write(tmp_path, node("n1", c=1), gputask("t", variant("a", c=2)))]) == 1
    assert "no node could ever run it" in capsys.readouterr().out
