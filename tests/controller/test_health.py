"""What the operator answers about itself."""

from __future__ import annotations

import aiohttp
import pytest

from gputask.controller import health
from gputask.controller.metrics import Counting, Metrics
from gputask.kube.transport import Request, Response


async def ask(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


async def test_readiness_health_and_metrics_are_answered_apart() -> None:
    metrics, problems = Metrics(), {"ready": "not synced"}
    metrics.decisions.labels("place").inc()
    app = health.application(healthy=lambda: None, ready=lambda: problems.get("ready"), registry=metrics.registry)
    async with health.serving(app, host="127.0.0.1", port=0) as port:
        assert await ask(port, "/healthz") == (200, "ok")
        assert await ask(port, "/readyz") == (503, "not synced")
        problems.clear()
        assert await ask(port, "/readyz") == (200, "ok")
        status, text = await ask(port, "/metrics")
        assert status == 200
        assert 'gputask_decisions_total{action="place"} 1.0' in text


async def test_a_port_that_is_taken_is_an_error_of_the_system() -> None:
    app = health.application(healthy=lambda: None, ready=lambda: None, registry=Metrics().registry)
    async with health.serving(app, host="127.0.0.1", port=0) as port:
        with pytest.raises(OSError):
            async with health.serving(app, host="127.0.0.1", port=port):
                pass


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/namespaces/default/pods/web/binding", "pods"),
        ("/apis/gputask.dev/v1alpha1/gpunodes/n1/status", "gpunodes"),
        ("/apis/gputask.dev/v1alpha1/namespaces/x/gputasks", "gputasks"),
    ],
)
async def test_conflicts_are_counted_by_resource_never_by_name(path: str, resource: str) -> None:
    class Refusing:
        async def send(self, request: Request) -> Response:
            return Response(409, b"{}")

    metrics = Metrics()
    await Counting(Refusing(), metrics).send(Request("PUT", path, {}))  # type: ignore[arg-type]
    assert metrics.registry.get_sample_value("gputask_conflicts_total", {"resource": resource}) == 1


def test_a_cause_that_nobody_has_any_more_reads_zero() -> None:
    metrics = Metrics()
    metrics.set_queue({"Short": 3, "Gap": 1})
    metrics.set_queue({"Gap": 2})
    (queue,) = (family for family in metrics.registry.collect() if family.name == "gputask_queue_tasks")
    assert {sample.labels["cause"]: sample.value for sample in queue.samples} == {"Short": 0, "Gap": 2}
