"""Clusters that others have made, healthy ones: the same chain of other parts, and no finding."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.domain import Row
from clusters import (
    BUDGET,
    EXPORTER,
    Cluster,
    daemon_set,
    exporter_daemon_set,
    hpa,
    ids,
    meta,
    metric,
    monitor,
    pod,
    rows,
    service,
    turned,
)

STOCK = {
    **BUDGET,
    "collect_s": 30.0,
    "scrape_s": 15.0,
    "evaluate_s": 30.0,
    "sync_s": 15.0,
    "sources": {"collect": "configured", "scrape": "seen", "evaluate": "assumed", "sync": "assumed"},
}
UTILISATION = "DCGM_FI_DEV_GPU_UTIL"


def others_metric(cluster: Cluster, name: str = UTILISATION, **changes: Any) -> None:
    """A metric that the adapter makes of the exporter's series by a rule of its own."""
    cluster.hpa, cluster.managed, cluster.budget = hpa(metric=name), False, dict(STOCK)
    own = {"name": name, "series": "", "sources": (UTILISATION,), "unit": "", "recorded": {}, **changes}
    cluster.metric = metric(**own)
    cluster.api["listed"] = frozenset({f"pods/{name}"})
    cluster.rule_objects = []
    cluster.prometheus["rules"] = {}


def gpu_operator() -> Cluster:
    """NVIDIA's operator beside kube-prometheus-stack: stock intervals, all DaemonSets of one image family."""
    cluster = Cluster()
    others_metric(cluster)
    labels = {"app": "nvidia-dcgm-exporter"}
    exporter = exporter_daemon_set("nvidia-dcgm-exporter", "gpu-operator")
    exporter["spec"]["selector"]["matchLabels"] = labels
    container = exporter["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "DCGM_EXPORTER_KUBERNETES", "value": "true"}]
    image = {"image": "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"}
    cluster.daemon_sets = [
        exporter,
        *(
            daemon_set(name, "gpu-operator", {"name": container_name, **image}, {"app": name})
            for name, container_name in (
                ("nvidia-device-plugin-daemonset", "nvidia-device-plugin"),
                ("gpu-feature-discovery", "gpu-feature-discovery"),
                ("nvidia-device-plugin-mps-control-daemon", "mps-control-daemon-ctr"),
            )
        ),
    ]
    for name in ("gpu1", "gpu2"):
        for kind in ("dcgm-exporter", "plugin"):
            del cluster.pods[f"{kind}-{name}"]
        ip = f"10.0.0.{name[-1]}"
        cluster.pods[f"x-{name}"] = pod(f"nvidia-dcgm-exporter-{name}", "gpu-operator", name, labels, ip)
        plugin = pod(f"plugin-{name}", "gpu-operator", name, {"app": "nvidia-device-plugin-daemonset"})
        cluster.pods[f"p-{name}"] = plugin
    cluster.services[0] = service("nvidia-dcgm-exporter", "gpu-operator", labels, 9400, "gpu-metrics")
    cluster.service_monitors = [monitor("nvidia-dcgm-exporter", "gpu-operator", labels)]
    return cluster


def plain_prometheus() -> Cluster:
    """No operator: a static job that asks the exporter's Service, so that no target can be told from another."""
    cluster = Cluster()
    others_metric(cluster, "gpu_duty", target_value=40.0)
    cluster.prometheuses, cluster.service_monitors = [], []
    place = "dcgm-exporter.monitoring.svc:9400"
    cluster.prometheus["rows"] = rows({"ml/chat-0": place, "ml/chat-1": place}, (UTILISATION,), layout="")
    cluster.prometheus["up"] = [Row({"job": "gpu", "instance": place})]
    cluster.adapter["spec"]["template"]["spec"]["containers"][0]["args"] = [
        "--prometheus-url=http://prometheus.example.com/prom",
        "--metrics-relist-interval=1m",
    ]
    return cluster


def gke_with_managed_dcgm() -> Cluster:
    """GKE runs its own plugin and its own exporter, which speaks GKE's device names by itself."""
    cluster = Cluster()
    others_metric(cluster)
    for each in cluster.nodes:
        each["metadata"]["labels"] = {
            "cloud.google.com/gke-accelerator": "nvidia-l4",
            "cloud.google.com/gke-nodepool": "gpu",
        }
    accelerators = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    exporter = exporter_daemon_set("dcgm-exporter", "gke-managed-system")
    exporter["spec"]["template"]["spec"]["nodeSelector"] = accelerators
    image = "gke.gcr.io/dcgm-exporter@sha256:0"
    exporter["spec"]["template"]["spec"]["containers"][0]["image"] = image
    plugin = daemon_set(
        "nvidia-gpu-device-plugin",
        "kube-system",
        {"name": "nvidia-gpu-device-plugin", "image": "gke.gcr.io/nvidia-gpu-device-plugin@sha256:0"},
        {"k8s-app": "nvidia-gpu-device-plugin"},
        nodeSelector=accelerators,
    )
    cluster.daemon_sets = [exporter, plugin]
    for name in ("gpu1", "gpu2"):
        for kind in ("dcgm-exporter", "plugin"):
            del cluster.pods[f"{kind}-{name}"]
        its = pod(f"dcgm-exporter-{name}", "gke-managed-system", name, EXPORTER, f"10.0.0.{name[-1]}")
        cluster.pods[f"x-{name}"] = its
        cluster.pods[f"p-{name}"] = pod(f"p-{name}", "kube-system", name, {"k8s-app": "nvidia-gpu-device-plugin"})
    cluster.hpa["spec"]["maxReplicas"] = 40
    return cluster


def keda() -> Cluster:
    """KEDA serves external metrics under one name, and works through an HPA of its own."""
    cluster = Cluster()
    external = {"listed": None, "type": "External", "sources": (), "reporter": "", "group": "external.metrics.k8s.io"}
    others_metric(cluster, "s0-prometheus", **external, holders=frozenset({"chat"}), values={"chat": 41.0})
    cluster.hpa["metadata"] |= {
        "name": "keda-hpa-chat",
        "ownerReferences": [{"kind": "ScaledObject", "name": "chat"}],
    }
    cluster.scaled_objects = [{"metadata": meta("chat", "ml"), "spec": {"scaleTargetRef": {"name": "chat"}}}]
    cluster.other_hpas = []
    return cluster


def another_owner_of_the_api() -> Cluster:
    cluster = Cluster()
    others_metric(cluster)
    cluster.api |= {"owner": "service datadog/cluster-agent", "is_prometheus_adapter": False}
    return cluster


def own_workload_rule() -> Cluster:
    """An Object metric with Value, of a rule that somebody else has written, beside a second cluster's APIService."""
    cluster = Cluster()
    others_metric(cluster, "gpu_avg", type="Object", holders=frozenset({"chat"}), values={"chat": 41.0})
    cluster.hpa["status"]["conditions"][2] = turned("ScalingLimited", "True", reason="TooFewReplicas")
    return cluster


HEALTHY = (gpu_operator, plain_prometheus, gke_with_managed_dcgm, keda, another_owner_of_the_api, own_workload_rule)


@pytest.mark.parametrize("cluster", HEALTHY, ids=lambda cluster: cluster.__name__)
def test_a_healthy_cluster_of_others_has_no_finding(cluster: Any) -> None:
    found = cluster().report()
    assert [(each["id"], each["seen"]) for each in found["findings"]] == []
    assert {hop["id"]: hop["status"] for hop in found["hops"] if hop["status"] != "ok"} == {"rule": "unknown"}


def test_what_shares_the_image_of_the_device_plugin_is_not_taken_for_it() -> None:
    cluster = gpu_operator()
    cluster.pods["gfd"] = pod("gfd", "gpu-operator", "gpu1", {"app": "gpu-feature-discovery"}, ready=False)
    assert ids(cluster.report()) == []


def test_a_metric_of_our_name_by_a_rule_of_others() -> None:
    """It has values, so nobody misses the series that our rule would record."""
    cluster = Cluster(managed=False)
    cluster.metric = metric(recorded={})
    cluster.rule_objects = []
    cluster.prometheus["rules"] = {}
    assert ids(cluster.report()) == []


def test_their_faults_are_found_too() -> None:
    cluster = gpu_operator()
    cluster.prometheus |= {"rows": [], "up": []}
    others_metric(cluster, values={}, listed=False)
    cluster.service_monitors[0]["metadata"]["labels"] = {}
    cluster.api["listed"] = frozenset()
    # The monitor asks for the port metrics, the operator's Service calls it gpu-metrics: that comes second.
    found = cluster.report()
    assert ids(found) == ["MONITOR_NOT_SELECTED"]
    assert found["findings"][0]["object"] == "monitor gpu-operator/nvidia-dcgm-exporter"


def test_a_second_exporter_beside_the_managed_one() -> None:
    cluster = gke_with_managed_dcgm()
    cluster.daemon_sets.append(exporter_daemon_set())
    cluster.daemon_sets[2]["spec"]["template"]["spec"]["nodeSelector"] = {}
    for name in ("gpu1", "gpu2"):
        cluster.pods[f"y-{name}"] = pod(f"dcgm-exporter-own-{name}", "monitoring", name, EXPORTER, f"10.0.2.{name[-1]}")
        for kind in ("up", "serving"):
            cluster.prometheus[kind].append(Row({"job": "own", "instance": f"10.0.2.{name[-1]}:9400"}))
    cluster.prometheus["doubled"] = [Row({"UUID": "GPU-1"}, 2.0)]
    found = cluster.report()
    assert ids(found) == ["EXPORTER_TWICE"]
    assert "gke-managed-system/dcgm-exporter, monitoring/dcgm-exporter" in found["findings"][0]["seen"][0]
