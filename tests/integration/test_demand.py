"""A demand, from a proxy's counters to the HPA's replicas."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from control_plane import eventually
from kubernetes import client
from metric_chain import PROOF_S, Exporter, MetricChain
from workloads import Workloads

Run = Callable[..., dict[str, Any]]

PODS = {"chat-6d5f8-x7k2p": 50, "chat-6d5f8-zz9b4": 30}
COST_S = 0.02


@contextmanager
def requests(exporter: Exporter, per_s: float) -> Iterator[None]:
    """A proxy's counter that rises at this rate, half of it refused.

    With the time of its count: a scrape that is answered late would show another rate, and the HPA forgets no peak.
    """
    began_ms = int(time.time() * 1000)

    def counters() -> str:
        now_ms = int(time.time() * 1000)
        count = per_s * (now_ms - began_ms) / 1000 / 2
        return "".join(f'asked_total{{code="{code}"}} {count} {now_ms}\n' for code in (200, 503))

    exporter.counters = counters
    try:
        yield
    finally:
        exporter.counters = str


def test_a_demand_asks_for_what_requests_need(
    run: Run, chain: MetricChain, kube: client.ApiClient, workloads: Workloads
) -> None:
    workloads.deployment("chat", replicas=2)
    workloads.node("gpu1", gpus=8)
    for pod in PODS:
        workloads.ready_pod(pod, app="chat")
    chain.exporter.gpus(workloads.namespace, PODS)
    selectors = {"offered": 'asked_total{code=~"200|503"}', "served": 'asked_total{code="200"}'}
    wanted = {
        "namespace": workloads.namespace,
        "target": {"name": "chat"},
        "max_replicas": 8,
        "demand": {**selectors, "prior_gpu_seconds": COST_S},
    }
    # Nobody counts yet: what the GPUs do stands in, and the HPA has a value.
    made = run(verify=True, wait_timeout=PROOF_S, autoscalers=[wanted])
    assert not made.get("failed"), made
    assert any("requests offered to" in warning for warning in made["warnings"])
    (entry,) = made["result"]["autoscalers"]
    assert entry["demand"] == {
        "in_force": False,
        "percent": 80,
        "requests_per_s": None,
        "gpu_seconds_per_request": COST_S,
        "cost_source": "prior",
    }
    assert made["result"]["behaviors"][entry["behavior"]]["scale_up"] == "8 pods in 15 s at once"
    assert run(autoscalers=[wanted])["changed"] is False

    with requests(chain.exporter, per_s=100):
        # 100 a second at 0.02 s are 2 GPUs: 4 pods at 60 %. The GPUs' own 80 % want 2.
        def desired() -> int:
            hpa = client.AutoscalingV2Api(kube).read_namespaced_horizontal_pod_autoscaler("chat", workloads.namespace)
            return hpa.status.desired_replicas or 0

        eventually(lambda: desired() == 4, "the HPA wants 4 replicas", PROOF_S)

        def told() -> dict[str, Any] | None:
            (seen,) = run("gpu_autoscaler_info", namespace=workloads.namespace)["result"]["autoscalers"]
            return seen if 95 < (seen["demand"]["requests_per_s"] or 0) < 105 else None

        seen = eventually(told, "it tells 100 requests a second", PROOF_S)
        assert seen["demand"]["in_force"]
        assert [metric["metric"] for metric in seen["metrics"]] == ["gpu_sustained", "gpu_demand"]

    shown = run(check=True, autoscalers=[{**wanted, "demand": None}])
    assert {(rule["action"], rule["name"]) for rule in shown["result"]["rules"]} >= {
        ("deleted", f"kubegpu-{workloads.namespace}.chat")
    }
    assert run(autoscalers=[{**wanted, "demand": None}])["changed"] is True
    assert len(run(state="absent", autoscalers=[wanted])["diff"]) == 2
