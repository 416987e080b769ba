"""Argo CD's controller and repository server with the folder of the playbook `gitops`: sync, restore, change, delete.

They are processes beside an API server. No pod runs, so the health of the objects is not checked.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.ownership import is_up_to_date
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import MANAGER
from chart_site import CHARTS, Site, operator_crds
from control_plane import ControlPlane, eventually, free_port, running
from fleet_repository import FleetRepository
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from programs import FOLDER, program

Object = dict[str, Any]
APPLICATIONS = ("argoproj.io", "v1alpha1", "argocd", "applications")
# Tried again after 10 s, 20 s and 40 s where something comes too early.
SETTLE_S = 240
INVENTORY: Object = {
    "dcgm_exporter_values": {"nodeSelector": {"pool": "inference"}},
    "prometheus_adapter_external_metrics": True,
    "metrics_server_state": "present",
}
CHAT = {"namespace": "default", "target": {"name": "chat"}, "max_replicas": 4}
TRAIN = {"namespace": "default", "target": {"name": "train"}, "metric": "gpu_memory", "max_replicas": 2}

BROUGHT = set(CHARTS) - {"keda"}  # no autoscaler uses it

# `make test` does not compile it: its own target does.
COMPILED = (FOLDER / "argocd").exists() or bool(os.environ.get("ARGOCD"))
pytestmark = pytest.mark.skipif(not COMPILED, reason="`make test-argocd` compiles it")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    # What Argo CD removes it removes in the foreground.
    with running(tmp_path_factory.mktemp("control-plane"), "garbage-collector-controller") as (plane, kube):
        site = Site(tmp_path_factory.mktemp("site"), plane, kube)
        # Argo CD installs these from the chart.
        for crd in operator_crds():
            client.ApiextensionsV1Api(kube).delete_custom_resource_definition(crd["metadata"]["name"])
        kinds = program("argocd").resolve().parent / "crds"
        kubectl(
            plane,
            "apply",
            "--server-side",
            *(f"--filename={kinds}/{kind}-crd.yaml" for kind in ("application", "appproject")),
        )
        kubectl(
            plane, "wait", "--for=condition=Established", "crd/applications.argoproj.io", "crd/appprojects.argoproj.io"
        )
        start(plane)
        yield site
        site.stop()


def start(plane: ControlPlane) -> None:
    """What Argo CD's `core` manifests have, without ApplicationSets."""
    part_of = {"app.kubernetes.io/part-of": "argocd"}
    project = {"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}]}
    everything = [{"group": "*", "kind": "*"}]
    manifests = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-cm", "labels": part_of}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "argocd-secret", "labels": part_of}},
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "AppProject",
            "metadata": {"name": "default"},
            "spec": {**project, "clusterResourceWhitelist": everything},
        },
    ]
    apply(plane, *manifests)
    redis, repositories = free_port(), free_port()
    named = {}
    for name in ("argocd-application-controller", "argocd-repo-server"):
        named[name] = plane.work / name
        named[name].symlink_to(program("argocd").resolve())
    folders = {
        name: plane.work / name.lower()
        for name in ("TMPDIR", "ARGOCD_TLS_DATA_PATH", "ARGOCD_SSH_DATA_PATH", "ARGOCD_GNUPGHOME", "HELM_CACHE_HOME")
    }
    for folder in folders.values():
        folder.mkdir()
    told = {
        **folders,
        "KUBECONFIG": plane.kubeconfig,
        "ARGOCD_FAKE_IN_CLUSTER": "true",
        "ARGOCD_GPG_ENABLED": "false",
        "ARGOCD_ASK_PASS_SOCK": plane.work / "ask-pass.sock",
        "PATH": f"{program('helm').parent}{os.pathsep}{os.environ['PATH']}",
    }
    known = ("env", *(f"{name}={value}" for name, value in told.items()))
    common = (f"--redis=127.0.0.1:{redis}", "--namespace=argocd", f"--kubeconfig={plane.kubeconfig}")
    # Debian's own, with the libraries beside it.
    server = program("redis-server")
    libraries = server.resolve().parents[2] / "usr" / "lib" / "x86_64-linux-gnu"
    plane.run(
        "redis", "env", f"LD_LIBRARY_PATH={libraries}", server,
        "--bind", "127.0.0.1", "--port", redis, "--save", "", "--appendonly", "no",
    )  # fmt: skip
    plane.run(
        "argocd-repo-server", *known, named["argocd-repo-server"], f"--redis=127.0.0.1:{redis}", "--disable-tls",
        "--address=127.0.0.1", f"--port={repositories}", f"--metrics-port={free_port()}",
    )  # fmt: skip
    plane.run(
        "argocd-application-controller", *known, named["argocd-application-controller"], *common,
        f"--repo-server=127.0.0.1:{repositories}", "--repo-server-plaintext", f"--metrics-port={free_port()}",
    )  # fmt: skip


def kubectl(plane: ControlPlane, *words: str, given: str = "") -> str:
    argv = [str(program("kubectl")), f"--kubeconfig={plane.kubeconfig}", *words]
    return subprocess.run(argv, input=given, text=True, check=True, stdout=subprocess.PIPE).stdout


def apply(plane: ControlPlane, *manifests: Object) -> None:
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    kubectl(plane, "apply", "--namespace=argocd", "--server-side", "--filename=-", given=items)


class Fleet(FleetRepository):
    """A repository with the folder in it, that Argo CD follows."""

    def __init__(self, site: Site, work: Path) -> None:
        source = {"gitops_repository": f"file://{work}", "gitops_revision": "main"}
        super().__init__(site, work, INVENTORY, {"gitops_tool": "argocd", **source}, "Application")
        self._objects = client.CustomObjectsApi(site.kube)

    def refresh(self) -> None:
        """As `argocd app get --refresh` does; else it looks every three minutes."""
        for name in self.applications():
            asked = {"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}}
            self._objects.patch_namespaced_custom_object(*APPLICATIONS, name, asked)

    def has_looked(self) -> bool:
        """It takes the annotation away once it has compared."""
        return not any(
            "argocd.argoproj.io/refresh" in application["metadata"].get("annotations", {})
            for application in self.applications().values()
        )

    def applications(self) -> dict[str, Object]:
        found = self._objects.list_namespaced_custom_object(*APPLICATIONS)["items"]
        return {application["metadata"]["name"]: application for application in found}

    def states(self) -> dict[str, str]:
        return {
            name: application.get("status", {}).get("sync", {}).get("status", "")
            for name, application in self.applications().items()
        }

    def settle(self) -> None:
        """Wait until each Application is synced."""
        try:
            eventually(self.is_synced, "each Application is synced", SETTLE_S)
        except AssertionError:
            for name, application in self.applications().items():
                status = application.get("status", {})
                seen = {part: status.get(part) for part in ("conditions", "operationState")}
                differing = [row for row in status.get("resources", []) if row.get("status") != "Synced"]
                print(name, status.get("sync", {}).get("status"), json.dumps({**seen, "resources": differing})[:3000])
            raise

    def is_synced(self) -> bool:
        states = self.states()
        return set(states) == {"kubegpu", "kubegpu-objects", *BROUGHT} and set(states.values()) == {"Synced"}


@pytest.fixture(scope="module")
def fleet(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Pushed, and its beginning applied by hand."""
    fleet = Fleet(site, tmp_path_factory.mktemp("fleet"))
    fleet.push(CHAT, TRAIN)
    kubectl(site.plane, "apply", f"--filename={fleet.folder}/kubegpu.yaml")
    return fleet


def read(site: Site, manifest: Object) -> Object | None:
    kind = DynamicClient(site.kube).resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
    metadata = manifest["metadata"]
    try:
        return kind.get(name=metadata["name"], namespace=metadata.get("namespace")).to_dict()
    except ApiException as error:
        if error.status != 404:
            raise
        return None


def test_argo_cd_brings_the_folder_and_leaves_it_alone(site: Site, fleet: Fleet) -> None:
    fleet.settle()

    written = fleet.written()
    assert {manifest["kind"] for manifest in written} >= {"HorizontalPodAutoscaler", "PrometheusRule", "ConfigMap"}
    for manifest in written:
        found = read(site, manifest)
        assert found, manifest["metadata"]["name"]
        assert is_up_to_date(found, manifest, MANAGER), manifest["metadata"]["name"]
    brought = [
        resource
        for name, application in fleet.applications().items()
        if name in BROUGHT
        for resource in application["status"]["resources"]
    ]
    assert {"DaemonSet", "Deployment", "Prometheus", "APIService", "CustomResourceDefinition"} <= {
        resource["kind"] for resource in brought
    }
    assert {resource["status"] for resource in brought} == {"Synced"}

    # Nothing that the API server adds is taken for a change: no Application is applied a second time.
    before = revisions(fleet)
    fleet.refresh()
    eventually(fleet.has_looked, "Argo CD has compared each Application again", SETTLE_S)
    assert fleet.is_synced()
    assert revisions(fleet) == before


def revisions(fleet: Fleet) -> dict[str, tuple[int, str]]:
    """How often each was applied, and when last."""
    states = {name: application["status"] for name, application in fleet.applications().items()}
    return {
        name: (len(status.get("history", [])), status["operationState"]["finishedAt"])
        for name, status in states.items()
    }


def test_what_somebody_deletes_comes_back(site: Site, fleet: Fleet) -> None:
    fleet.settle()
    autoscaling = client.AutoscalingV2Api(site.kube)
    autoscaling.delete_namespaced_horizontal_pod_autoscaler("chat", "default")

    def names() -> set[str]:
        return {hpa.metadata.name for hpa in autoscaling.list_namespaced_horizontal_pod_autoscaler("default").items}

    assert names() == {"train"}
    eventually(lambda: names() == {"chat", "train"}, "it is back", SETTLE_S)


def test_a_change_of_the_inventory_is_applied_and_what_is_left_out_goes(site: Site, fleet: Fleet) -> None:
    fleet.settle()
    fleet.push({**CHAT, "max_replicas": 6})
    fleet.refresh()

    def maxima() -> dict[str, int]:
        listed = client.AutoscalingV2Api(site.kube).list_namespaced_horizontal_pod_autoscaler("default").items
        return {hpa.metadata.name: hpa.spec.max_replicas for hpa in listed}

    eventually(lambda: maxima() == {"chat": 6}, "chat has six, and train is gone", SETTLE_S)
    rules = client.CustomObjectsApi(site.kube).list_cluster_custom_object(
        "monitoring.coreos.com", "v1", "prometheusrules"
    )
    names = {rule["metadata"]["name"] for rule in rules["items"]}
    assert "kubegpu-gpu" in names
    assert "kubegpu-gpu-memory" not in names


def test_all_of_it_goes_with_the_first_application(site: Site, fleet: Fleet) -> None:
    fleet.settle()
    written = fleet.written()
    kubectl(site.plane, "--namespace=argocd", "delete", "application", "kubegpu", "--wait=false")
    eventually(lambda: fleet.applications() == {}, "no Application is left", SETTLE_S)
    left = [
        manifest["metadata"]["name"]
        for manifest in written
        if manifest["kind"] != "PrometheusRule" and read(site, manifest)
    ]
    assert left == []
    assert client.AppsV1Api(site.kube).list_daemon_set_for_all_namespaces().items == []
