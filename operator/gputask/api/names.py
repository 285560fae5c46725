"""Names that appear in manifests: the API group, labels, annotations, environment."""

from __future__ import annotations

from enum import StrEnum

GROUP = "gputask.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

GPUTASK_KIND = "GpuTask"
GPUTASK_PLURAL = "gputasks"
GPUNODE_KIND = "GpuNode"
GPUNODE_PLURAL = "gpunodes"

SCHEDULER_NAME = "gputask-direct"
"""Scheduler name of the pods we bind ourselves; no process serves it, so nobody else binds them."""

FINALIZER = f"{GROUP}/ledger"
"""On a GpuNode: it stays until its Node is gone and no reservation is left."""

# --- on Nodes, written by admins ----------------------------------------------------------------

RESOURCES_ANNOTATION = f"{GROUP}/resources"
DEVICES_ANNOTATION = f"{GROUP}/devices"
LIVES_UNTIL_ANNOTATION = f"{GROUP}/lives-until"
"""RFC 3339: when the node goes away. Absent = it stays."""

AGENT_LABEL = f"{GROUP}/agent"
"""On the Lease of a node agent, which has the name of its node."""

# --- on Namespaces, written by whoever may ---------------------------------------------------------------

QUEUE_ANNOTATION = f"{GROUP}/queue"


class QueueMode(StrEnum):
    """What becomes of the tasks of a namespace; without the annotation they run."""

    HOLD = "Hold"
    """Nothing new starts; what runs goes on."""
    HOLD_AND_DRAIN = "HoldAndDrain"
    """Nothing new starts, and what runs is evicted: it waits at its old rank."""


# --- on pods that we make -----------------------------------------------------------------------

TASK_LABEL = f"{GROUP}/task"
TASK_UID_LABEL = f"{GROUP}/task-uid"
ATTEMPT_ANNOTATION = f"{GROUP}/attempt"
ALLOC_PREFIX = f"alloc.{GROUP}/"
"""Prefix that only the operator may write on pods; a template that uses it is refused."""

# --- read by simulated nodes and by `simulate` only -----------------------------------------------

SIM_PREFIX = f"sim.{GROUP}/"
SIM_RUNS = f"{SIM_PREFIX}runs"
SIM_EXIT_CODE = f"{SIM_PREFIX}exit-code"
SIM_STOPS = f"{SIM_PREFIX}stops"
SIM_STARTS = f"{SIM_PREFIX}starts"
"""Seconds between the bind and the start of the containers, or ``never``: their image cannot be pulled."""
SIM_AT = f"{SIM_PREFIX}at"
SIM_UNTIL = f"{SIM_PREFIX}until"
SIM_NODE = f"{SIM_PREFIX}node"
SIM_SILENT = f"{SIM_PREFIX}silent"
"""On a Node, "true": its kubelet is cut off. It hears nothing and says nothing until this goes away."""
SIM_DRAIN = f"{SIM_PREFIX}drain"

# --- environment of the containers ----------------------------------------------------------------

VARIANT_ENV = "GPUTASK_VARIANT"
DEVICES_ENV = "GPUTASK_DEVICES"
VISIBLE_DEVICES_ENV = "NVIDIA_VISIBLE_DEVICES"
NO_DEVICES = "void"
"""Value of the device variables in every container that gets no device."""
