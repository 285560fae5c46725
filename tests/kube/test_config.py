"""Kubeconfigs: what is taken from them, and one line for each thing that is wrong."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from gputask.kube.config import connect
from gputask.kube.errors import KubeConfigError


def write(
    path: Path, *, user: dict[str, str] | None = None, server: str = "http://127.0.0.1:1", **more: object
) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return path


def test_server_namespace_and_token_are_taken(tmp_path: Path) -> None:
    found = connect(kubeconfig=write(tmp_path / "k", user={"token": "secret"}, server="http://127.0.0.1:1/"))
    assert (found.server, found.namespace, found.ssl) == ("http://127.0.0.1:1", "team", None)
    assert found.authorization() == "Bearer secret"


def test_no_credentials_are_no_header(tmp_path: Path) -> None:
    assert connect(kubeconfig=write(tmp_path / "k")).authorization() is None


def test_a_user_with_a_password_is_basic(tmp_path: Path) -> None:
    found = connect(kubeconfig=write(tmp_path / "k", user={"username": "me", "password": "pw"}))
    assert found.authorization() == "Basic " + base64.b64encode(b"me:pw").decode()


def test_https_gets_a_verifying_context(tmp_path: Path) -> None:
    found = connect(kubeconfig=write(tmp_path / "k", server="https://127.0.0.1:1"))
    assert found.ssl is not None
    assert found.ssl.check_hostname


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "k")))
    assert connect().server == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    "text",
    ["", "not: [closed", "just text", "apiVersion: v1\nkind: Config\n", "clusters: 5\ncontexts: 5\nusers: 5\n"],
)
def test_what_is_no_kubeconfig_is_one_line_that_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(KubeConfigError) as caught:
        connect(kubeconfig=path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_and_a_context_that_is_not_in_it(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match=r"no such file; name an existing one with --kubeconfig"):
        connect(kubeconfig=tmp_path / "missing")
    with pytest.raises(KubeConfigError, match="other"):
        connect(kubeconfig=write(tmp_path / "k"), context="other")
