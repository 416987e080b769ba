"""Adapter and modules ask a store by its own address, and never the Prometheus that scrapes and evaluates."""

from __future__ import annotations

import json
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from control_plane import ControlPlane, eventually, free_port
from kubernetes import client
from metric_chain import MetricChain
from module_process import run_module
from workloads import Workloads

SETTLE_S = 120
Run = Callable[..., dict[str, Any]]


class StoredChain(MetricChain, ABC):
    def __init__(self, plane: ControlPlane, kube: client.ApiClient) -> None:
        super().__init__(plane, kube)
        self.plane, self.store = plane, free_port()

    @abstractmethod
    def run_store(self) -> None:
        """Start the store on its port."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.store}"

    def adapter_flags(self) -> Sequence[str]:
        return *super().adapter_flags(), f"--prometheus-url={self.url}"

    def start(self) -> None:
        self.run_store()
        super().start()

    def stored(self, what: str) -> Any:
        """What the store itself answers."""
        with urllib.request.urlopen(f"{self.url}/api/v1/{what}") as answer:
            return json.load(answer)["data"]

    def runner(self) -> Callable[..., dict[str, Any]]:
        """Runs a module that asks the store, and expects that it does not fail."""
        options = {"kubeconfig": str(self.plane.kubeconfig), "prometheus": {"url": self.url}}

        def run(module: str, **given: Any) -> dict[str, Any]:
            result = run_module(module, options | given)
            assert not result.get("failed"), result.get("msg")
            return result

        return run


def prove_chat(run: Run, kube: client.ApiClient, chain: StoredChain) -> None:
    """A workload of one pod at 90 % gets an autoscaler, whose value the module reads from the store."""
    workloads = Workloads(kube, "ml")
    workloads.deployment("chat")
    workloads.node("gpu1", gpus=4)
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus("ml", {"chat-0": 90})

    spec = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 4}
    result = run("gpu_autoscaler", verify=True, wait_timeout=SETTLE_S, autoscalers=[spec])

    assert result["result"]["autoscalers"][0]["pod_values"] == {"chat-0": 90}


def expect_replicas(kube: client.ApiClient, wanted: int) -> None:
    """Wait until the HPA of the workload asks for so many."""
    hpas = client.AutoscalingV2Api(kube)
    eventually(
        lambda: hpas.read_namespaced_horizontal_pod_autoscaler("chat", "ml").status.desired_replicas == wanted,
        f"the HPA asks for {wanted} replicas",
        SETTLE_S,
    )


def expect_other_modules_agree(run: Run) -> None:
    def proven() -> list[bool]:
        return [autoscaler["verified"] for autoscaler in run("gpu_autoscaler_info")["result"]["autoscalers"]]

    def report() -> tuple[list[Any], list[bool]]:
        found = run("gpu_doctor")["result"]
        return found["findings"], [autoscaler["verified"] for autoscaler in found["autoscalers"]]

    eventually(lambda: proven() == [True], "the values are proven", SETTLE_S)
    eventually(lambda: report() == ([], [True]), "the doctor finds nothing", SETTLE_S)
