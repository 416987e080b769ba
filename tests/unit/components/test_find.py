"""What is found of clusters that others have made: the shapes that their charts, operators and clouds leave."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.find import Objects, find_components

OURS = {"kubegpu.autoscale/release": "dcgm-exporter"}


def workload(kind: str, name: str, image: str, **more: Any) -> dict[str, Any]:
    """name: namespace and name; the labels of its pods are app=<name>."""
    namespace, _, short = name.partition("/")
    container = {"name": more.pop("container", short), "image": image, **more.pop("of_container", {})}
    pod = {"metadata": {"labels": {"app": short}}, "spec": {"containers": [container]}}
    return {
        "kind": kind,
        "metadata": {"namespace": namespace, "name": short, "labels": {}, **more},
        "spec": {"selector": {"matchLabels": {"app": short}}, "template": pod},
    }


def service(name: str, selector: dict[str, str], port: int = 9090, **more: Any) -> dict[str, Any]:
    namespace, _, short = name.partition("/")
    ports = [{"name": "web", "port": port, "targetPort": 9090}]
    return {"metadata": {"namespace": namespace, "name": short}, "spec": {"selector": selector, "ports": ports, **more}}


def test_an_empty_cluster_has_nothing() -> None:
    found = find_components(Objects())
    assert not any(found.values())


def test_prometheus_of_an_operator_by_any_name() -> None:
    its = {"app.kubernetes.io/name": "prometheus", "operator.prometheus.io/name": "k8s"}
    [seen] = find_components(
        Objects(
            prometheuses=[
                {
                    "kind": "Prometheus",
                    "metadata": {"namespace": "observability", "name": "k8s"},
                    "spec": {
                        "routePrefix": "/prom/",
                        "scrapeInterval": "15s",
                        "ruleSelector": {"matchLabels": {"role": "alert-rules"}},
                        "serviceMonitorSelector": {},
                    },
                }
            ],
            services=[
                service(
                    "observability/prometheus-operated", {"app.kubernetes.io/name": "prometheus"}, clusterIP="None"
                ),
                service("observability/prometheus-k8s", its, 8080),
                service("elsewhere/prometheus-k8s", its),
                service("observability/grafana", {"app": "grafana"}),
            ],
        )
    )["prometheus"]
    assert seen == {
        "kind": "Prometheus",
        "name": "observability/k8s",
        "owned": False,
        "release": "",
        "namespace": "observability",
        "service": "prometheus-k8s",
        "port": 8080,
        "path_prefix": "/prom",
        "rule_labels": {"role": "alert-rules"},
        "monitor_labels": {},
        "scrape_interval": 15.0,
        "reads_rules": True,
    }


@pytest.mark.parametrize(
    "image", ["prom/prometheus:v2.54.1", "quay.io/prometheus/prometheus:v3.5.3", "mirror/quay.io/prometheus/prometheus"]
)
def test_plain_prometheus(image: str) -> None:
    server = workload("Deployment", "monitoring/server", image, of_container={"args": ["--web.route-prefix=/metrics"]})
    [seen] = find_components(
        Objects(deployments=[server], services=[service("monitoring/web", {"app": "server"}, 80)])
    )["prometheus"]
    assert (seen["kind"], seen["service"], seen["port"]) == ("Deployment", "web", 80)
    assert (seen["path_prefix"], seen["reads_rules"]) == ("/metrics", False)


@pytest.mark.parametrize(
    "image",
    [
        "quay.io/prometheus-operator/prometheus-operator:v0.93.1",
        "quay.io/prometheus-operator/prometheus-config-reloader:v0.93.1",
        "registry.k8s.io/prometheus-adapter/prometheus-adapter:v0.12.0",
        "quay.io/prometheus/node-exporter:v1.12.1",
        "quay.io/prometheus/alertmanager:v0.34.0",
    ],
)
def test_what_only_has_its_name_in_it_is_no_prometheus(image: str) -> None:
    assert find_components(Objects(deployments=[workload("Deployment", "monitoring/one", image)]))["prometheus"] == []


def test_the_stateful_set_that_an_operator_made_is_not_a_second_one() -> None:
    owner = [{"kind": "Prometheus", "name": "k8s"}]
    made = workload(
        "StatefulSet", "monitoring/prometheus-k8s", "quay.io/prometheus/prometheus:v3", ownerReferences=owner
    )
    assert find_components(Objects(stateful_sets=[made]))["prometheus"] == []


EXPORTERS = {
    "ours": (
        workload("DaemonSet", "monitoring/dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3", labels=OURS),
        ("kubegpu", True),
    ),
    "the GPU operator's": (
        workload(
            "DaemonSet",
            "gpu-operator/nvidia-dcgm-exporter",
            "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3",
            ownerReferences=[{"kind": "ClusterPolicy", "name": "cluster-policy"}],
        ),
        ("gpu-operator", False),
    ),
    "GKE's": (
        workload("DaemonSet", "gke-managed-system/dcgm-exporter", "gke.gcr.io/dcgm-exporter:3.3"),
        ("gke", False),
    ),
    "of somebody's release": (
        workload(
            "DaemonSet",
            "gpu/dcgm",
            "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3",
            labels={"app.kubernetes.io/managed-by": "Helm"},
        ),
        ("helm", False),
    ),
    "of a manifest": (
        workload("DaemonSet", "default/dcgm-exporter", "nvidia/dcgm-exporter:3.3.5"),
        ("manifest", False),
    ),
}


@pytest.mark.parametrize("case", EXPORTERS)
def test_who_brought_the_exporter(case: str) -> None:
    daemon_set, expected = EXPORTERS[case]
    [seen] = find_components(Objects(daemon_sets=[daemon_set]))["exporter"]
    assert (seen["origin"], seen["owned"]) == expected


def test_what_an_interrupted_installation_of_ours_has_left_is_ours() -> None:
    notes = {"meta.helm.sh/release-name": "dcgm-exporter", "meta.helm.sh/release-namespace": "monitoring"}
    daemon_set = workload("DaemonSet", "monitoring/dcgm-exporter", "nvidia/dcgm-exporter", annotations=notes)
    for releases, owned in (({("monitoring", "dcgm-exporter")}, True), ({("other", "dcgm-exporter")}, False)):
        [seen] = find_components(Objects(daemon_sets=[daemon_set], releases=releases))["exporter"]
        assert seen["owned"] is owned


@pytest.mark.parametrize(
    ("image", "container", "plugins"),
    [
        ("nvcr.io/nvidia/k8s-device-plugin:v0.17.0", "nvidia-device-plugin-ctr", 1),
        ("nvcr.io/nvidia/k8s-device-plugin:v0.17.0", "gpu-feature-discovery", 0),
        ("nvcr.io/nvidia/k8s-device-plugin:v0.17.0", "mps-control-daemon-ctr", 0),
        ("gke.gcr.io/nvidia-gpu-device-plugin@sha256:00", "nvidia-gpu-device-plugin", 1),
        ("nvcr.io/nvidia/gpu-feature-discovery:v0.8", "gfd", 0),
    ],
)
def test_device_plugins(image: str, container: str, plugins: int) -> None:
    daemon_set = workload("DaemonSet", "kube-system/one", image, container=container)
    assert len(find_components(Objects(daemon_sets=[daemon_set]))["device_plugin"]) == plugins


def test_a_dra_driver() -> None:
    daemon_set = workload(
        "DaemonSet", "nvidia-dra-driver-gpu/plugin", "nvcr.io/nvidia/k8s-dra-driver-gpu:v25.3", container="gpus"
    )
    assert len(find_components(Objects(daemon_sets=[daemon_set]))["dra_driver"]) == 1


def test_the_half_of_the_dra_driver_that_gives_out_no_gpu_is_none() -> None:
    image = "nvcr.io/nvidia/k8s-dra-driver-gpu:v25.3"
    daemon_set = workload("DaemonSet", "nvidia-dra-driver-gpu/plugin", image, container="compute-domains")
    assert find_components(Objects(daemon_sets=[daemon_set]))["dra_driver"] == []


def test_the_dcgm_that_exporters_connect_to_and_its_release() -> None:
    image = "nvcr.io/nvidia/cloud-native/dcgm:4.4.1-2-ubuntu22.04"
    notes = {"meta.helm.sh/release-name": "gpus", "meta.helm.sh/release-namespace": "gpu-operator"}
    daemon_set = workload("DaemonSet", "gpu-operator/nvidia-dcgm", image, annotations=notes)
    found = find_components(Objects(daemon_sets=[daemon_set]))
    assert [entry["release"] for entry in found["host_engine"]] == ["gpu-operator/gpus"]
    assert found["exporter"] == []


def test_who_serves_the_metrics_apis() -> None:
    def api(name: str, **metadata: Any) -> dict[str, Any]:
        namespace, _, short = name.partition("/")
        return {"metadata": {"name": "x", **metadata}, "spec": {"service": {"namespace": namespace, "name": short}}}

    found = find_components(
        Objects(
            api_services={
                "custom.metrics.k8s.io": api("monitoring/adapter", labels={"app": "prometheus-adapter"}),
                "external.metrics.k8s.io": api("keda/keda-operator-metrics-apiserver"),
                "metrics.k8s.io": {"metadata": {"name": "local"}, "spec": {}},
            }
        )
    )["metrics_apis"]
    assert found["custom.metrics.k8s.io"] == {
        "service": "monitoring/adapter",
        "owned": False,
        "release": "",
        "is_adapter": True,
    }
    assert found["external.metrics.k8s.io"]["is_adapter"] is False
    assert found["metrics.k8s.io"]["service"] == ""
