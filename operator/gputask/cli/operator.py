"""``gputask operator``: the operator in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from gputask.cli.errors import BadInputError, CommandError, Exit, NotReachableError
from gputask.controller import app
from gputask.controller.preflight import ClusterUnusableError
from gputask.kube.config import connect
from gputask.kube.errors import KubeConfigError, Unreachable


def operate(*, kubeconfig: Path | None, metrics_port: int, verbose: bool) -> int:
    """Run the operator on the cluster of ``kubeconfig`` (else of $KUBECONFIG, else of the pod it runs in).

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
        asyncio.run(app.run(connection, port=metrics_port))
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
