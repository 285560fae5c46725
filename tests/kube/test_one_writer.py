"""Every write to a cluster is in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import gputask.kube

PACKAGE = Path(gputask.kube.__file__).parent.parent
WRITING = {"create", "replace", "patch", "delete", "bind"}
PLACE = PACKAGE / "kube" / "writes.py"


def writing_calls(path: Path) -> Iterator[str]:
    """Calls of a writing method on something called client, however it is reached."""
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in WRITING:
            owner = call.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if name.strip("_") == "client":
                yield f"{path.relative_to(PACKAGE)}:{call.lineno}"


def test_only_writes_py_writes() -> None:
    # The embedded cluster plays the other side: its kubelets and controllers are no part of the operator.
    others = [path for path in PACKAGE.rglob("*.py") if path != PLACE and PACKAGE / "local" not in path.parents]
    assert [call for path in others for call in writing_calls(path)] == []


def test_the_search_finds_what_it_looks_for() -> None:
    assert len(list(writing_calls(PLACE))) >= 10
