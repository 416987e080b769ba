"""The chart roles on a cluster that others have furnished: what stays, what comes in its place, and to which nodes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from chart_site import ROLES, Site
from control_plane import eventually, running
from kubernetes import client
from playbook import changed
from served_kinds import SERVED_S

# An autoscaler that asks for CPU, so that metrics-server is wanted.
ON_CPU = [{"name": "chat", "namespace": "ml", "extra_metrics": [{"type": "Resource", "resource": {"name": "cpu"}}]}]
STACK = ["crds.enabled=false", "alertmanager.enabled=false", "grafana.enabled=false"]
STACK += ["prometheusOperator.tls.enabled=false", "prometheusOperator.admissionWebhooks.enabled=false"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("control-plane"), "daemonset-controller") as plane:
        site = Site(tmp_path_factory.mktemp("site"), *plane)
        yield site
        site.stop()


# What a node brings along when it joins: by node-feature-discovery, Karpenter and the clouds.
LATER = {
    "discovered": {"feature.node.kubernetes.io/pci-10de.present": "true"},
    "karpenters": {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"},
    "eks": {"k8s.amazonaws.com/accelerator": "nvidia-tesla-a10g"},
    "gke": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
    "aks": {"kubernetes.azure.com/accelerator": "nvidia"},
}


def test_what_others_made_is_used_and_stays_to_the_byte(site: Site) -> None:
    site.core.create_namespace({"metadata": {"name": "observability"}})
    site.install("prom", "kube-prometheus-stack", "observability", *STACK)
    site.install(
        "adapter", "prometheus-adapter", "observability", "rules.default=false", "rules.custom[0].seriesQuery=up"
    )
    site.install("resources", "metrics-server", "observability")
    apps = client.AppsV1Api(site.kube)
    for name, image in (
        ("exporter", "nvidia/dcgm-exporter:3.3.5"),
        ("plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.17"),
    ):
        pod = {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": f"{name}-device-plugin", "image": image}]},
        }
        spec = {"selector": {"matchLabels": {"app": name}}, "template": pod}
        apps.create_namespaced_daemon_set("default", {"metadata": {"name": name}, "spec": spec})
    before = site.objects()

    used = site.bring(*ROLES, gpu_autoscaling_autoscalers=ON_CPU)
    assert (used.returncode, changed(used.stdout)) == (0, 0)
    assert site.play("kubegpu.autoscale.uninstall", kubegpu_confirm="test").returncode == 0
    assert site.objects() == before


def test_a_cluster_whose_default_runtime_is_nvidia_s_gets_no_runtime_class(site: Site) -> None:
    """In the place of what the test before has left."""
    client.AppsV1Api(site.kube).delete_collection_namespaced_daemon_set("default")
    assert site.bring("nvidia_device_plugin", nvidia_device_plugin_runtime_class="").returncode == 0
    assert client.NodeV1Api(site.kube).list_runtime_class().items == []


def test_ours_reach_nodes_that_come_later(site: Site) -> None:
    assert site.bring("nvidia_device_plugin", "dcgm_exporter").returncode == 0

    for name, labels in {**LATER, "processors-only": {"kubernetes.azure.com/accelerator": "amd"}}.items():
        site.core.create_node({"metadata": {"name": name, "labels": labels}})
        site.core.patch_node(name, {"spec": {"taints": None}})  # the API server has marked it as not ready
    for daemon_set in ("nvidia-device-plugin", "dcgm-exporter"):
        eventually(
            partial(site.reaches, daemon_set, set(LATER)), f"{daemon_set} reaches every node with GPUs", SERVED_S
        )


def test_metrics_server_comes_when_it_is_asked_for_and_goes_without_a_trace(site: Site) -> None:
    site.helm("uninstall", "resources", "-n", "observability")
    before = site.objects()

    assert changed(site.bring("metrics_server").stdout) == 0
    assert site.objects() == before
    assert changed(site.bring("metrics_server", gpu_autoscaling_autoscalers=ON_CPU).stdout) > 0
    api = client.ApiregistrationV1Api(site.kube).read_api_service("v1beta1.metrics.k8s.io")
    assert (api.spec.service.namespace, api.spec.service.name) == ("kube-system", "metrics-server")
    assert changed(site.bring("metrics_server").stdout) == 0
    assert changed(site.bring("metrics_server", metrics_server_state="absent").stdout) > 0
    assert site.objects() == before


def test_what_comes_after_a_stack_of_ours_that_goes_follows_the_one_that_stays(site: Site) -> None:
    """In the same run: the roles decided by what was there before, and one more run was needed to mend it."""
    chain = ("prometheus_stack", "dcgm_exporter", "prometheus_adapter")
    for release in ("prom", "adapter"):
        site.helm("uninstall", release, "-n", "observability")
    assert site.bring(*chain).returncode == 0
    site.install("prom", "kube-prometheus-stack", "observability", *STACK)

    assert site.bring(*chain, prometheus_stack_state="absent").returncode == 0
    adapter = client.AppsV1Api(site.kube).read_namespaced_deployment("prometheus-adapter", "monitoring")
    assert ".observability.svc:" in str(adapter.spec.template.spec.containers[0])
    assert changed(site.bring(*chain, prometheus_stack_state="absent").stdout) == 0
