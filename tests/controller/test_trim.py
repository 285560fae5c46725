"""What is kept of pods and nodes says all that it said before to whoever reads it."""

from __future__ import annotations

from gputask.controller.trim import trim_node, trim_pod
from gputask.ledger.pods import ALLOCATION_ENV, literals_of
from gputask.translate.nodes import declared, planner_node
from gputask.translate.pods import foreign
from support.controller import pod
from support.operator import gpu_node


def test_a_trimmed_pod_asks_and_says_the_same() -> None:
    whole = pod(node="n1")
    allocation = '{"node":"n1","variant":"v","variantIndex":0,"devices":[],"amounts":{"cpu":"1"},"labels":{}}'
    whole["spec"] |= {
        "hostNetwork": True,
        "overhead": {"cpu": "50m"},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "initContainers": [{"name": "i", "resources": {"requests": {"memory": "1Gi"}}, "restartPolicy": "Always"}],
    }
    whole["spec"]["containers"][0] |= {
        "command": ["sleep", "1"],
        "ports": [{"containerPort": 80}],
        "resources": {"requests": {"cpu": "2"}},
        "env": [{"name": "SECRET", "value": "x"}, {"name": ALLOCATION_ENV, "value": allocation}],
    }
    kept = trim_pod(whole)
    assert foreign(kept) == foreign(whole)
    assert literals_of(kept) == literals_of(whole) is not None
    assert {key: kept[key] for key in ("metadata", "status")} == {key: whole[key] for key in ("metadata", "status")}
    assert "volumes" not in kept["spec"]
    assert not {"image", "command"} & kept["spec"]["containers"][0].keys()


def test_a_trimmed_node_is_the_same_to_the_planner() -> None:
    whole = gpu_node(cards={"a": {"gpuMemoryMB": 8000}})
    whole["status"] |= {"conditions": [{"type": "Ready", "status": "False"}], "images": [{"names": ["x"]}]}
    kept = trim_node(whole)
    assert (declared(kept), planner_node(kept)) == (declared(whole), planner_node(whole))
    assert "images" not in kept["status"]
