"""How a simulated pod ends, and the statuses that say so. Pure: times in, status out.

Times are seconds on the clock of the simulated nodes; ``runs`` and ``stops`` come from the pod's annotations.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from gputask.api.names import SIM_EXIT_CODE, SIM_RUNS, SIM_STARTS, SIM_STOPS

Object = dict[str, Any]

logger = logging.getLogger(__name__)

TERMINATED, KILLED = 143, 137
"""Exit codes of a container that SIGTERM ended, and of one that SIGKILL did."""


@dataclass(frozen=True, slots=True)
class End:
    """When a pod's containers end (``at``), with which exit code, and the kubelet's own reason if it ended them."""

    at: float
    exit_code: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a pod's containers. ``pod_started`` counts for the deadline, ``started`` for the run time."""

    pod_started: float
    started: float
    restarts: int = 0


def start_delay(pod: Object) -> float | None:
    """Seconds from the bind to the start of the containers; None if they never start."""
    if (pod["metadata"].get("annotations") or {}).get(SIM_STARTS) == "never":
        return None
    return number(pod, SIM_STARTS) or 0.0


def end_before_start(pod: Object, admitted: float, stopping: float | None) -> End | None:
    """The first end, as far as is known now, of a pod whose containers do not run yet; it needs no grace."""
    ends = [] if stopping is None else [End(stopping, KILLED)]
    if (deadline := pod["spec"].get("activeDeadlineSeconds")) is not None:
        ends.append(End(admitted + deadline, KILLED, *_DEADLINE))
    return min(ends, key=lambda end: end.at, default=None)


_DEADLINE = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


def next_end(pod: Object, run: Run, stopping: float | None) -> End | None:
    """The first end of the pod as far as is known now, or None if it runs for ever.

    stopping: since when the pod is being deleted. A container that is told to stop takes ``sim.gputask.dev/stops``
    seconds, at most its grace; without the annotation it uses the whole grace on a deletion (as a process does that
    ignores SIGTERM), and stops at once at the pod's deadline.
    """
    spec, ends = pod["spec"], []
    runs, stops = number(pod, SIM_RUNS), number(pod, SIM_STOPS)
    if runs is not None:
        ends.append(End(run.started + runs, int(number(pod, SIM_EXIT_CODE) or 0)))
    if (deadline := spec.get("activeDeadlineSeconds")) is not None:
        takes = min(stops or 0.0, spec.get("terminationGracePeriodSeconds", 30))
        ends.append(End(run.pod_started + deadline + takes, TERMINATED, *_DEADLINE))
    if stopping is not None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
        obeys = stops is not None and stops <= grace
        ends.append(End(stopping + (stops if obeys and stops is not None else grace), TERMINATED if obeys else KILLED))
    return min(ends, key=lambda end: end.at, default=None)


def restarts(pod: Object, end: End, stopping: float | None) -> bool:
    """Whether the containers start again after an end."""
    policy = pod["spec"].get("restartPolicy", "Always")
    if stopping is not None or end.reason:
        return False
    return policy == "Always" or (policy == "OnFailure" and end.exit_code != 0)


def number(pod: Object, annotation: str) -> float | None:
    """A number from an annotation; None if there is none, or no number in it."""
    text = (pod["metadata"].get("annotations") or {}).get(annotation)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        name = f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"
        logger.warning("pod %s: %s: %.80r is no number of seconds or exit code; ignored", name, annotation, text)
        return None
    return value


def waiting_status(pod: Object, when: str, reason: str) -> Object:
    """The status patch of a pod whose containers wait: ``ContainerCreating``, ``ImagePullBackOff``."""
    idle = Run(0.0, 0.0)
    states = [
        {**_container(container, idle), "ready": False, "started": False, "state": {"waiting": {"reason": reason}}}
        for container in pod["spec"]["containers"]
    ]
    conditions = _conditions("False", when, "ContainersNotReady")
    return {"phase": "Pending", "containerStatuses": states, "conditions": conditions, "startTime": when}


def refused_status(reason: str, message: str) -> Object:
    """The status patch of a pod that its kubelet does not admit."""
    return {"phase": "Failed", "reason": reason, "message": message}


def running_status(pod: Object, when: str, run: Run, last: End | None = None) -> Object:
    """The status patch of a pod whose containers have just started."""
    states = [
        {
            **_container(container, run),
            "ready": True,
            "started": True,
            "state": {"running": {"startedAt": when}},
            **({"lastState": {"terminated": _terminated(last, when)}} if last else {}),
        }
        for container in pod["spec"]["containers"]
    ]
    inits = [
        {**_container(container, run), "ready": True, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
        for container in pod["spec"].get("initContainers") or ()
    ]
    status: Object = {"phase": "Running", "containerStatuses": states, "conditions": _conditions("True", when)}
    status |= {"hostIP": "127.0.0.1", "startTime": (pod.get("status") or {}).get("startTime") or when}
    return status | ({"initContainerStatuses": inits} if inits else {})


def ended_status(pod: Object, when: str, run: Run, end: End) -> Object:
    """The status patch of a pod whose containers have ended for good."""
    states = [
        {
            **_container(container, run),
            "ready": False,
            "started": False,
            "state": {"terminated": _terminated(end, when)},
        }
        for container in pod["spec"]["containers"]
    ]
    failed = end.exit_code != 0 or end.reason
    status: Object = {"phase": "Failed" if failed else "Succeeded", "containerStatuses": states}
    status["conditions"] = _conditions("False", when, "PodFailed" if failed else "PodCompleted")
    if end.reason:
        status |= {"reason": end.reason, "message": end.message}
    return status


def _container(container: Object, run: Run) -> Object:
    image = container.get("image", "")
    return {"name": container["name"], "image": image, "imageID": "", "restartCount": run.restarts}


def _terminated(end: End, when: str) -> Object:
    return {"exitCode": end.exit_code, "reason": "Error" if end.exit_code else "Completed", "finishedAt": when}


def _conditions(ready: str, when: str, reason: str = "") -> list[Object]:
    why = {"reason": reason} if reason else {}
    return [
        {"type": "Initialized", "status": "True", "lastTransitionTime": when},
        {"type": "Ready", "status": ready, "lastTransitionTime": when, **why},
        {"type": "ContainersReady", "status": ready, "lastTransitionTime": when, **why},
    ]
