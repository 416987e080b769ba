"""An API server, and charts with the names and values of upstream's: where the chart roles run without a node."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError

import yaml
from ansible.parsing.dataloader import DataLoader
from cluster_dump import objects_of
from collection import ROOT
from control_plane import ControlPlane, eventually
from kubernetes import client
from playbook import local, run_playbook
from programs import program
from served_kinds import SERVED_S, is_served

VERSIONS = yaml.safe_load((ROOT / "roles" / "_common" / "defaults" / "main" / "versions.yml").read_text())
CHARTS = VERSIONS["kubegpu_pinned_versions"]["charts"]
ROLES = ("nvidia_device_plugin", "prometheus_stack", "dcgm_exporter", "prometheus_adapter", "keda", "metrics_server")
# Without a node nothing gets ready: what is waited for elsewhere is not what is asked here.
OPTIONS: dict[str, Any] = {**{f"{role}_wait": False for role in ROLES}, "nvidia_device_plugin_feature_discovery": False}


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
        for crd in operator_crds():
            group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
            eventually(partial(is_served, self.kube, group, kind), f"{kind} is served", SERVED_S)

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

    def helm(self, *words: object) -> str:
        where = ("--kubeconfig", self.plane.kubeconfig)
        argv = [str(word) for word in (self._helm, *where, *words)]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def install(self, release: str, chart: str, namespace: str, *values: str) -> None:
        """Installs it like another user."""
        sets = [f"--set={value}" for value in values]
        self.helm("install", release, self.chart(chart), "-n", namespace, "--create-namespace", *sets)

    def chart(self, name: str) -> Path:
        """Its unpacked folder."""
        return self._work / "sources" / name

    def play(self, playbook: Any, *flags: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        """With a helm that is there, unless kubegpu_helm_folder says where the roles are to bring one."""
        known = {"kubegpu_kubeconfig": str(self.plane.kubeconfig), "helm_state": "present"}
        known |= {"kubegpu_chart_mirror": f"http://127.0.0.1:{self._server.server_port}"}
        if "kubegpu_helm_folder" not in variables:
            known["kubegpu_helm_binary"] = str(self._helm)
        return run_playbook(self._work, playbook, {**known, **OPTIONS, **variables}, *flags)

    def mirror_helm(self) -> str:
        """Puts helm's archive into the mirror, for this machine. Gives its digits."""
        folder = self._charts / "get.helm.sh"
        folder.mkdir()
        archive = (
            folder / f"helm-{VERSIONS['kubegpu_pinned_versions']['archives']['helm']['version']}-linux-amd64.tar.gz"
        )
        with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
            tar.add(self._helm, "linux-amd64/helm")
        return hashlib.sha256(archive.read_bytes()).hexdigest()

    def bring(self, *roles: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        return self.play(local(roles=[f"kubegpu.autoscale.{role}" for role in roles]), **variables)

    def objects(self) -> dict[str, Any]:
        """Every object that somebody made, by title, with what controllers say of it.

        Kinds that come or go just now are waited for, and controllers that have yet to look.
        """

        def look() -> dict[str, Any]:
            with suppress(HTTPError):
                if self._is_settled():
                    return objects_of(self.plane.get)
            return {}

        return eventually(look, "every kind is listed", SERVED_S)

    def _is_settled(self) -> bool:
        """Whether controllers have written all that they write of what is there."""
        services = client.ApiregistrationV1Api(self.kube).list_api_service().items
        daemon_sets = client.AppsV1Api(self.kube).list_daemon_set_for_all_namespaces().items
        return all(service.status and service.status.conditions for service in services) and all(
            daemon_set.status.observed_generation == daemon_set.metadata.generation
            and daemon_set.status.desired_number_scheduled == daemon_set.status.current_number_scheduled
            and daemon_set.status.desired_number_scheduled == (daemon_set.status.updated_number_scheduled or 0)
            for daemon_set in daemon_sets
        )

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
