"""The chart roles on a cluster that others have furnished: what stays, what comes in its place, and to which nodes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from cluster_dump import objects_of
from collection import ROOT
from control_plane import ControlPlane, eventually, running
from kubernetes import client
from playbook import changed, local, run_playbook
from programs import program

VERSIONS = yaml.safe_load((ROOT / "roles" / "_common" / "defaults" / "main" / "versions.yml").read_text())
CHARTS = VERSIONS["kubegpu_pinned_versions"]["charts"]
ROLES = ("nvidia_device_plugin", "prometheus_stack", "dcgm_exporter", "prometheus_adapter")
# Without a node nothing gets ready: what is waited for elsewhere is not what is asked here.
OPTIONS: dict[str, Any] = {**{f"{role}_wait": False for role in ROLES}, "nvidia_device_plugin_feature_discovery": False}
STACK = ["crds.enabled=false", "alertmanager.enabled=false", "grafana.enabled=false"]
STACK += ["prometheusOperator.tls.enabled=false", "prometheusOperator.admissionWebhooks.enabled=false"]


class Site:
    """A control plane with the operator's kinds, and charts with the names and values of upstream's in a mirror."""

    def __init__(self, work: Path, plane: ControlPlane, kube: client.ApiClient) -> None:
        self._work, self.plane, self.kube = work, plane, kube
        self.core = client.CoreV1Api(self.kube)
        (work / "helm").mkdir()
        self._helm = Path(shutil.copy(program("helm"), work / "helm" / "helm"))
        self._charts = work / "charts"
        handler = partial(Quiet, directory=str(self._charts))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self._package()
        for crd in operator_crds():
            client.ApiextensionsV1Api(self.kube).create_custom_resource_definition(crd)

    def stop(self) -> None:
        self._server.shutdown()

    def _package(self) -> None:
        repositories = set()
        for name, chart in CHARTS.items():
            repository = self._charts / chart["repository"].removeprefix("https://")
            repositories.add(repository)
            source = self._work / "sources" / name
            shutil.copytree(ROOT / "lab" / "charts" / name, source)
            if name == "kube-prometheus-stack":
                folder = source / "charts" / "crds" / "crds"
                folder.mkdir()
                folder.joinpath("all.yaml").write_text("\n---\n".join(map(json.dumps, operator_crds())))
            self.helm("package", source, "--version", chart["version"], "--destination", repository)
        for repository in repositories:
            self.helm("repo", "index", repository)

    def helm(self, *words: object) -> None:
        where = ("--kubeconfig", self.plane.kubeconfig)
        subprocess.run([str(word) for word in (self._helm, *where, *words)], check=True, capture_output=True)

    def install(self, release: str, chart: str, namespace: str, *values: str) -> None:
        """As somebody else does it."""
        sets = [f"--set={value}" for value in values]
        self.helm("install", release, self._work / "sources" / chart, "-n", namespace, "--create-namespace", *sets)

    def play(self, playbook: Any, **variables: Any) -> subprocess.CompletedProcess[str]:
        known = {"kubegpu_kubeconfig": str(self.plane.kubeconfig), "kubegpu_helm_binary": str(self._helm)}
        known |= {"kubegpu_chart_mirror": f"http://127.0.0.1:{self._server.server_port}", "helm_state": "present"}
        return run_playbook(self._work, playbook, {**known, **OPTIONS, **variables})

    def bring(self, *roles: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        return self.play(local(roles=[f"kubegpu.autoscale.{role}" for role in roles]), **variables)

    def objects(self) -> dict[str, Any]:
        """Every object that somebody made, by title. A kind that comes or goes just now is waited for."""
        seen: list[dict[str, Any]] = []

        def look() -> bool:
            with suppress(HTTPError):
                seen.append(objects_of(self.plane.get))
            return seen != []

        eventually(look, "every kind is listed", 30)
        return seen[0]

    def reaches(self, daemon_set: str, nodes: set[str]) -> bool:
        """Whether its controller wants a pod of it on these nodes and no others."""
        pods = self.core.list_pod_for_all_namespaces(label_selector=f"app.kubernetes.io/name={daemon_set}").items
        terms = [pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution for pod in pods]
        return {term.node_selector_terms[0].match_fields[0].values[0] for term in terms} == nodes


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


def operator_crds() -> Iterator[dict[str, Any]]:
    """Of the kinds that the role waits for, without what is in them."""
    variables = DataLoader().load_from_file(str(ROOT / "roles" / "prometheus_stack" / "vars" / "main.yml"))
    for row in variables["__prometheus_stack_chart"]["kinds"]:
        group, version, kind = row.split("/")
        names = {"kind": kind, "plural": kind.lower() + ("es" if kind.endswith("s") else "s")}
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{names['plural']}.{group}"},
            "spec": {
                "group": group,
                "names": names,
                "scope": "Namespaced",
                "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
            },
        }


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

    used = site.bring(*ROLES)
    assert (used.returncode, changed(used.stdout)) == (0, 0)
    assert site.play("kubegpu.autoscale.uninstall", kubegpu_uninstall=True).returncode == 0
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
        eventually(partial(site.reaches, daemon_set, set(LATER)), f"{daemon_set} reaches every node with GPUs", 30)
