"""What the API server does with each write: names, UIDs, resourceVersions, preconditions.

Each function returns the new state, or None where the server would refuse (404, 409, AlreadyExists). States are not
canonical yet; resourceVersions grow by one with each write of an object.
"""

from __future__ import annotations

from .state import (
    CANCELLED,
    FINISHED,
    GONE,
    LIVE,
    RUNNING,
    STOPPING,
    SUCCEEDED,
    UNBOUND,
    GpuNode,
    Pod,
    PutNode,
    PutTask,
    State,
    Uid,
    pod_of,
    with_item,
)


def create_pod(state: State, task: int, attempt: int, node: int) -> State | None:
    """POST of a pod. Its name is (task, attempt): AlreadyExists while a pod of that name is there."""
    namesakes = [pod for pod in state.pods if pod.uid[:2] == (task, attempt)]
    if any(pod.phase != GONE for pod in namesakes):
        return None
    generation = 0
    while any(pod.uid[2] == generation for pod in namesakes):
        generation += 1
    return state._replace(pods=tuple(sorted((*state.pods, Pod((task, attempt, generation), node)))))


def patch_pod(state: State, uid: Uid) -> State | None:
    """PATCH of metadata: a new resourceVersion, so no Bind that names an older one can succeed any more."""
    pod = pod_of(state, uid)
    return None if pod.phase == GONE else _put_pod(state, pod)


def delete_pod(state: State, uid: Uid) -> State | None:
    """DELETE by UID. A pod without a node goes at once, a running one terminates first: its kubelet ends it."""
    pod = pod_of(state, uid)
    if pod.phase == GONE:
        return None
    return _put_pod(state, pod, phase=STOPPING if pod.phase in LIVE else GONE)


def bind(state: State, uid: Uid, rv: int, node: int) -> State | None:
    """POST of a Binding with preconditions: 404 for another UID, 409 if bound, terminating or written since `rv`."""
    pod = pod_of(state, uid)
    if pod.phase != UNBOUND or pod.rv != rv:
        return None
    return _put_pod(state, pod, phase=RUNNING, node=node)


def end_pod(state: State, uid: Uid) -> State | None:
    """The kubelet reports success, or removes a pod that has stopped."""
    pod = pod_of(state, uid)
    if pod.phase not in LIVE:
        return None
    return _put_pod(state, pod, phase=SUCCEEDED if pod.phase == RUNNING else GONE)


def wish_of_user(state: State, number: int, *, stop: bool) -> State | None:
    """A user deletes, suspends or resumes the GpuTask: a write of it, so writers with an older version get 409."""
    task = state.tasks[number]
    if task.stop == stop or task.phase in (FINISHED, CANCELLED):
        return None
    task = task._replace(stop=stop, rv=task.rv + 1)
    return state._replace(tasks=with_item(state.tasks, number, task))


def put_task(state: State, put: PutTask, *, unchecked: bool = False) -> State | None:
    """PUT of GpuTask.status under its resourceVersion. The user's spec is not touched by it."""
    task = state.tasks[put.number]
    if put.rv != task.rv and not unchecked:
        return None
    body = put.body._replace(rv=task.rv + 1, stop=task.stop)
    pods = tuple(pod._replace(claimed=True) if pod.uid == body.uid else pod for pod in state.pods)
    return state._replace(tasks=with_item(state.tasks, put.number, body), pods=pods)


def put_node(state: State, put: PutNode, *, unchecked: bool = False) -> State | None:
    """PUT of GpuNode.status under its resourceVersion. From now on a Bind that an entry allows may be under way."""
    node = state.nodes[put.number]
    if put.rv != node.rv and not unchecked:
        return None
    stored = {(entry.uid, entry.rv) for entry in put.body.entries}
    bit = 1 << put.number
    pods = tuple(
        pod._replace(aimed=pod.aimed | bit) if pod.phase == UNBOUND and (pod.uid, pod.rv) in stored else pod
        for pod in state.pods
    )
    body = put.body._replace(rv=node.rv + 1)
    return state._replace(nodes=with_item(state.nodes, put.number, body), pods=pods)


def lose_node(state: State, number: int) -> State | None:
    """The GpuNode is lost with all its entries and made anew, empty and not rebuilt, with another UID and version."""
    node = state.nodes[number]
    if not node.rebuilt and not node.entries:
        return None
    return state._replace(nodes=with_item(state.nodes, number, GpuNode(rv=node.rv + 1)))


def _put_pod(state: State, pod: Pod, *, phase: int | None = None, node: int | None = None) -> State:
    written = pod._replace(
        rv=pod.rv + 1,
        aimed=0,
        phase=pod.phase if phase is None else phase,
        node=pod.node if node is None else node,
    )
    return state._replace(pods=tuple(written if other.uid == pod.uid else other for other in state.pods))
