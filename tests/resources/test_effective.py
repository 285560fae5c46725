"""Effective requests, as kube-scheduler and kubelet compute them."""

from typing import Any

import pytest

from gputask.resources.amounts import SCALE, AmountError
from gputask.resources.effective import effective_requests


def container(cpu: Any = None, *, sidecar: bool = False, **resources: Any) -> dict[str, Any]:
    requests = {**({} if cpu is None else {"cpu": cpu}), **resources}
    return {"name": "c", "resources": {"requests": requests}, **({"restartPolicy": "Always"} if sidecar else {})}


def cpus(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **spec: Any) -> float:
    requests = effective_requests({"containers": list(containers), "initContainers": list(init), **spec})
    return requests.get("cpu", 0) / SCALE


def test_b46_an_init_container_counts_by_its_maximum():
    assert cpus(container(4), init=(container(6),)) == 6


def test_b46_a_sidecar_runs_beside_the_main_container():
    assert cpus(container(4), init=(container(4, sidecar=True),)) == 8


def test_b46_an_init_container_after_a_sidecar_runs_beside_it():
    both = (container(4, sidecar=True), container(6))
    assert cpus(container(4), init=both, overhead={"cpu": "1"}) == 11


def test_b46_an_init_container_before_a_sidecar_runs_alone():
    both = (container(6), container(4, sidecar=True))
    assert cpus(container(4), init=both, overhead={"cpu": "1"}) == 9


def test_only_sidecars_started_before_count_beside_an_init_container():
    order = (container(1, sidecar=True), container(6), container(2, sidecar=True))
    assert cpus(container(1), init=order) == 7


def test_pod_level_requests_replace_the_sum_of_the_containers():
    assert cpus(container(1), container(1), resources={"requests": {"cpu": "3"}}) == 3
    assert cpus(container(4), init=(container(6),), resources={"requests": {"cpu": "5"}}) == 5


def test_a_pod_level_limit_is_the_request_only_where_no_container_asks():
    assert cpus(container(), resources={"limits": {"cpu": "3"}}) == 3
    assert cpus(container(1), resources={"limits": {"cpu": "3"}}) == 1


def test_a_limit_without_a_request_is_the_request():
    assert cpus({"name": "c", "resources": {"limits": {"cpu": "2"}}}) == 2
    assert cpus({"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}) == 1


def test_all_resources_are_counted_and_zeros_are_absent():
    spec = {"containers": [container("500m", memory="1Gi", **{"example.com/gpu": 1, "hugepages-2Mi": "4Mi", "x": "0"})]}
    assert effective_requests(spec) == {
        "cpu": 5000,
        "memory": 1024 * SCALE,
        "example.com/gpu": SCALE,
        "hugepages-2Mi": 4 * SCALE,
    }


def test_a_pod_that_asks_nothing_has_no_requests():
    assert effective_requests({"containers": [{"name": "c"}, {"name": "d", "resources": {}}]}) == {}


def test_a_request_that_is_no_quantity_is_one_line():
    with pytest.raises(AmountError, match="'much' is not a Kubernetes quantity like 8, 500m or 16Gi"):
        effective_requests({"containers": [container("much")]})
