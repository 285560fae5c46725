"""Where the API server is and how to prove who we are: kubeconfig or the service account of our own pod.

Reading kubeconfigs (contexts, exec plugins, token files, OIDC) is left to the official ``kubernetes`` package; only
its result is used here.
"""

from __future__ import annotations

import importlib
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gputask.kube.errors import KubeConfigError


def _no_authorization() -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Connection:
    """How to talk to one API server.

    ``authorization`` gives the value of that header for a request made now: tokens of service accounts and exec
    plugins are renewed behind it. ``ssl`` is None for plain HTTP.
    """

    server: str
    ssl: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    authorization: Callable[[], str | None] = _no_authorization
    namespace: str = "default"
    """The namespace of the context, or of our own pod."""


_DEFAULT = "~/.kube/config"
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def connect(*, kubeconfig: Path | None = None, context: str | None = None) -> Connection:
    """The connection by ``kubeconfig``, else by ``$KUBECONFIG`` or ``~/.kube/config``, else as a pod of the cluster.

    :raises KubeConfigError: one line.
    """
    # Imported here: it takes half a second and a fast command may never need it.
    from kubernetes import client

    config: Any = importlib.import_module("kubernetes.config")  # untyped
    configuration = client.Configuration()
    if kubeconfig is not None and not kubeconfig.is_file():
        raise KubeConfigError(f"kubeconfig {kubeconfig}: no such file; name an existing one with --kubeconfig")
    path = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG") or _DEFAULT
    where = f"kubeconfig {path}"
    try:
        if kubeconfig is None and _is_pod():
            config.load_incluster_config(client_configuration=configuration)
            return _connection(configuration, namespace=_OWN_NAMESPACE.read_text().strip())
        config.load_kube_config(config_file=path, context=context, client_configuration=configuration)
        _, active = config.list_kube_config_contexts(config_file=path)
        return _connection(configuration, namespace=active["context"].get("namespace") or "default")
    except config.ConfigException as error:
        raise KubeConfigError(f"{where}: {_one_line(error)}; name a valid one with --kubeconfig") from error
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise KubeConfigError(f"{where}: cannot be read: {_one_line(error)}") from error


def _is_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and _OWN_NAMESPACE.is_file() and "KUBECONFIG" not in os.environ


def _connection(configuration: Any, *, namespace: str) -> Connection:
    def authorization() -> str | None:
        # The key was "authorization" before version 36 of the package. Asking renews what has expired.
        value: str | None = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return value

    return Connection(
        server=configuration.host.rstrip("/"),
        ssl=_ssl_context(configuration) if configuration.host.startswith("https") else None,
        authorization=authorization,
        namespace=namespace,
    )


def _ssl_context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
