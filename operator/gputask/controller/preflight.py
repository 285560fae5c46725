"""What must be true of the cluster before the operator starts; each thing that is not is one clear line."""

from __future__ import annotations

from gputask.api import names
from gputask.kube.client import Client
from gputask.kube.errors import Forbidden, KubeError, NotFound, Unauthorized, Unreachable


class ClusterUnusableError(Exception):
    """The cluster answers, but the operator cannot work with it. One line: what is missing, and the remedy."""


async def check(client: Client) -> None:
    """Whether the API server answers, lets us in and serves our resources.

    :raises Unreachable: no answer.
    :raises ClusterUnusableError: the resources are not installed, or not ours to read.
    """
    server = client.connection.server
    try:
        await client.get_path("/version")
        served = await client.get_path(f"/apis/{names.API_VERSION}")
    except NotFound:
        served = {}
    except (Unauthorized, Forbidden) as error:
        raise ClusterUnusableError(f"{server} does not let us in: {error}; check the kubeconfig's user") from error
    except Unreachable:
        raise
    except KubeError as error:
        raise ClusterUnusableError(f"{server} does not work: {error}") from error
    found = {resource["name"] for resource in served.get("resources") or ()}
    missing = sorted({names.GPUTASK_PLURAL, names.GPUNODE_PLURAL} - found)
    if missing:
        crds = ", ".join(f"{plural}.{names.GROUP}" for plural in missing)
        raise ClusterUnusableError(f"{server} does not serve {crds}: install them with: kubectl apply -f crds/")
