"""What a run writes names its inventory, and another inventory that comes and goes changes none of it.

The list of objects is the API server's audit log of the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import INVENTORY, MANAGED_BY, MANAGER
from chart_site import ROLES, Site
from cluster_dump import as_written
from collection import ROOT
from control_plane import running
from kubernetes import client
from mig_manager import CAPABLE, Manager
from playbook import ACCESS, local

USER = "guest"
SEEN = {"feature.node.kubernetes.io/pci-10de.present": "true"}
GOAL = {"type": "AverageValue", "averageValue": "60"}
POOL = {"name": "shared", "nodes": {"pool": "shared"}, "config": {"version": "v1"}}
# Annotations of a node that a run takes out of service, with the inventory of that run.
CORDONED = sorted(
    {
        mark
        for folder, kind in (("roles", "*.yml"), ("plugins", "*.py"))
        for path in (ROOT / folder).rglob(kind)
        for mark in re.findall(r"kubegpu[.]autoscale/cordoned-for-[a-z]+", path.read_text())
    }
)
BROUGHT = ("gpu_node_labels", *ROLES, "gpu_alerts", "gpu_dashboards", "gpu_mig")
# Included by parts, because their last part waits for a kubelet.
IN_PARTS = {"nvidia_device_plugin": ("preflight", "pools"), "gpu_workload": ("preflight", "install")}
ELSEWHERE = {
    "_common": "its tasks are part of the other roles",
    "gpu_autoscaling": "needs a Prometheus that answers: tests/unit/actions/test_reconcile.py",
    "gpu_loadtest": "its objects last as long as the test",
    "gpu_operator": "a release like the others, in place of two of them: the lab has no chart",
    "gpu_proof": "its objects last as long as the proof: test_gpu_proof.py",
    "kubernetes": "its cluster has the servers of one inventory: tests/roles/test_files_of_servers.py",
    "maintain": "the cordon of a server, which is on gpu2",
}
# Of the first inventory. The second one uses what is there, as by default: another one of these, and of what is
# included by parts, is refused.
FIRST: dict[str, Any] = {"metrics_server_state": "present", "keda_state": "present"}
OPTIONS: dict[str, Any] = {
    "gpu_mig_state": "present",
    "gpu_mig_profile": "all-1g.10gb",
    "gpu_mig_drain_options": {"force": True},
    "gpu_workload_service": True,
    "kubegpu_gpu_node_selector": {"pool": "shared"},
    "nvidia_device_plugin_pools": [POOL],
}
WRITERS = re.compile(
    r"kubernetes[.]core[.]k8s(?:_drain)?:|kubegpu[.]autoscale[.](?:objects|chart_release|gpu_autoscaler|gpu_proof):"
    r"|tasks_from: (?:chart_present|drain|uncordon)\b|kubectl\b.*\b(?:apply|create|rollout)\b"
)


class Owned:
    def __init__(self, site: Site) -> None:
        self.site = site
        self._kubeconfig = str(site.plane.kubeconfig_of(USER))

    def bring(self, inventory: str, **more: Any) -> set[str]:
        """Titles of what the run has written."""
        before = self.written
        options = self._options(inventory) | more
        done = self.site.bring(*BROUGHT, **{**options, "nvidia_device_plugin_pools": []})
        assert done.returncode == 0
        for role, parts in IN_PARTS.items() if more else ():
            included = {"name": f"kubegpu.autoscale.{role}", "apply": ACCESS}
            tasks = [{"ansible.builtin.include_role": {**included, "tasks_from": part}} for part in parts]
            assert self.site.play(local(*tasks), **options).returncode == 0
        return self.written - before

    def uninstall(self, inventory: str) -> CompletedProcess[str]:
        """With names and pools of the first one, as by a copy of its folder. The playbook sets the states."""
        options = {name: value for name, value in self._options(inventory).items() if not name.endswith("_state")}
        return self.site.play("kubegpu.autoscale.uninstall", **options)

    @property
    def written(self) -> set[str]:
        return self.site.plane.written_objects(USER)

    def _options(self, inventory: str) -> dict[str, Any]:
        return {**OPTIONS, "kubegpu_kubeconfig": self._kubeconfig, "kubegpu_inventory_id": inventory}


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owned]:
    with running(tmp_path_factory.mktemp("control-plane"), "daemonset-controller") as plane:
        site = Site(tmp_path_factory.mktemp("site"), *plane)
        subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": USER}, "subjects": [subject], "roleRef": role}
        client.RbacAuthorizationV1Api(site.kube).create_cluster_role_binding(binding)
        marked = dict.fromkeys(CORDONED, "one")
        nodes = {"gpu1": ({"pool": "shared", **CAPABLE}, {}), "gpu2": ({}, marked)}
        for name, (labels, annotations) in nodes.items():
            metadata = {"name": name, "labels": SEEN | labels, "annotations": annotations}
            site.core.create_node({"metadata": metadata})
            site.core.patch_node(name, {"spec": {"taints": None, "unschedulable": bool(annotations) or None}})
        manager = Manager(site)
        yield Owned(site)
        manager.stop()
        site.stop()


def owners(item: dict[str, Any]) -> set[str]:
    """Inventories that labels and annotations name, each as a whole value."""
    metadata = item["metadata"]
    return {*(metadata.get("labels") or {}).values(), *(metadata.get("annotations") or {}).values()} & {"one", "two"}


def test_what_an_inventory_wrote_names_it_and_stays_when_another_one_comes_and_goes(owned: Owned) -> None:
    wrote = owned.bring("one", **FIRST)
    made = owned.site.objects()
    left = {title: made[title] for title in wrote & made.keys()}
    kinds = {title.partition(" ")[0] for title in left}
    assert {"nodes", "namespaces", "apiservices", "runtimeclasses", "clusterroles", "daemonsets", "secrets"} <= kinds
    assert [title for title, item in left.items() if owners(item) != {"one"}] == []

    owned.bring("two")
    both = owned.site.objects()
    assert as_written({title: both.get(title, {"metadata": {}}) for title in left}) == as_written(left)
    assert owned.uninstall("two").returncode == 0
    assert as_written(owned.site.objects()) == as_written(made)

    # The first one has what serves metrics to the HPA of another.
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
        "maxReplicas": 2,
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": "gpu"}, "target": GOAL}}],
    }
    metadata = {"name": "chat", "labels": {MANAGED_BY: MANAGER, INVENTORY: "two"}}
    client.AutoscalingV2Api(owned.site.kube).create_namespaced_horizontal_pod_autoscaler(
        "default", {"metadata": metadata, "spec": spec}
    )
    refused = owned.uninstall("one")
    assert refused.returncode != 0
    assert "default/chat (inventory two)" in " ".join(refused.stdout.split())
    now = owned.site.objects()
    assert as_written({title: now.get(title, {"metadata": {}}) for title in made}) == as_written(made)


def test_each_role_that_writes_to_the_cluster_is_among_them() -> None:
    tasks = ROOT.glob("roles/*/tasks/*.yml")
    writing = {path.parts[-3] for path in tasks if WRITERS.search(path.read_text())}
    assert {*BROUGHT, *IN_PARTS, *ELSEWHERE} == writing
    assert len(CORDONED) > 2
