"""``gputask operator``: the operator in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from gputask.cli.errors import BadInputError, CommandError, Exit, NotReachableError
from gputask.controller import app
from gputask.controller.election import Lease
from gputask.controller.preflight import ClusterUnusableError
from gputask.kube.config import connect
from gputask.kube.errors import KubeConfigError, Unreachable


def operate(
    *,
    kubeconfig: Path | None,
    metrics_host: str,
    metrics_port: int,
    lease_name: str | None,
    lease_namespace: str | None,
    lease_seconds: int,
    max_waiting: int | None,
    verbose: bool,
) -> int:
    """Run the operator on the cluster of ``kubeconfig`` (else of $KUBECONFIG, else of the pod it runs in).

    Without ``lease_name`` it acts at once, else while it holds that Lease (``lease_namespace``: the own one if None).
    ``max_waiting`` is how many tasks may wait; None is no limit.

    :raises BadInputError: kubeconfig, port or cluster cannot be used; one line.
    :raises NotReachableError: no API server answers.
    :raises CommandError: it stopped by itself.
    """
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("kopf").setLevel(logging.INFO if verbose else logging.WARNING)
    # Kopf warns that it does not handle signals; the program does.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    try:
        connection = connect(kubeconfig=kubeconfig)
        lease = Lease(lease_name, lease_namespace or connection.namespace, lease_seconds) if lease_name else None
        asyncio.run(app.run(connection, host=metrics_host, port=metrics_port, lease=lease, max_waiting=max_waiting))
    except (KubeConfigError, ClusterUnusableError) as error:
        raise BadInputError(f"gputask operator: {error}") from error
    except Unreachable as error:
        raise NotReachableError(f"gputask operator: no answer from the cluster: {error}") from error
    except app.OperatorFailedError as error:
        raise CommandError(f"gputask operator: {error}") from error
    except OSError as error:
        raise BadInputError(
            f"gputask operator: --metrics-port {metrics_port}: {error.strerror or error}; choose a free one"
        ) from error
    return Exit.FINE
