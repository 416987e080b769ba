"""What stands in front of the sample service: a monitor of its counters, an Ingress, a route."""

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
INGRESS = {"host": "sample.example", "class_name": "traefik", "annotations": {"asks/login": "yes"}, "tls_secret": "tls"}
ROUTE = {"host": "sample.example", "parents": [{"name": "public", "namespace": "gateways"}]}
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

    def ingresses(self) -> list[Any]:
        return client.NetworkingV1Api(self._kube).list_namespaced_ingress(self._namespace).items

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
    front = {"gpu_workload_monitor": True, "gpu_workload_ingress": INGRESS}
    code, printed = sample.run(**front)
    assert (code, changed(printed)) == (0, 1)

    (monitor,), (ingress,) = sample.monitors(), sample.ingresses()
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert monitor["spec"]["selector"] == {"matchLabels": {"app.kubernetes.io/name": "sample"}}
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "http", "interval": "2s", "scrapeTimeout": "2s"}]
    assert ingress.spec.ingress_class_name == "traefik"
    assert ingress.metadata.annotations == {"asks/login": "yes"}
    assert (ingress.spec.tls[0].secret_name, ingress.spec.tls[0].hosts) == ("tls", ["sample.example"])
    (path,) = ingress.spec.rules[0].http.paths
    assert (ingress.spec.rules[0].host, path.path, path.backend.service.name) == ("sample.example", "/work", "sample")

    as_words = {"gpu_workload_monitor": "true", "gpu_workload_service": "true", "gpu_workload_check": "false"}
    code, printed = sample.run(**{**front, **as_words})  # as -e NAME=true gives them
    assert (code, changed(printed)) == (0, 0)
    code, printed = sample.run("--check")
    assert (code, changed(printed), len(sample.monitors())) == (0, 1, 1)
    assert sample.run()[0] == 0
    assert (sample.monitors(), sample.ingresses(), sample.services()) == ([], [], ["sample"])
    assert sample.run(gpu_workload_state="absent")[0] == 0
    assert sample.services() == []


@pytest.mark.parametrize(
    ("front", "kind"),
    [({"gpu_workload_monitor": True}, "PodMonitor"), ({"gpu_workload_route": ROUTE}, "HTTPRoute")],
    ids=["monitor", "route"],
)
def test_what_nobody_reads_is_refused_before_a_change(sample: Sample, front: dict[str, Any], kind: str) -> None:
    code, printed = sample.run(**front)

    assert code == 2
    assert f"needs the kind {kind}, which the cluster does not serve" in printed
    assert sample.services() == []


def test_a_route_needs_a_gateway(sample: Sample) -> None:
    code, printed = sample.run(gpu_workload_route={"host": "sample.example"})

    assert code == 2
    assert "gpu_workload_route has no parents" in printed


def test_an_ingress_of_somebody_else_stays(sample: Sample, kube: client.ApiClient, workloads: Workloads) -> None:
    theirs = {
        "metadata": {"name": "sample"},
        "spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 1}}}},
    }
    client.NetworkingV1Api(kube).create_namespaced_ingress(workloads.namespace, theirs)

    code, printed = sample.run(gpu_workload_ingress=INGRESS)

    assert code == 2
    assert "Ingress sample in namespace" in printed
    assert sample.services() == []
    assert sample.ingresses()[0].spec.default_backend.service.name == "a"
