"""What keeps to one pool of nodes, and what each pool has for itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from chart_site import Site
from control_plane import eventually, running
from playbook import ACCESS, changed, local
from served_kinds import SERVED_S

PRESENT, CONFIG = "nvidia.com/gpu.present", "nvidia.com/device-plugin.config"
SEEN = {"feature.node.kubernetes.io/pci-10de.present": "true"}
NODES = {
    "inference": {**SEEN, "pool": "inference"},
    "training": {**SEEN, "pool": "training"},
    "plain": {"pool": "training"},
}
SHARED = {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("control-plane"), "daemonset-controller") as plane:
        site = Site(tmp_path_factory.mktemp("site"), *plane)
        for name, labels in NODES.items():
            site.core.create_node({"metadata": {"name": name, "labels": labels}})
            site.core.patch_node(name, {"spec": {"taints": None}})  # the API server has marked it as not ready
        yield site
        site.stop()


def labels(site: Site, label: str) -> dict[str, str]:
    found = {node.metadata.name: node.metadata.labels.get(label) for node in site.core.list_node().items}
    return {name: value for name, value in found.items() if value is not None}


def test_labels_plugin_and_exporter_keep_to_the_pool_of_the_inventory(site: Site) -> None:
    roles = ("gpu_node_labels", "nvidia_device_plugin", "dcgm_exporter")
    pool = {"kubegpu_gpu_node_selector": {"pool": "inference"}}
    assert site.bring("gpu_node_labels").returncode == 0
    assert labels(site, PRESENT) == {"inference": "true", "training": "true"}

    assert site.bring(*roles, **pool).returncode == 0
    assert labels(site, PRESENT) == {"inference": "true"}
    for daemon_set in ("nvidia-device-plugin", "dcgm-exporter"):
        eventually(partial(site.reaches, daemon_set, {"inference"}), f"{daemon_set} keeps to the pool", SERVED_S)
    again = site.bring(*roles, **pool)
    assert (again.returncode, changed(again.stdout)) == (0, 0)


def bring_pools(site: Site, *pools: dict[str, Any], **variables: Any) -> tuple[int, str]:
    """Of the role's part that labels nodes: the lab's chart has one configuration, and none by node."""
    role = {"name": "kubegpu.autoscale.nvidia_device_plugin"}
    tasks = [
        {"ansible.builtin.include_role": {**role, "tasks_from": part, "apply": ACCESS}}
        for part in ("preflight", "pools")
    ]
    done = site.play(local(*tasks), nvidia_device_plugin_pools=list(pools), **variables)
    return (changed(done.stdout) if done.returncode == 0 else -1), " ".join((done.stdout + done.stderr).split())


def test_each_node_of_a_pool_has_its_configuration(site: Site) -> None:
    shared = {"name": "shared", "nodes": {"pool": "training"}, "config": SHARED}
    assert bring_pools(site, shared)[0] == 1
    assert labels(site, CONFIG) == {"training": "shared", "plain": "shared"}
    assert bring_pools(site, shared)[0] == 0
    narrow = {**shared, "name": "narrow", "nodes": {"pool": "training", **SEEN}}
    assert bring_pools(site, narrow, shared)[0] == 1
    assert labels(site, CONFIG) == {"training": "narrow", "plain": "shared"}
    assert bring_pools(site)[0] == 1
    assert labels(site, CONFIG) == {}


def test_a_configuration_that_a_person_has_given_stays(site: Site) -> None:
    site.core.patch_node("inference", {"metadata": {"labels": {CONFIG: "by-hand"}}})
    _changed, said = bring_pools(site, {"name": "all", "nodes": SEEN, "config": SHARED})
    assert "inference needs configuration all, but has by-hand" in said
    assert bring_pools(site, nvidia_device_plugin_state="absent")[0] == 0
    assert labels(site, CONFIG) == {"inference": "by-hand"}
    _changed, said = bring_pools(site, {"name": "default", "nodes": {}, "config": {}})
    assert "has the names default. Nothing was changed." in said


def test_sharing_that_cannot_be_is_refused(site: Site) -> None:
    alone = {"name": "dev", "nodes": {"pool": "training"}, "sharing": "time-slicing"}
    _changed, said = bring_pools(site, alone)
    assert "pool dev has time-slicing with 1 replicas. Nothing was changed." in said
    _changed, said = bring_pools(site, nvidia_device_plugin_sharing="mps")
    assert "nvidia_device_plugin_sharing has mps with 1 replicas. Nothing was changed." in said
    parts = {**alone, "sharing": "mps", "replicas": 2}
    _changed, said = bring_pools(site, parts, nvidia_device_plugin_feature_discovery=False)
    assert "MPS needs nvidia_device_plugin_feature_discovery." in said
    assert bring_pools(site, {**parts, "sharing": "time-slicing"}, nvidia_device_plugin_feature_discovery=False)[0] == 1
    assert bring_pools(site)[0] == 1
