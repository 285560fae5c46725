"""The model can be run by hand."""

import subprocess
import sys
from pathlib import Path

COMMAND = Path(__file__).with_name("explore.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, COMMAND, *arguments], capture_output=True, text=True, check=False)


def test_a_configuration_prints_its_counts():
    done = run("--config", "extender")
    assert done.returncode == 0
    name, states, transitions, violations, unrecovered, _ = done.stdout.splitlines()[1].split()
    assert (name, violations, unrecovered) == ("extender", "0", "0")
    assert int(transitions.replace(",", "")) > int(states.replace(",", "")) > 1000


def test_a_mutation_prints_the_shortest_trace_by_protocol_lines():
    done = run("--mutation", "no claim")
    assert done.returncode == 1
    assert "line 5   prepare the reservation t0-1 on n0" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("broken: an ended task runs again")
