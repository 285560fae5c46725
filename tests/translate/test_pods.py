"""Pods: what they use, and which nodes they accept."""

from typing import Any

import pytest

from gputask.planner.model import NodeConstraints, Requirement, SelectorTerm, Toleration
from gputask.resources.amounts import SCALE, AmountError
from gputask.translate.pods import constraints, foreign, pod_amounts, task_uid

NOT_READY = Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute")
UNREACHABLE = Toleration("node.kubernetes.io/unreachable", "Exists", "", "NoExecute")


def pod(phase: str | None = None, cpu: str = "2", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "ns", **metadata},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        **({"status": {"phase": phase}} if phase else {}),
    }


def ports(*given: dict[str, Any], **spec: Any) -> dict[str, int]:
    amounts = pod_amounts({"containers": [{"name": "c", "ports": list(given)}], **spec})
    return {name: units for name, units in amounts.items() if name.startswith("hostPort:")}


def test_a_pod_of_others_uses_its_requests_and_a_place_among_the_pods():
    found = foreign(pod("Running"))
    assert found is not None
    assert (found.owner, dict(found.amounts)) == ("pod:ns/p", {"cpu": 2 * SCALE, "pods": SCALE})


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_uses_nothing(phase):
    assert foreign(pod(phase)) is None


def test_a_pod_that_is_being_deleted_still_uses_its_room():
    assert foreign(pod("Running", deletionTimestamp="2026-01-01T00:00:00Z")) is not None


def test_a_request_that_cannot_be_read_is_said():
    with pytest.raises(AmountError, match="'much' is not a Kubernetes quantity"):
        foreign(pod(cpu="much"))


def test_a_pod_names_its_task_by_label():
    assert task_uid(pod(labels={"gputask.dev/task-uid": "u-1"})) == "u-1"
    assert task_uid(pod()) is None


def test_a_host_port_on_every_address_is_asked_whole():
    assert ports({"hostPort": 80}, {"containerPort": 81}) == {"hostPort:TCP:80": SCALE}
    assert ports({"hostPort": 53, "protocol": "UDP", "hostIP": "0.0.0.0"}) == {"hostPort:UDP:53": SCALE}


def test_a_host_port_on_one_address_excludes_that_address_and_every_address():
    assert ports({"hostPort": 80, "hostIP": "10.0.0.1"}) == {"hostPort:TCP:80": 1, "hostPort:TCP:80:10.0.0.1": SCALE}
    both = ports({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"})
    assert both["hostPort:TCP:80"] == 2


def test_on_the_hosts_network_every_port_is_a_host_port():
    assert ports({"containerPort": 80}, hostNetwork=True) == {"hostPort:TCP:80": SCALE}


def test_ports_of_sidecars_count_and_ports_of_init_containers_do_not():
    init = {"name": "i", "ports": [{"hostPort": 70}]}
    assert ports(initContainers=[init]) == {}
    assert ports(initContainers=[{**init, "restartPolicy": "Always"}]) == {"hostPort:TCP:70": SCALE}


def test_a_pod_without_wishes_accepts_any_node_and_tolerates_a_short_outage():
    assert constraints({}) == NodeConstraints(tolerations=(NOT_READY, UNREACHABLE))


def test_selector_affinity_and_tolerations_are_taken_over():
    term = {
        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}],
    }
    found = constraints(
        {
            "nodeSelector": {"b": "2", "a": "1"},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, {}]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
                }
            },
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        }
    )
    assert found.node_selector == (("a", "1"), ("b", "2"))
    assert found.affinity == (
        SelectorTerm((Requirement("zone", "In", ("a", "b")),), (Requirement("metadata.name", "NotIn", ("n1",)),)),
        SelectorTerm(),
    )
    assert found.tolerations == (Toleration("gpu", "Exists", "", "NoSchedule"), NOT_READY, UNREACHABLE)


def test_a_pod_that_speaks_of_an_outage_itself_gets_no_toleration_added():
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    assert constraints({"tolerations": [own]}).tolerations == (NOT_READY, UNREACHABLE)
    everything = constraints({"tolerations": [{"operator": "Exists"}]}).tolerations
    assert everything == (Toleration("", "Exists", "", ""),)


def test_an_affinity_without_terms_accepts_no_node():
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    assert constraints({"affinity": affinity}).affinity == ()
