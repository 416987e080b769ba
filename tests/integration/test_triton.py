"""NVIDIA's Triton itself: what `llm_in_flight` makes of its metrics, and how HPAs on it share GPUs.

Its models sleep in place of a GPU, and pods are objects. Prometheus, adapter, API server and HPA controller are real.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

import pytest
from control_plane import ControlPlane, eventually, running
from kubernetes import client
from metric_chain import PROOF_S
from prometheus_rules import remove_rules, serve_kind
from real_servers import ServersChain, infer, triton, users
from workloads import Workloads

# `make test` does not install it: its own target does.
pytestmark = [
    pytest.mark.skipif(not os.environ.get("TRITON"), reason="`make test-triton` installs it"),
    pytest.mark.timeout(900),
]
Run = Callable[..., dict[str, Any]]

NAMESPACE = "ml"
MODELS = ("chat", "embed")
# The rule's rate of the last minute has seen nothing else by then.
SETTLED_S = 75


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[int, int]]]:
    """A Triton for each model's pod."""
    work = tmp_path_factory.mktemp("servers")
    with triton(work / "chat") as chat, triton(work / "embed") as embed:
        yield {"chat": chat, "embed": embed}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, client.ApiClient]]:
    with running(tmp_path_factory.mktemp("control-plane")) as (plane, kube):
        serve_kind(kube)
        yield plane, kube


@pytest.fixture(scope="module")
def kube(plane: tuple[ControlPlane, client.ApiClient]) -> client.ApiClient:
    return plane[1]


@pytest.fixture(scope="module")
def chain(plane: tuple[ControlPlane, client.ApiClient], servers: dict[str, tuple[int, int]]) -> Iterator[ServersChain]:
    chain = ServersChain(*plane, {f"{NAMESPACE}/{name}-0": ports[1] for name, ports in servers.items()})
    chain.start()
    yield chain
    chain.stop()


@pytest.fixture(scope="module")
def workloads(kube: client.ApiClient, chain: ServersChain) -> Iterator[Workloads]:
    """A pod of one GPU for each model, and a node with six."""
    made = Workloads(kube, NAMESPACE)
    made.node("gpu1", gpus=6)
    for name in (*MODELS, "unseen"):
        made.deployment(name)
        made.ready_pod(f"{name}-0", app=name)
    yield made
    remove_rules(kube)


def spec(name: str, **more: Any) -> dict[str, Any]:
    target = {"namespace": NAMESPACE, "target": {"name": name}, "metric": "llm_in_flight", "target_value": 2}
    return {**target, "max_replicas": 8, **more}


def wanted(kube: client.ApiClient, name: str) -> int:
    status = client.AutoscalingV2Api(kube).read_namespaced_horizontal_pod_autoscaler(name, NAMESPACE).status
    return status.desired_replicas or 0


def test_it_reads_the_requests_that_clients_have_in_flight(
    run: Run, kube: client.ApiClient, chain: ServersChain, workloads: Workloads, servers: dict[str, tuple[int, int]]
) -> None:
    proven = run(verify=True, wait_timeout=PROOF_S, autoscalers=[spec("chat")])
    assert not proven.get("failed"), proven
    assert chain.value("llm_in_flight", "chat-0") == 0

    with users(6, infer(servers["chat"][0], "plain")) as statuses:
        eventually(lambda: wanted(kube, "chat") == 3, "six in flight are three pods at two each", PROOF_S)
        eventually(lambda: (chain.value("llm_in_flight", "chat-0") or 0) > 5.5, "all are counted", SETTLED_S)
        busy = chain.values("llm_in_flight", "chat-0", 10)
    assert set(statuses) == {200}
    assert all(5 <= value <= 7 for value in busy), busy
    eventually(lambda: (chain.value("llm_in_flight", "chat-0") or 0) < 0.1, "nothing is in flight", 2 * SETTLED_S)


def test_batches_do_not_make_it_swing(
    run: Run, chain: ServersChain, workloads: Workloads, servers: dict[str, tuple[int, int]]
) -> None:
    """Triton's own queue jumps between nothing and what fills the next batch."""
    run(autoscalers=[spec("chat")])
    with users(12, infer(servers["chat"][0], "batched")):
        eventually(lambda: (chain.value("llm_in_flight", "chat-0") or 0) > 11, "all are counted", 2 * SETTLED_S)
        seen = chain.values("llm_in_flight", "chat-0", 20)
    assert fmean(seen) == pytest.approx(12, rel=0.1)
    # An HPA tolerates a tenth.
    assert max(seen) - min(seen) < 0.2 * 12, seen


def test_two_models_stay_within_the_gpus_that_they_share(
    run: Run, kube: client.ApiClient, chain: ServersChain, workloads: Workloads, servers: dict[str, tuple[int, int]]
) -> None:
    """Each is asked for more than its share, the preferred one last: it gets its share all the same."""
    both = [spec("chat", max_replicas=4, priority=10), spec("embed", max_replicas=6)]
    # A new HPA remembers no recommendation of the tests before.
    run(state="absent", autoscalers=[spec("chat")])
    client.AppsV1Api(kube).patch_namespaced_deployment_scale("chat", NAMESPACE, {"spec": {"replicas": 1}})
    undivided = run(autoscalers=both)
    assert any(
        "all autoscalers at their maximum need 10 nvidia.com/gpu" in warning for warning in undivided["warnings"]
    )

    done = run(autoscalers=both, divide_gpus=True, verify=True, wait_timeout=PROOF_S)
    assert not done.get("failed"), done
    assert not any("at their maximum need" in warning for warning in done["warnings"])
    assert [share["summary"] for share in done["result"]["shares"]] == [
        "ml/chat: at most 4 of 4 replicas, priority 10",
        "ml/embed: at most 2 of 6 replicas, priority 0",
    ]
    assert run(autoscalers=both, divide_gpus=True)["changed"] is False

    with users(8, infer(servers["embed"][0], "plain")):
        eventually(lambda: wanted(kube, "embed") == 2, "embed has its share", PROOF_S)
        assert wanted(kube, "chat") == 1, "nobody asks for it yet"
        with users(12, infer(servers["chat"][0], "plain")):
            eventually(lambda: wanted(kube, "chat") == 4, "chat has its share", PROOF_S)
            assert wanted(kube, "embed") == 2

    refused = run(autoscalers=[spec("chat", min_replicas=5), spec("embed", min_replicas=2)], divide_gpus=True)
    assert refused["failed"]
    assert "the minima together need 7 nvidia.com/gpu, and the nodes have 6" in refused["msg"]


def test_a_server_that_nothing_scrapes_is_reported(run: Run, chain: ServersChain, workloads: Workloads) -> None:
    run(autoscalers=[spec("unseen")])

    def found() -> list[dict[str, Any]]:
        report = run("gpu_doctor", namespace=NAMESPACE, name="unseen", grace=False)["result"]
        return [finding for finding in report["findings"] if finding["id"] == "POD_NOT_SCRAPED"]

    [finding] = eventually(found, "the doctor names the pods", PROOF_S)
    assert "`up` has no series of unseen-0" in finding["seen"][0]
    assert "create a PodMonitor" in finding["fix"]
