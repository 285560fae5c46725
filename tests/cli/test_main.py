"""The console script itself: help, version, exit codes."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from gputask.cli.errors import BadInputError, CommandError, NotReachableError
from gputask.cli.main import run


def test_help_names_every_command_and_imports_none_of_their_work():
    heavy = ("numpy", "pydantic", "aiohttp", "kopf", "yaml", "gputask.planner")
    script = (
        "import sys; from gputask.cli.main import run; code = run(['--help']);"
        f"print([name for name in {heavy} if name in sys.modules], code)"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.endswith("[] 0\n")
    for command in ("plan", "simulate"):
        assert command in out


def test_version(capsys: pytest.CaptureFixture[str]):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"gputask {version('gputask')}\n"


def test_no_arguments_is_the_help_and_bad_input(capsys: pytest.CaptureFixture[str]):
    assert run([]) == 2
    captured = capsys.readouterr()
    assert "Usage" in captured.out
    assert captured.err == ""


@pytest.mark.parametrize(("error", "code"), [(CommandError, 1), (BadInputError, 2), (NotReachableError, 3)])
def test_an_error_is_its_lines_and_its_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: type[CommandError], code: int
):
    def fail(*_: object, **__: object) -> int:
        raise error("one", "two")

    monkeypatch.setattr("gputask.cli.plan.plan_files", fail)
    assert run(["plan", "-f", "x"]) == code
    assert capsys.readouterr().err == "one\ntwo\n"


def test_a_reader_that_goes_away_is_no_error():
    simulate = [sys.executable, "-m", "gputask.cli.main", "simulate", "-f", "examples/hyperqueue-stream", "-o", "json"]
    with subprocess.Popen(simulate, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert '"node-added"' in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0
