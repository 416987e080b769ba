"""Prometheus with kube-state-metrics, and the rule by which kube-prometheus-stack records the owners of pods."""

from __future__ import annotations

from typing import Any

from collection import ROOT
from control_plane import ControlPlane, free_port
from kubernetes import client
from metric_chain import MetricChain
from programs import program

OWNERS = ROOT / "lab" / "charts" / "kube-prometheus-stack" / "files" / "pod-owner.yaml"


class StatesChain(MetricChain):
    """states_s: between two scrapes of kube-state-metrics."""

    def __init__(self, plane: ControlPlane, kube: client.ApiClient, *, states_s: int = 1) -> None:
        super().__init__(plane, kube)
        self.plane, self.states, self._states_s = plane, free_port(), states_s

    def scrape_configs(self) -> list[dict[str, Any]]:
        states = {
            "job_name": "kube-state-metrics",
            "honor_labels": True,
            "scrape_interval": f"{self._states_s}s",
            "static_configs": [{"targets": [f"127.0.0.1:{self.states}"]}],
        }
        return [*super().scrape_configs(), states]

    def start(self) -> None:
        self.plane.run(
            "kube-state-metrics", program("kube-state-metrics"), "--kubeconfig=kubeconfig",
            "--resources=pods,replicasets,deployments", f"--port={self.states}", f"--telemetry-port={free_port()}",
        )  # fmt: skip
        super().start()


class OwnedChain(StatesChain):
    def start(self) -> None:
        (self.plane.work / "alerts.yml").write_text(OWNERS.read_text())
        super().start()
