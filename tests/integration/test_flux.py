"""Flux' controllers on the folder of the playbook `gitops`: applied, kept, changed, pruned.

source-controller and kustomize-controller are processes beside an API server. The module proxy does not serve
helm-controller, so the inventory has all components as existing, and the folder has rules, HPAs, alerts and dashboards.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.ownership import is_up_to_date
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import MANAGER
from chart_site import ROLES, Site
from control_plane import ControlPlane, eventually, free_port, running
from fleet_repository import FleetRepository
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from programs import FOLDER, program

Object = dict[str, Any]
NAMESPACE = "flux-system"
GIT = ("source.toolkit.fluxcd.io", "v1", NAMESPACE, "gitrepositories")
KUSTOMIZATIONS = ("kustomize.toolkit.fluxcd.io", "v1", NAMESPACE, "kustomizations")
SETTLE_S = 120
INVENTORY: Object = {
    **{f"{role}_state": "existing" for role in ROLES},
    "kubegpu_prometheus": {"namespace": "monitoring", "service": "prometheus", "rule_labels": {"team": "gpu"}},
    "gpu_alerts_state": "present",
    "gpu_dashboards_state": "present",
}
CHAT = {"namespace": "default", "target": {"name": "chat"}, "max_replicas": 4}
TRAIN = {"namespace": "default", "target": {"name": "train"}, "metric": "gpu_memory", "max_replicas": 2}

# `make test` does not compile them: their own target does.
COMPILED = (FOLDER / "kustomize-controller").exists() or bool(os.environ.get("FLUX"))
pytestmark = pytest.mark.skipif(not COMPILED, reason="`make test-flux` compiles it")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("control-plane"), "garbage-collector-controller") as (plane, kube):
        site = Site(tmp_path_factory.mktemp("site"), plane, kube)
        kinds = program("kustomize-controller").resolve().parent
        crds = (f"--filename={kinds}/source-crds", f"--filename={kinds}/kustomize-crds")
        kubectl(plane, "apply", "--server-side", *crds)
        kubectl(plane, "wait", "--for=condition=Established", *crds)
        for namespace in (NAMESPACE, "monitoring"):
            kubectl(plane, "create", "namespace", namespace)
        start(plane)
        yield site
        site.stop()


def start(plane: ControlPlane) -> None:
    """With the flags of Flux' own manifests, and addresses of this machine."""
    storage = f"127.0.0.1:{free_port()}"
    known = ("env", f"KUBECONFIG={plane.kubeconfig}", f"RUNTIME_NAMESPACE={NAMESPACE}")
    flags: dict[str, tuple[str, ...]] = {
        "source-controller": (
            f"--storage-path={plane.work}",
            f"--storage-addr={storage}",
            f"--storage-adv-addr={storage}",
        ),
        "kustomize-controller": (),
    }
    for name, own in flags.items():
        addresses = (f"--metrics-addr=127.0.0.1:{free_port()}", f"--health-addr=127.0.0.1:{free_port()}")
        plane.run(name, *known, program(name), "--watch-all-namespaces", "--events-addr=", *addresses, *own)


def kubectl(plane: ControlPlane, *words: str, given: str = "") -> str:
    argv = [str(program("kubectl")), f"--kubeconfig={plane.kubeconfig}", *words]
    return subprocess.run(argv, input=given, text=True, check=True, stdout=subprocess.PIPE).stdout


class GitOverHttp(BaseHTTPRequestHandler):
    """git's own CGI program: Flux reads a repository by http or ssh alone."""

    root: Path

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        given = {
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        done = subprocess.run(["git", "http-backend"], env={**os.environ, **given}, input=body, capture_output=True)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


class Fleet(FleetRepository):
    """A repository that Flux follows, as after `flux bootstrap`."""

    def __init__(self, site: Site, work: Path, url: str) -> None:
        super().__init__(site, work, INVENTORY, {"gitops_tool": "flux"}, "Kustomization")
        self._objects = client.CustomObjectsApi(site.kube)
        self._url = url

    def bootstrap(self) -> None:
        repository = {
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "GitRepository",
            "metadata": {"name": "flux-system", "namespace": NAMESPACE},
            "spec": {"url": self._url, "ref": {"branch": "main"}, "interval": "10m"},
        }
        kubectl(self.site.plane, "apply", "--filename=-", given=json.dumps(repository))
        kubectl(self.site.plane, "apply", f"--filename={self.folder}/kubegpu.yaml")

    def reconcile(self) -> None:
        """As `flux reconcile kustomization --with-source` does; else it waits for the interval."""
        asked = {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": str(time.time_ns())}}}
        self._objects.patch_namespaced_custom_object(*GIT, "flux-system", asked)
        head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=self.work, text=True).strip()

        def fetched() -> bool:
            status = self._objects.get_namespaced_custom_object(*GIT, "flux-system").get("status", {})
            return head in status.get("artifact", {}).get("revision", "")

        eventually(fetched, f"source-controller has fetched {head}", SETTLE_S)
        self._objects.patch_namespaced_custom_object(*KUSTOMIZATIONS, "kubegpu-objects", asked)
        since = asked["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"]

        def applied() -> bool:
            status = self._objects.get_namespaced_custom_object(*KUSTOMIZATIONS, "kubegpu-objects").get("status", {})
            ready = [row["status"] for row in status.get("conditions", []) if row["type"] == "Ready"]
            at = status.get("lastAppliedRevision", "")
            return status.get("lastHandledReconcileAt") == since and head in at and ready == ["True"]

        try:
            eventually(applied, f"kustomize-controller has applied {head}", SETTLE_S)
        except AssertionError:
            print(json.dumps(self._objects.get_namespaced_custom_object(*KUSTOMIZATIONS, "kubegpu-objects"), indent=1))
            raise

    def delete(self) -> None:
        self._objects.delete_namespaced_custom_object(*KUSTOMIZATIONS, "kubegpu-objects")


@pytest.fixture(scope="module")
def fleet(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    root = tmp_path_factory.mktemp("git")
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Server", (GitOverHttp,), {"root": root}))
    Thread(target=server.serve_forever, daemon=True).start()
    (root / "fleet").mkdir()
    fleet = Fleet(site, root / "fleet", f"http://127.0.0.1:{server.server_port}/fleet")
    fleet.push(CHAT, TRAIN)
    fleet.bootstrap()
    fleet.reconcile()
    yield fleet
    server.shutdown()


def read(site: Site, manifest: Object) -> Object | None:
    kind = DynamicClient(site.kube).resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
    metadata = manifest["metadata"]
    try:
        return kind.get(name=metadata["name"], namespace=metadata.get("namespace")).to_dict()
    except ApiException as error:
        if error.status != 404:
            raise
        return None


def hpas(site: Site) -> dict[str, int]:
    """Maxima by name."""
    listed = client.AutoscalingV2Api(site.kube).list_namespaced_horizontal_pod_autoscaler("default").items
    return {hpa.metadata.name: hpa.spec.max_replicas for hpa in listed}


def test_flux_applies_each_object_and_changes_none_of_them_afterwards(site: Site, fleet: Fleet) -> None:
    written = fleet.written()
    assert {manifest["kind"] for manifest in written} >= {"HorizontalPodAutoscaler", "PrometheusRule", "ConfigMap"}
    found = [read(site, manifest) for manifest in written]
    for manifest, live in zip(written, found, strict=True):
        assert live, manifest["metadata"]["name"]
        assert is_up_to_date(live, manifest, MANAGER), manifest["metadata"]["name"]

    fleet.reconcile()

    again = [read(site, manifest) for manifest in written if manifest["kind"] != "HorizontalPodAutoscaler"]
    before = [live for live in found if live and live["kind"] != "HorizontalPodAutoscaler"]  # the HPA's status changes
    assert [(live or {})["metadata"]["resourceVersion"] for live in again] == [
        live["metadata"]["resourceVersion"] for live in before
    ]


def test_a_deleted_hpa_and_a_changed_maximum_are_restored(site: Site, fleet: Fleet) -> None:
    autoscaling = client.AutoscalingV2Api(site.kube)
    autoscaling.delete_namespaced_horizontal_pod_autoscaler("chat", "default")
    autoscaling.patch_namespaced_horizontal_pod_autoscaler("train", "default", {"spec": {"maxReplicas": 9}})
    fleet.reconcile()
    assert hpas(site) == {"chat": 4, "train": 2}


def test_a_change_of_the_inventory_is_applied_and_what_is_left_out_is_pruned(site: Site, fleet: Fleet) -> None:
    fleet.push({**CHAT, "max_replicas": 6})
    fleet.reconcile()
    assert hpas(site) == {"chat": 6}
    rules = client.CustomObjectsApi(site.kube).list_cluster_custom_object(
        "monitoring.coreos.com", "v1", "prometheusrules"
    )
    names = {rule["metadata"]["name"] for rule in rules["items"]}
    assert "kubegpu-gpu" in names
    assert "kubegpu-gpu-memory" not in names


def test_everything_is_deleted_with_the_kustomization(site: Site, fleet: Fleet) -> None:
    written = fleet.written()
    fleet.delete()
    eventually(lambda: not any(read(site, manifest) for manifest in written), "no object is left", SETTLE_S)
