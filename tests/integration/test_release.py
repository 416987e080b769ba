"""A release of a chart that somebody has changed by hand, against a real API server."""

from __future__ import annotations

import subprocess
from base64 import b64decode
from pathlib import Path

import pytest
from control_plane import ControlPlane
from kubernetes import client
from playbook import changed, local, run_playbook
from programs import program
from workloads import Workloads

PLAY = local({"ansible.builtin.include_role": {"name": "kubegpu.autoscale._common", "tasks_from": "chart_present"}})
TEMPLATES = """
apiVersion: v1
kind: ConfigMap
metadata: {name: counters, namespace: {{ .Release.Namespace }}}
data: {metrics: DCGM_FI_DEV_GPU_UTIL}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .Release.Namespace }}-reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
# A document that a condition left empty.
---
apiVersion: v1
kind: Service
metadata:
  name: exporter
  annotations:
spec: {selector: {app: exporter}, ports: [{name: metrics, port: 9400}]}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: as-installed}
"""


class Release:
    """Installed by helm, in a namespace of its own."""

    def __init__(self, folder: Path, plane: ControlPlane, kube: client.ApiClient, namespace: str) -> None:
        self._folder, self._kubeconfig, self.namespace = folder, str(plane.kubeconfig), namespace
        self.objects = client.CoreV1Api(kube)
        chart = folder / "exporter"
        (chart / "templates").mkdir(parents=True)
        (chart / "Chart.yaml").write_text("{apiVersion: v2, name: exporter, version: 1.0.0}")
        (chart / "templates" / "all.yaml").write_text(TEMPLATES)
        subprocess.run(
            [program("helm"), "--kubeconfig", self._kubeconfig, "--namespace", namespace, "install", "exporter", chart],
            check=True,
        )

    def bring(self, *flags: str) -> str:
        chart = {"name": "exporter", "version": "1.0.0", "repository": "http://none.invalid"}
        chart |= {"release": "exporter", "namespace": self.namespace, "values": {}, "kinds": [], "crd_group": ""}
        variables = {
            "kubegpu_kubeconfig": self._kubeconfig,
            "kubegpu_helm_binary": str(program("helm")),
            "kubegpu_cluster_ready": True,
            "_common_chart": chart,
        }
        done = run_playbook(self._folder, PLAY, variables, *flags)
        assert done.returncode == 0
        return done.stdout

    def port(self) -> str:
        return self.objects.read_namespaced_service("exporter", self.namespace).spec.ports[0].name

    def counters(self) -> list[str]:
        found = self.objects.list_namespaced_config_map(self.namespace, field_selector="metadata.name=counters")
        return [each.data["metrics"] for each in found.items]

    def password(self) -> str:
        return b64decode(self.objects.read_namespaced_secret("login", self.namespace).data["password"]).decode()

    def break_it(self) -> None:
        self.objects.delete_namespaced_config_map("counters", self.namespace)
        port = [{"op": "replace", "path": "/spec/ports/0/name", "value": "http"}]
        self.objects.patch_namespaced_service("exporter", self.namespace, port)
        self.objects.patch_namespaced_secret("login", self.namespace, {"stringData": {"password": "by-hand"}})


@pytest.fixture
def release(tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads) -> Release:
    return Release(tmp_path, *plane, workloads.namespace)


def test_what_was_deleted_or_edited_is_put_back_once(release: Release) -> None:
    assert changed(release.bring()) == 0
    release.break_it()
    assert changed(release.bring("--check")) == 1
    assert (release.counters(), release.port()) == ([], "http")
    assert changed(release.bring()) == 1
    assert (release.counters(), release.port()) == (["DCGM_FI_DEV_GPU_UTIL"], "metrics")
    assert changed(release.bring()) == 0


def test_what_others_added_stays(release: Release) -> None:
    note = {"metadata": {"annotations": {"team": "search"}}}
    release.objects.patch_namespaced_service("exporter", release.namespace, note)
    release.objects.patch_namespaced_config_map("counters", release.namespace, {"data": {"more": "FB_USED"}})
    assert changed(release.bring()) == 0
    release.break_it()
    release.bring()
    annotations = release.objects.read_namespaced_service("exporter", release.namespace).metadata.annotations
    assert {"team", "meta.helm.sh/release-name"} <= set(annotations)


def test_a_secret_is_neither_changed_nor_shown(release: Release) -> None:
    release.break_it()
    shown = release.bring("--diff")
    assert release.password() == "by-hand"
    assert "as-installed" not in shown
