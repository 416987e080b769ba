"""The monitor of the sample service: created, removed, and rejected where nothing reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chart_site import operator_crds
from control_plane import ControlPlane, eventually
from kubernetes import client
from playbook import changed, local, run_playbook
from served_kinds import SERVED_S, is_served
from workloads import Workloads

PLAY = local({"ansible.builtin.include_role": {"name": "kubegpu.autoscale.gpu_workload"}})
MONITORS = "podmonitors.monitoring.coreos.com"


class Sample:
    """The role on an API server without nodes: what it waits for is left out."""

    def __init__(self, folder: Path, plane: ControlPlane, kube: client.ApiClient, namespace: str) -> None:
        self._folder, self._kubeconfig, self._namespace = folder, str(plane.kubeconfig), namespace
        self._kube = kube

    def run(self, *flags: str, **options: Any) -> tuple[int, str]:
        known = {"kubegpu_kubeconfig": self._kubeconfig, "gpu_workload_namespace": self._namespace}
        done = run_playbook(
            self._folder,
            PLAY,
            {**known, "gpu_workload_service": True, **options},
            "--skip-tags",
            "gpu_workload_verify",
            *flags,
        )
        return done.returncode, " ".join(done.stdout.split())

    def monitors(self) -> list[dict[str, Any]]:
        api = client.CustomObjectsApi(self._kube)
        return api.list_namespaced_custom_object("monitoring.coreos.com", "v1", self._namespace, "podmonitors")["items"]

    def services(self) -> list[str]:
        found = client.CoreV1Api(self._kube).list_namespaced_service(self._namespace).items
        return [service.metadata.name for service in found]


@pytest.fixture
def sample(
    plane: tuple[ControlPlane, client.ApiClient], kube: client.ApiClient, workloads: Workloads, tmp_path: Path
) -> Sample:
    return Sample(tmp_path, plane[0], kube, workloads.namespace)


@pytest.fixture
def pod_monitors(kube: client.ApiClient, crd: None) -> Iterator[None]:
    """The kind as Prometheus' operator brings it."""
    api = client.ApiextensionsV1Api(kube)
    (kind,) = (crd for crd in operator_crds() if crd["metadata"]["name"] == MONITORS)
    api.create_custom_resource_definition(kind)

    def served() -> bool:
        return is_served(kube, "monitoring.coreos.com", "PodMonitor")

    eventually(served, "PodMonitor is served", SERVED_S)
    yield
    api.delete_custom_resource_definition(MONITORS)
    eventually(lambda: not served(), "PodMonitor is gone", SERVED_S)


def test_it_is_made_as_asked_for_and_goes_when_nobody_asks(sample: Sample, pod_monitors: None) -> None:
    front = {"gpu_workload_monitor": True}
    code, printed = sample.run(**front)
    assert (code, changed(printed)) == (0, 1)

    (monitor,) = sample.monitors()
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert monitor["spec"]["selector"] == {"matchLabels": {"app.kubernetes.io/name": "sample"}}
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "http", "interval": "2s", "scrapeTimeout": "2s"}]

    as_words = {"gpu_workload_monitor": "true", "gpu_workload_service": "true", "gpu_workload_check": "false"}
    code, printed = sample.run(**{**front, **as_words})  # as -e NAME=true gives them
    assert (code, changed(printed)) == (0, 0)
    code, printed = sample.run("--check")
    assert (code, changed(printed), len(sample.monitors())) == (0, 1, 1)
    assert sample.run()[0] == 0
    assert (sample.monitors(), sample.services()) == ([], ["sample"])
    assert sample.run(gpu_workload_state="absent")[0] == 0
    assert sample.services() == []


def test_a_monitor_that_nothing_reads_is_rejected_before_a_change(sample: Sample) -> None:
    code, printed = sample.run(gpu_workload_monitor=True)

    assert code == 2
    assert "needs the kind PodMonitor, which the cluster does not serve" in printed
    assert sample.services() == []
