"""What is found of clusters that others have made: the shapes that their charts, operators and clouds leave."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.detection import Objects, find_components
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.label_selectors import labels_match

OURS = {"kubegpu.autoscale/release": "dcgm-exporter", "kubegpu.autoscale/inventory": "default"}


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


KINDS = (
    *("prometheus", "prometheus_operator", "gpu_operator", "exporter", "host_engine"),
    *("device_plugin", "dra_driver", "node_feature_discovery"),
)


def test_an_empty_cluster_has_nothing() -> None:
    """An answer for each kind: what is missing from it would be an error where it is read."""
    found = find_components(Objects())
    assert found == {"metrics_apis": {}, **{kind: [] for kind in KINDS}}


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
        "scheme": "http",
        "path_prefix": "/prom",
        "rule_labels": {"role": "alert-rules"},
        "rule_namespaces": ["observability"],
        "monitor_labels": {},
        "monitor_namespaces": ["observability"],
        "scrape_interval": 15.0,
        "reads_rules": True,
    }


SELECTORS = [
    *(None, {}, {"matchLabels": {"release": "stack"}}, {"matchLabels": {"release": "other"}}),
    {"matchLabels": {"role": "rules"}},
    {"matchLabels": {"release": "stack", "role": "rules"}},
    {"matchExpressions": [{"key": "release", "operator": "In", "values": ["other", "stack"]}]},
    {"matchExpressions": [{"key": "role", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "release", "operator": "DoesNotExist"}]},
    {"matchExpressions": [{"key": "release", "operator": "NotIn", "values": ["stack"]}]},
]


@pytest.mark.parametrize("rules", SELECTORS)
@pytest.mark.parametrize("pods", SELECTORS)
def test_the_labels_of_rules_and_pod_monitors_are_those_that_both_selectors_select(rules: Any, pods: Any) -> None:
    """Generated: each pair of selectors, and each set of labels that could suffice."""
    spec = {"ruleSelector": rules, "podMonitorSelector": pods}
    metadata = {"namespace": "monitoring", "name": "k8s"}
    [seen] = find_components(Objects(prometheuses=[{"kind": "Prometheus", "metadata": metadata, "spec": spec}]))[
        "prometheus"
    ]
    possible = (
        {key: value for key, value in (("release", release), ("role", role)) if value}
        for release, role in product(("", "stack", "other"), ("", "rules"))
    )
    assert labels_match(rules or {}, seen["rule_labels"])
    if any(labels_match(rules or {}, labels) and labels_match(pods or {}, labels) for labels in possible):
        assert labels_match(pods or {}, seen["rule_labels"])


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
    "of another inventory": (
        workload(
            "DaemonSet",
            "monitoring/dcgm-exporter",
            "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3",
            labels={**OURS, "kubegpu.autoscale/inventory": "staging", "app.kubernetes.io/managed-by": "Helm"},
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


DIGEST = "registry.example.com/mirror/8fd3@sha256:00"
SOCKETS = {"name": "sockets", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}


def with_labels(manifest: dict[str, Any], **labels: str) -> dict[str, Any]:
    """On its pods. Without the dots and slashes of names that Python does not have."""
    manifest["spec"]["template"]["metadata"]["labels"] |= {
        {"name": "app.kubernetes.io/name"}.get(key, key): value for key, value in labels.items()
    }
    return manifest


def plugin(image: str, variable: str, **more: Any) -> dict[str, Any]:
    mount = {"env": [{"name": variable}], "volumeMounts": [{"name": "sockets", "mountPath": "/sockets"}]}
    manifest = workload("DaemonSet", "kube-system/gpus", image, of_container=mount, **more)
    manifest["spec"]["template"]["spec"]["volumes"] = [SOCKETS]
    return manifest


NAMELESS = {
    "an operator by its arguments": (
        "prometheus_operator",
        workload(
            "Deployment",
            "openshift-monitoring/operator",
            "quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:00",
            of_container={"args": ["--kubelet-service=kube-system/kubelet", "--prometheus-config-reloader=x@sha256:0"]},
        ),
    ),
    "an operator by its label": (
        "prometheus_operator",
        with_labels(workload("Deployment", "monitoring/operator", DIGEST), name="prometheus-operator"),
    ),
    "a GPU operator by its image": (
        "gpu_operator",
        workload("Deployment", "gpu/one", "nvcr.io/nvidia/gpu-operator:v25.10.1"),
    ),
    "a GPU operator by its command": (
        "gpu_operator",
        workload("Deployment", "nvidia-gpu-operator/one", DIGEST, of_container={"command": ["gpu-operator"]}),
    ),
    "a GPU operator by its label": (
        "gpu_operator",
        with_labels(workload("Deployment", "gpu/one", DIGEST), app="gpu-operator"),
    ),
    "an exporter by its variables": (
        "exporter",
        workload("DaemonSet", "gpu/metrics", DIGEST, of_container={"env": [{"name": "DCGM_EXPORTER_LISTEN"}]}),
    ),
    "an exporter by its label": (
        "exporter",
        with_labels(workload("DaemonSet", "gpu/metrics", DIGEST), app="nvidia-dcgm-exporter"),
    ),
    "the GPU operator's exporter for claims, by its label": (
        "exporter",
        with_labels(workload("DaemonSet", "gpu/metrics", DIGEST), app="nvidia-dcgm-exporter-dra"),
    ),
    "a host engine by its command": (
        "host_engine",
        workload("DaemonSet", "gpu/engine", DIGEST, of_container={"command": ["/usr/bin/nv-hostengine", "-n"]}),
    ),
    "a device plugin by the kubelet's sockets": ("device_plugin", plugin(DIGEST, "NVIDIA_MIG_MONITOR_DEVICES")),
    "a DRA driver by its command": (
        "dra_driver",
        workload("DaemonSet", "gpu/dra", DIGEST, of_container={"command": ["gpu-kubelet-plugin"]}),
    ),
    "node-feature-discovery by its command": (
        "node_feature_discovery",
        workload("DaemonSet", "nfd/worker", DIGEST, of_container={"command": ["nfd-worker"]}),
    ),
}


@pytest.mark.parametrize("case", NAMELESS)
def test_what_has_no_name_in_its_image_is_found_all_the_same(case: str) -> None:
    kind, manifest = NAMELESS[case]
    lists = {"deployments": [manifest]} if manifest["kind"] == "Deployment" else {"daemon_sets": [manifest]}
    found = find_components(Objects(**lists))
    assert {kind for kind, entries in found.items() if entries} == {kind}
    assert [entry["name"].split("/")[1] for entry in found[kind]] == [manifest["metadata"]["name"]]


def test_a_plain_prometheus_is_known_by_its_storage() -> None:
    server = workload("StatefulSet", "monitoring/one", DIGEST, of_container={"args": ["--storage.tsdb.path=/data"]})
    sidecar = workload("StatefulSet", "monitoring/two", DIGEST, of_container={"args": ["sidecar", "--tsdb.path=/data"]})
    [seen] = find_components(Objects(stateful_sets=[server, sidecar]))["prometheus"]
    assert seen["name"] == "monitoring/one"


@pytest.mark.parametrize(
    "other",
    [
        plugin("intel/intel-gpu-plugin:0.3", "NODE_NAME"),
        plugin("nvcr.io/nvidia/k8s-device-plugin:v0.17", "NVIDIA_DRIVER", container="gpu-feature-discovery"),
        workload("DaemonSet", "gpu/shell", DIGEST, of_container={"env": [{"name": "NVIDIA_VISIBLE_DEVICES"}]}),
        with_labels(workload("DaemonSet", "monitoring/node", DIGEST), name="prometheus-node-exporter"),
    ],
)
def test_what_is_something_else_is_not_found(other: dict[str, Any]) -> None:
    assert not any(find_components(Objects(daemon_sets=[other])).values())


def prometheus_object(**spec: Any) -> dict[str, Any]:
    return {"kind": "Prometheus", "metadata": {"namespace": "observability", "name": "k8s"}, "spec": spec}


@pytest.mark.parametrize(
    ("web", "scheme"),
    [({}, "http"), ({"httpConfig": {"http2": True}}, "http"), ({"tlsConfig": {"keySecret": {}}}, "https")],
)
def test_a_prometheus_says_whether_it_speaks_tls(web: dict[str, Any], scheme: str) -> None:
    [seen] = find_components(Objects(prometheuses=[prometheus_object(web=web)]))["prometheus"]
    assert seen["scheme"] == scheme


@pytest.mark.parametrize(("owner", "operators"), [("k8s", ["observability/k8s"]), ("other", [])])
def test_an_operator_that_is_not_seen_is_told_by_what_it_made(owner: str, operators: list[str]) -> None:
    owners = [{"kind": "Prometheus", "name": owner}]
    made = workload("StatefulSet", "observability/prometheus-k8s", DIGEST, ownerReferences=owners)
    found = find_components(Objects(stateful_sets=[made], prometheuses=[prometheus_object()]))
    assert [entry["name"] for entry in found["prometheus_operator"]] == operators


@pytest.mark.parametrize(
    ("selector", "namespaces"),
    [
        ({}, ["observability"]),
        ({"ruleNamespaceSelector": None}, ["observability"]),
        ({"ruleNamespaceSelector": {}}, None),
        ({"ruleNamespaceSelector": {"matchLabels": {"watched": "yes"}}}, ["ml", "monitoring"]),
    ],
)
def test_the_namespaces_that_rules_are_taken_from(selector: dict[str, Any], namespaces: list[str] | None) -> None:
    watched = [{"metadata": {"name": name, "labels": {"watched": "yes"}}} for name in ("monitoring", "ml")]
    others = [*watched, {"metadata": {"name": "observability"}}]
    [seen] = find_components(Objects(prometheuses=[prometheus_object(**selector)], namespaces=others))["prometheus"]
    assert (seen["rule_namespaces"], seen["monitor_namespaces"]) == (namespaces, ["observability"])


def test_namespaces_that_nobody_could_read_accuse_nobody() -> None:
    selecting = prometheus_object(ruleNamespaceSelector={"matchLabels": {"watched": "yes"}})
    [seen] = find_components(Objects(prometheuses=[selecting]))["prometheus"]
    assert seen["rule_namespaces"] is None


def gpu_node(name: str, gpus: str) -> dict[str, Any]:
    """As Bottlerocket's kubelet reports itself: no DaemonSet has given it its GPUs."""
    status = {"allocatable": {"cpu": "8", "nvidia.com/gpu": gpus}, "nodeInfo": {"osImage": "Bottlerocket OS 1.52.0"}}
    return {"kind": "Node", "metadata": {"name": name}, "spec": {}, "status": status}


PLUGIN = workload("DaemonSet", "kube-system/nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v0.17.4")


def test_a_plugin_in_the_image_of_nodes_shows_by_what_they_offer() -> None:
    found = find_components(Objects(nodes=[gpu_node("b", "4"), gpu_node("a", "1"), gpu_node("c", "0")]))
    assert found["device_plugin"] == [
        {"kind": "device plugin on Node", "name": "a", "owned": False, "release": "", "origin": "node"}
    ]


@pytest.mark.parametrize(
    ("daemon_sets", "gpus", "kinds"),
    [([], "0", []), ([PLUGIN], "4", ["DaemonSet"])],
    ids=["a plugin that was removed", "eksctl's plugin"],
)
def test_nodes_tell_nothing_where_a_daemon_set_does(
    daemon_sets: list[dict[str, Any]], gpus: str, kinds: list[str]
) -> None:
    found = find_components(Objects(daemon_sets=daemon_sets, nodes=[gpu_node("a", gpus)]))["device_plugin"]
    assert [entry["kind"] for entry in found] == kinds
