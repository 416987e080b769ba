"""What a run writes says for which inventory, and another inventory that is uninstalled changes none of it.

The list of objects is that of a run: what is new in the cluster, and what has changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import RELEASE
from chart_site import ROLES, Site
from cluster_dump import as_written
from control_plane import running
from playbook import ACCESS, local

SEEN = {"feature.node.kubernetes.io/pci-10de.present": "true"}
POOL = {"name": "shared", "nodes": {"pool": "shared"}, "config": {"version": "v1"}}
BROUGHT = ("gpu_node_labels", *ROLES, "gpu_alerts", "gpu_dashboards")
OPTIONS: dict[str, Any] = {
    "metrics_server_state": "present",
    "keda_state": "present",
}
# What the API server and its controllers make in each namespace.
AUTOMATIC = ("configmaps", "serviceaccounts")
NAMES = ("kube-root-ca.crt", "default")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("control-plane"), "daemonset-controller") as plane:
        site = Site(tmp_path_factory.mktemp("site"), *plane)
        for name, labels in {"gpu1": SEEN | {"pool": "shared"}, "gpu2": SEEN}.items():
            site.core.create_node({"metadata": {"name": name, "labels": labels}})
            site.core.patch_node(name, {"spec": {"taints": None}})
        yield site
        site.stop()


def bring(site: Site, inventory: str) -> None:
    """With the labels of pools apart, because the lab's chart has no configuration by node."""
    assert site.bring(*BROUGHT, kubegpu_inventory_id=inventory, **OPTIONS).returncode == 0
    role = {"name": "kubegpu.autoscale.nvidia_device_plugin", "apply": ACCESS}
    parts = [{"ansible.builtin.include_role": {**role, "tasks_from": part}} for part in ("preflight", "pools")]
    done = site.play(local(*parts), kubegpu_inventory_id=inventory, nvidia_device_plugin_pools=[POOL])
    assert done.returncode == 0


def uninstall(site: Site, inventory: str) -> None:
    """With the rest of the first one's options, as by a copy of its folder."""
    done = site.play("kubegpu.autoscale.uninstall", kubegpu_inventory_id=inventory, nvidia_device_plugin_pools=[POOL])
    assert done.returncode == 0


def owners(item: dict[str, Any]) -> set[str]:
    """Inventories that labels and annotations name, each as a whole value."""
    metadata = item["metadata"]
    return {*(metadata.get("labels") or {}).values(), *(metadata.get("annotations") or {}).values()} & {"one", "two"}


def test_each_object_of_an_inventory_names_it_and_stays_when_another_one_is_uninstalled(site: Site) -> None:
    empty = site.objects()
    bring(site, "one")
    made = site.objects()
    new = {title: item for title, item in made.items() if title not in empty}
    changed = {title for title in empty if title in made and _own(empty[title]) != _own(made[title])}
    assert {"nodes /gpu1", "nodes /gpu2"} <= changed
    kinds = {title.partition(" ")[0] for title in new}
    assert {"namespaces", "apiservices", "runtimeclasses", "daemonsets", "configmaps"} <= kinds
    unnamed = [
        title
        for title, item in new.items()
        if not owners(item) and RELEASE not in (item["metadata"].get("labels") or {}) and not _is_automatic(title)
    ]
    assert unnamed == []
    assert [title for title in changed if owners(made[title]) != {"one"}] == []

    uninstall(site, "two")
    assert as_written(site.objects()) == as_written(made)


def _own(item: dict[str, Any]) -> str:
    """What a person or a run writes: labels, annotations and spec."""
    metadata = item["metadata"]
    return json.dumps([metadata.get("labels"), metadata.get("annotations"), item.get("spec")], sort_keys=True)


def _is_automatic(title: str) -> bool:
    plural, name = title.split(" ")
    return plural in AUTOMATIC and name.partition("/")[2] in NAMES
