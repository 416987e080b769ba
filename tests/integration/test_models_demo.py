"""Several models by the demonstration's chart: deployed by its playbook, scaled by their own queues and by their GPUs.

The servers are the chart's own, as processes; their GPU is a stand-in that sleeps. Pods are objects only.
"""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_site import operator_crds
from control_plane import ControlPlane, eventually, free_port, running
from kubernetes import client
from metric_chain import MetricChain
from model_servers import DEMO, metric, model_server
from playbook import run_playbook
from programs import program
from prometheus_rules import serve_kind
from served_kinds import SERVED_S, is_served
from workloads import Workloads

from lab.versions import versions

VARS = yaml.safe_load((DEMO / "vars.yml").read_text())
AUTOSCALERS = [{**spec, "namespace": "models"} for spec in VARS["gpu_autoscaling_autoscalers"]]
# What a request costs here, in milliseconds: enough to keep a GPU busy without keeping this machine busy.
MODELS = {"small": 40, "large": 120}
SETTLE_S = 120


class ModelsChain(MetricChain):
    """Prometheus scrapes the servers beside the exporter, under the names that a PodMonitor gives their pods."""

    def __init__(self, plane: ControlPlane, kube: client.ApiClient) -> None:
        super().__init__(plane, kube)
        self.ports = {name: free_port() for name in MODELS}

    def scrape_configs(self) -> list[dict[str, Any]]:
        pods = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": "models", "pod": f"models-{name}-0"}}
            for name, port in self.ports.items()
        ]
        return [*super().scrape_configs(), {"job_name": "models", "static_configs": pods}]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, client.ApiClient]]:
    with running(tmp_path_factory.mktemp("control-plane")) as (plane, kube):
        serve_kind(kube)
        for crd in operator_crds():
            if crd["spec"]["names"]["kind"] == "PodMonitor":
                client.ApiextensionsV1Api(kube).create_custom_resource_definition(crd)
        eventually(lambda: is_served(kube, "monitoring.coreos.com", "PodMonitor"), "PodMonitor is served", SERVED_S)
        yield plane, kube


@pytest.fixture(scope="module")
def kube(plane: tuple[ControlPlane, client.ApiClient]) -> client.ApiClient:
    return plane[1]


@pytest.fixture(scope="module")
def chain(plane: tuple[ControlPlane, client.ApiClient]) -> Iterator[ModelsChain]:
    chain = ModelsChain(*plane)
    chain.start()
    yield chain
    chain.stop()


@pytest.fixture
def servers(chain: ModelsChain, tmp_path: Path) -> Iterator[None]:
    """The chart's server for each model, and GPUs that are as busy as it says."""
    stopped = threading.Event()

    def follow() -> None:
        before = {name: (time.monotonic(), 0.0) for name in MODELS}
        while not stopped.wait(1):
            utilisation = {}
            for name in MODELS:
                now, busy_s = time.monotonic(), metric(chain.ports[name], "model_gpu_seconds_total")
                then, had = before[name]
                utilisation[f"models-{name}-0"] = round(min(100, 100 * (busy_s - had) / (now - then)))
                before[name] = now, busy_s
            chain.exporter.gpus("models", utilisation)

    with ExitStack() as running_servers:
        for name, cost in MODELS.items():
            running_servers.enter_context(model_server(tmp_path, name, chain.ports[name], f"--milliseconds={cost}"))
        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        yield
        stopped.set()
        thread.join()


@contextmanager
def asked(chain: ModelsChain, model: str, at_once: int) -> Iterator[None]:
    """So many clients, each of which asks again as soon as it is answered."""
    stopped = threading.Event()
    url = f"http://127.0.0.1:{chain.ports[model]}/v2/models/{model}/infer"

    def ask() -> None:
        while not stopped.is_set():
            urllib.request.urlopen(url, data=b"{}").read()

    clients = [threading.Thread(target=ask) for _ in range(at_once)]
    for thread in clients:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in clients:
            thread.join()


def deploy(folder: Path, plane: ControlPlane, **more: Any) -> str:
    # Nothing gets ready here by itself: there is no node.
    told = {"gpu_autoscaling_verify": False, "gpu_autoscaling_wait": False, **more}
    # As a controller has it that nobody gave a helm: in a folder of its own.
    helm = folder / "helm" / f"helm-{versions()['archives']['helm']['version']}"
    helm.parent.mkdir(exist_ok=True)
    helm.unlink(missing_ok=True)
    helm.symlink_to(program("helm"))
    known = {
        "kubegpu_inventory_id": "default",
        "kubegpu_kubeconfig": str(plane.kubeconfig),
        "kubegpu_helm_folder": str(helm.parent),
    }
    done = run_playbook(folder, str(DEMO / "deploy.yml"), {**VARS, **known, **told})
    assert done.returncode == 0
    return " ".join(done.stdout.split())


def test_it_is_deployed_scaled_by_queue_and_gpu_and_taken_away(
    run: Callable[..., dict[str, Any]],
    plane: tuple[ControlPlane, client.ApiClient],
    kube: client.ApiClient,
    crd: None,
    chain: ModelsChain,
    servers: None,
    tmp_path: Path,
) -> None:
    printed = deploy(tmp_path, plane[0], models_values={"ingress": {"enabled": True, "host": "models.example"}})
    assert "http://models-small.models/v2/models/small/infer (from a node: http://10.96." in printed
    assert "http://models.example/v2/models/large/infer" in printed

    core, autoscaling = client.CoreV1Api(kube), client.AutoscalingV2Api(kube)
    workloads = Workloads(kube, "beside")
    workloads.node("gpu1", gpus=8)
    workloads.namespace = "models"
    for name in MODELS:
        labels = client.AppsV1Api(kube).read_namespaced_deployment(f"models-{name}", "models").spec.template.metadata
        assert labels.labels["app.kubernetes.io/name"] == f"models-{name}"
        workloads.ready_pod(f"models-{name}-0", app="models")
        core.patch_namespaced_pod(f"models-{name}-0", "models", {"metadata": {"labels": labels.labels}})
        client.AppsV1Api(kube).patch_namespaced_deployment_status(
            f"models-{name}", "models", {"status": {"replicas": 1}}
        )

    proven = run(verify=True, wait_timeout=SETTLE_S, autoscalers=AUTOSCALERS)
    assert not proven.get("failed")
    assert [entry["verified"] for entry in proven["result"]["autoscalers"]] == [True, True]

    def wanted(model: str) -> int:
        status = autoscaling.read_namespaced_horizontal_pod_autoscaler(f"models-{model}", "models").status
        return status.desired_replicas

    # One client at a time: nothing waits, and the GPU is busy all the same.
    with asked(chain, "large", 1):
        eventually(lambda: wanted("large") == 2, "large grows by its GPU", SETTLE_S)
        assert metric(chain.ports["large"], "model_requests_waiting") == 0
        assert wanted("small") == 1
    # Nine that wait are three pods at four each; the GPU alone would ask for two.
    with asked(chain, "small", 10):
        eventually(lambda: wanted("small") == 3, "small grows by its queue", SETTLE_S)

    deploy(tmp_path, plane[0], models_state="absent")
    assert client.AppsV1Api(kube).list_namespaced_deployment("models").items == []
    assert autoscaling.list_namespaced_horizontal_pod_autoscaler("models").items == []


def test_a_full_queue_is_refused(tmp_path: Path) -> None:
    port = free_port()
    answers: list[int] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/m/infer").read()
            answers.append(200)
        except urllib.error.HTTPError as refused:
            answers.append(refused.code)

    with model_server(tmp_path, "m", port, "--milliseconds=1500", "--queue=1"):
        clients = [threading.Thread(target=ask) for _ in range(4)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
    assert sorted(answers) == [200, 200, 503, 503]
