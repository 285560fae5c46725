"""Facts about the repository that packaging and every user rely on."""

import operator
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


def test_the_folder_operator_is_no_package_and_leaves_the_standard_library_alone():
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert hasattr(operator, "itemgetter")


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_the_locks_have_a_hash_for_each_requirement_and_no_address(lock):
    text = (ROOT / lock).read_text()
    requirements = re.findall(r"^[a-z0-9].*?(?=^[a-z0-9]|\Z)", text, re.M | re.S)
    assert len(requirements) > 20
    assert all("--hash=sha256:" in requirement for requirement in requirements)
    assert "://" not in text
    assert "--index" not in text


def test_every_dependency_is_in_the_lock():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = {line.split("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    assert {re.split(r"[><=]", name)[0] for name in project["dependencies"]} <= locked


def test_the_architecture_page_names_files_that_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`((?:operator|tests|crds|docs|examples)/[\w./-]+)`", text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_make_target_that_the_readme_uses_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    used = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert used
    assert used <= targets


def test_no_file_names_a_path_of_somebodys_machine():
    # Put together here so that this file does not contain what it forbids.
    homes = re.compile(r"(?:^|[^A-Za-z0-9_.])/(?:" + "|".join(["root", "home/[a-z]+", "work"]) + r")/")
    found = [p.name for p in tracked() if p.suffix != ".lock" and homes.search(p.read_text(errors="ignore"))]
    assert found == []


def test_nothing_but_one_module_writes_to_the_cluster():
    writes = re.compile(r"client\.(create|replace|patch|delete|bind)\(")
    writers = {
        str(path.relative_to(ROOT / "operator/gputask"))
        for path in (ROOT / "operator/gputask").rglob("*.py")
        if writes.search(path.read_text())
    }
    assert writers == {"kube/writes.py"}
