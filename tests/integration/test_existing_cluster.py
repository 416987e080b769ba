"""A cluster of others: found as it is, named by its context, changed with the rights that docs/rights.yml grants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_dump import as_written
from control_plane import ControlPlane, eventually
from guests import APPLY, GUEST, LOOK, LOOKER, allowed, with_prometheus
from kubernetes import client
from metric_chain import MONITORING, PROOF_S, MetricChain
from playbook import run_playbook
from workloads import Workloads

KINDS = (
    ("/api/v1", "namespaces"), ("/api/v1", "configmaps"), ("/api/v1", "services"), ("/apis/apps/v1", "deployments"),
    ("/apis/autoscaling/v2", "horizontalpodautoscalers"), ("/apis/monitoring.coreos.com/v1", "prometheusrules"),
    ("/apis/apiregistration.k8s.io/v1", "apiservices"), ("/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
)  # fmt: skip
# Who may not read the cluster's record confirms the name that the inventory has.
CONFIRMED = {"kubegpu_confirm": "test"}


@pytest.fixture
def kubeconfig(plane: tuple[ControlPlane, client.ApiClient], tmp_path: Path) -> Iterator[Path]:
    """Of a user with the documented rights, in a file whose current context is another cluster."""
    config = json.loads(plane[0].kubeconfig_of(GUEST).read_text())
    config["clusters"].append({"name": "other", "cluster": {"server": "https://192.0.2.1:6443"}})
    config["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "admin"}})
    config["current-context"] = "other"
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    with allowed(plane[1], GUEST, with_prometheus(APPLY, "prometheus-k8s")):
        yield path


@pytest.fixture
def others(kube: client.ApiClient, chain: MetricChain, workloads: Workloads) -> Iterator[None]:
    """A Prometheus of an existing operator with other names; none has the collection's names."""
    core, ours, theirs = client.CoreV1Api(kube), "kube-prometheus-stack-prometheus", "prometheus-k8s"
    ports = [{"port": 9090, "targetPort": core.read_namespaced_service(ours, MONITORING).spec.ports[0].target_port}]
    slices = client.DiscoveryV1Api(kube)

    def move(old: str, new: str, selector: dict[str, str] | None) -> None:
        """Its endpoints follow the Service, which no controller ensures here."""
        core.delete_namespaced_service(old, MONITORING)
        metadata = {"name": new}
        core.create_namespaced_service(
            MONITORING, {"metadata": metadata, "spec": {"selector": selector, "ports": ports}}
        )
        moved = {"metadata": {"labels": {"kubernetes.io/service-name": new}}}
        slices.patch_namespaced_endpoint_slice("prometheus", MONITORING, moved)

    move(ours, theirs, {"app.kubernetes.io/name": "prometheus", "operator.prometheus.io/name": "k8s"})
    # A kind of that name has the plural of the operator's, which is what is asked for.
    with workloads.kind("Prometheuse", "monitoring.coreos.com/v1"):
        spec = {"ruleSelector": {"matchLabels": {"release": "kube-prometheus-stack"}}}
        body = {"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheuse", "metadata": {"name": "k8s"}}
        client.CustomObjectsApi(kube).create_namespaced_custom_object(
            "monitoring.coreos.com", "v1", MONITORING, "prometheuses", {**body, "spec": spec}
        )
        yield
    move(theirs, ours, None)


def objects(plane: ControlPlane) -> dict[str, Any]:
    """All objects of the kinds, by title, except what changes by itself: statuses, and objects being deleted."""
    found = {}
    for version, plural in KINDS:
        for item in plane.get(f"{version}/{plural}")["items"]:
            metadata = item["metadata"]
            found[f"{plural} {metadata.get('namespace', '')}/{metadata['name']}"] = item
    leaving = {title.removeprefix("namespaces /") for title, item in found.items() if deleting(item)}
    return {
        title: item
        for title, item in as_written(found).items()
        if not deleting(item) and item["metadata"].get("namespace") not in leaving
    }


def deleting(item: dict[str, Any]) -> bool:
    return "deletionTimestamp" in item["metadata"]


def test_autoscaling_needs_the_documented_rights_and_changes_nothing_else(
    tmp_path: Path,
    kubeconfig: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    chain: MetricChain,
    workloads: Workloads,
    others: None,
) -> None:
    namespace = workloads.namespace
    workloads.deployment("chat")
    workloads.node("gpu1", gpus=4)
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus(namespace, {"chat-0": 50})
    autoscaler = {"namespace": namespace, "target": {"name": "chat"}, "max_replicas": 4}
    variables = {"kubegpu_kubeconfig": str(kubeconfig), "gpu_autoscaling_autoscalers": [autoscaler]}
    before = objects(plane[0])

    refused = run_playbook(tmp_path, "kubegpu.autoscale.autoscaling", variables)
    assert refused.returncode == 2
    assert "has 2 contexts: other, test" in refused.stdout

    done = run_playbook(tmp_path, "kubegpu.autoscale.autoscaling", {**variables, "kubegpu_context": "test"})
    assert done.returncode == 0
    after = objects(plane[0])
    made = {f"horizontalpodautoscalers {namespace}/chat", "prometheusrules monitoring/kubegpu-gpu"}
    assert set(after) - set(before) == made
    assert {title: manifest for title, manifest in after.items() if title not in made} == before


def test_doctor_and_uninstall_need_the_documented_rights_alone(
    tmp_path: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    kube: client.ApiClient,
    chain: MetricChain,
    workloads: Workloads,
) -> None:
    """Who may apply makes an autoscaler, who may look examines it, and the first takes it away again."""
    namespace = workloads.namespace
    workloads.deployment("chat")
    workloads.node("gpu1", gpus=4)
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus(namespace, {"chat-0": 50})
    autoscaler = {"namespace": namespace, "target": {"name": "chat"}, "max_replicas": 4}
    before = objects(plane[0])
    with allowed(kube, GUEST, APPLY), allowed(kube, LOOKER, LOOK):
        mine = {"kubegpu_kubeconfig": str(plane[0].kubeconfig_of(GUEST)), "gpu_autoscaling_autoscalers": [autoscaler]}
        assert run_playbook(tmp_path, "kubegpu.autoscale.autoscaling", mine).returncode == 0

        theirs = {"kubegpu_kubeconfig": str(plane[0].kubeconfig_of(LOOKER)), "gpu_doctor_report_dir": str(tmp_path)}
        theirs |= {"gpu_doctor_namespace": namespace, "gpu_doctor_grace": False}

        def proven() -> dict[str, Any] | None:
            """Without grace: a scrape that is lost just then is a finding."""
            done = run_playbook(tmp_path, "kubegpu.autoscale.doctor", theirs)
            report = json.loads((tmp_path / "report.json").read_text())
            return report if done.returncode == 0 and report["autoscalers"][0]["verified"] is True else None

        report = eventually(proven, "the doctor finds nothing, and the autoscaler proven", PROOF_S)
        assert [skipped for skipped in report["not_checked"] if "no right" in skipped["reason"]] == []

        uninstall = ("kubegpu.autoscale.uninstall", {**mine, **CONFIRMED})
        assert run_playbook(tmp_path, *uninstall, "--tags", "metrics_server").returncode == 0
        removed = run_playbook(tmp_path, *uninstall)
        assert removed.returncode == 0
    assert objects(plane[0]) == before


def test_who_may_not_look_for_charts_leaves_none_of_ours_behind(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], kube: client.ApiClient, workloads: Workloads
) -> None:
    """A chart that an administrator installed is detected by the labels of its objects."""
    apps, namespace = client.AppsV1Api(kube), workloads.namespace
    marks = {"kubegpu.autoscale/inventory": "prod", "kubegpu.autoscale/release": "dcgm-exporter"}
    labels, note = marks, "meta.helm.sh/release-"
    notes = {f"{note}name": "dcgm-exporter", f"{note}namespace": namespace}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "dcgm-exporter:4"}]}}
    metadata = {"name": "dcgm-exporter", "labels": labels, "annotations": notes}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    apps.create_namespaced_daemon_set(namespace, {"metadata": metadata, "spec": spec})
    try:
        with allowed(kube, GUEST, APPLY):
            mine = {"kubegpu_kubeconfig": str(plane[0].kubeconfig_of(GUEST)), **CONFIRMED}
            mine["kubegpu_inventory_id"] = "prod"
            refused = run_playbook(tmp_path, "kubegpu.autoscale.uninstall", mine)
    finally:
        apps.delete_namespaced_daemon_set("dcgm-exporter", namespace)
    assert refused.returncode == 2
    assert f"the collection made {namespace}/dcgm-exporter, and this user may not list Secrets" in refused.stdout
