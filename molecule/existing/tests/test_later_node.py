"""A node with GPUs that comes later: plugin and exporter reach it, and its pods get their metric, without a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from foreign import ADMIN, Case, Owner, Site, differing, page, until
from programs import program
from testinfra.host import Host

testinfra_hosts = ["ansible://kube_control_plane"]

# What node-feature-discovery writes on a node with NVIDIA's devices.
DISCOVERED = "feature.node.kubernetes.io/pci-10de.present"
CASE = Case(
    plugin={"kind": "DaemonSet", "name": "nvidia-device-plugin/nvidia-device-plugin", "origin": "kubegpu"},
    exporter={"kind": "DaemonSet", "name": "monitoring/dcgm-exporter", "origin": "kubegpu"},
    adapter="metrics-prometheus-adapter",
    releases={"metrics": ("prometheus-adapter", "adapters", "adapter-default")},
    load=0.4,
    replicas=1,
)


@pytest.fixture(scope="module")
def site(owner: Owner) -> Iterator[Site]:
    """An existing Prometheus and adapter, without GPU components."""
    owner.release("monitoring", "kube-prometheus-stack", "observability", page("stack")[0])
    site = Site("later", CASE, owner)
    site.release()
    site.allow_our_metrics()
    site.before = owner.dump()
    yield site
    owner.kubectl("label", "nodes", "--all", f"{DISCOVERED}-")
    site.clear()


def test_a_pool_at_zero_is_no_error(site: Site, host: Host) -> None:
    known = {"kubegpu_kubeconfig": str(ADMIN), "kubegpu_context": "", "kubegpu_helm_binary": str(program("helm"))}
    known |= {"kubegpu_chart_mirror": host.ansible.get_variables()["kubegpu_chart_mirror"]}
    known |= {"nvidia_device_plugin_feature_discovery": False}
    for playbook in ("gpu", "monitoring"):
        assert site.play(playbook, **known).returncode == 0

    found = site.module("gpu_cluster_info")["result"]["components"]
    assert [component["name"] for component in found["device_plugin"] if component["owned"]] == [CASE.plugin["name"]]
    assert [component["name"] for component in found["exporter"] if component["owned"]] == [CASE.exporter["name"]]
    assert [component["owned"] for component in found["prometheus"]] == [False]
    assert site.gpus() in ("", "0")


def test_a_node_that_comes_is_reached_and_its_pods_are_measured(site: Site) -> None:
    site.owner.kubectl("label", "nodes", "--all", f"{DISCOVERED}=true")

    until(lambda: site.gpus() == "8", "the plugin has reached the node")
    site.work()
    assert site.play("autoscaling").returncode == 0
    until(site.rests, "the HPA has its metric")


def test_uninstall_takes_ours_from_beside_theirs(site: Site) -> None:
    site.owner.kubectl("label", "nodes", "--all", f"{DISCOVERED}-")
    known = {"kubegpu_kubeconfig": str(ADMIN), "kubegpu_context": "", "kubegpu_helm_binary": str(program("helm"))}
    assert site.play("uninstall", kubegpu_cluster_name="a", kubegpu_confirm="a", **known).returncode == 0

    until(lambda: differing(site.before, site.owner.dump()) == set(), "what others made is as it was")
