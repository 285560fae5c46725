"""The state of the model: four kinds of object, as tuples that hash fast and compare by value."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

Item = TypeVar("Item")

UNBOUND, RUNNING, STOPPING, SUCCEEDED, GONE = range(5)
POD_PHASES: Final = ("unbound", "running", "terminating", "succeeded", "gone")
LIVE: Final = (RUNNING, STOPPING)  # bound and not terminal: an owner of its device, also while it terminates
DEAD: Final = (SUCCEEDED, GONE)  # proven dead for ever: a UID never comes back

WAITING, CLAIMED, FINISHED, CANCELLED = range(4)
TASK_PHASES: Final = ("waiting", "claimed", "finished", "cancelled")

LISTING, LISTED = "17 before the list", "17 listed"

ANY_NODE: Final = -1  # extender: the pod carries no literals

Uid = tuple[int, ...]
"""(task, attempt, generation): the first two are the pod's name, the third tells UIDs of one name apart."""

NO_UID: Final[Uid] = ()


class Pod(NamedTuple):
    """A pod that one of our writers (extender: somebody) created.

    The last two fields are history. `claimed`: some version of the GpuTask named this UID, so a cache of some age
    shows the claim (protocol line 4). `aimed`: bits of the nodes whose ledger held this UID with the *current*
    resourceVersion at some time, so a Bind to that node may be under way, from any writer alive or dead.
    """

    uid: Uid
    node: int
    phase: int = UNBOUND
    rv: int = 1
    claimed: bool = False
    aimed: int = 0


class Task(NamedTuple):
    """A GpuTask. `attempt` and `uid` are the claim in its status; `stop` is the user's wish in its spec."""

    rv: int = 1
    attempt: int = 0
    uid: Uid = NO_UID
    phase: int = WAITING
    stop: bool = False


class Entry(NamedTuple):
    """One reservation: pod UID, the pod's resourceVersion when it was written, and InFlight or Bound."""

    uid: Uid
    rv: int
    bound: bool = False


class GpuNode(NamedTuple):
    """The ledger of one node with one device. `rebuilt` says that `status.rebuilt` holds the nodeUID (line 17)."""

    rv: int = 1
    rebuilt: bool = False
    entries: tuple[Entry, ...] = ()


class PutTask(NamedTuple):
    """A PUT of GpuTask.status under `rv`, sent or about to be sent."""

    line: str
    number: int
    rv: int
    body: Task


class PutNode(NamedTuple):
    """A PUT of GpuNode.status under `rv`, sent or about to be sent."""

    line: str
    number: int
    rv: int
    body: GpuNode


class Rebuild(NamedTuple):
    """Line 17 in progress under ledger version `rv`: the unbound pods still to bump, and the bound ones once listed."""

    line: str  # LISTING until `listed` has been read, then LISTED
    number: int
    rv: int
    to_bump: tuple[Uid, ...]
    listed: tuple[Entry, ...] = ()


class Seen(NamedTuple):
    """Only in variations: what a live GET showed before the ledger version was in hand."""

    line: str
    number: int
    uid: Uid
    rv: int


Request = PutTask | PutNode | Rebuild | Seen


class State(NamedTuple):
    """Everything there is. `writes` are the requests under way, whether their senders live, sleep or are dead."""

    tasks: tuple[Task, ...]
    pods: tuple[Pod, ...]
    nodes: tuple[GpuNode, ...]
    writes: tuple[Request, ...] = ()


def pod_of(state: State, uid: Uid) -> Pod:
    """The pod of this UID; a UID that nothing refers to any more is simply gone."""
    for pod in state.pods:
        if pod.uid == uid:
            return pod
    return Pod(uid, ANY_NODE, GONE)


def with_item(items: tuple[Item, ...], index: int, item: Item) -> tuple[Item, ...]:
    """The same tuple with another item at this place."""
    return (*items[:index], item, *items[index + 1 :])
