"""A pod network of the user's own, kubernetes_cni: manifest, against a real API server."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from control_plane import ControlPlane
from kubernetes import client
from kubernetes.client.rest import ApiException
from playbook import changed, local, run_playbook
from workloads import Workloads

PLAY = local(
    {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.kubernetes", "tasks_from": "network_cluster"}}
)


@pytest.fixture
def manifest(tmp_path: Path, workloads: Workloads) -> Path:
    path = tmp_path / "network.yml"
    write(path, workloads.namespace, "10.244.0.0/16")
    return path


def write(path: Path, namespace: str, subnet: str) -> None:
    metadata = {"name": "network", "namespace": namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"subnet": subnet}}
    path.write_text(yaml.safe_dump_all([account, config]))


def play(folder: Path, plane: ControlPlane, manifest: str, **options: Any) -> subprocess.CompletedProcess[str]:
    (folder / "tmp").mkdir(exist_ok=True)
    variables = {
        "ansible_remote_tmp": str(folder / "ansible"),
        "kubegpu_kubeconfig": str(plane.kubeconfig),
        "kubernetes_cni": "manifest",
        "kubernetes_cni_manifest": manifest,
        "__kubernetes_plan": {"steps": {"charts": False, "manifest": True}},
        **options,
    }
    done = run_playbook(folder, PLAY, variables, TMPDIR=str(folder / "tmp"))
    assert not list((folder / "tmp").glob("kubegpu-cni-*"))
    return done


def subnet(api: client.ApiClient, namespace: str) -> str:
    return client.CoreV1Api(api).read_namespaced_config_map("network", namespace).data["subnet"]


def test_it_is_applied_once_and_again_when_it_changes(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads, manifest: Path
) -> None:
    server, api = plane
    for address, changes in (
        (manifest.name, 1),
        (str(manifest), 0),
        (manifest.as_uri(), 0),
    ):
        assert changed(play(tmp_path, server, address).stdout) == changes
        assert subnet(api, workloads.namespace) == "10.244.0.0/16"
    write(manifest, workloads.namespace, "10.245.0.0/16")
    assert changed(play(tmp_path, server, str(manifest)).stdout) == 1
    assert subnet(api, workloads.namespace) == "10.245.0.0/16"


def test_one_that_is_not_what_was_vouched_for_is_not_applied(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads, manifest: Path
) -> None:
    server, api = plane
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
    write(manifest, workloads.namespace, "10.66.0.0/16")
    done = play(tmp_path, server, manifest.as_uri(), kubernetes_cni_manifest_checksum=f"sha256:{digest}")
    assert done.returncode == 2
    assert "checksum" in done.stdout
    with pytest.raises(ApiException, match="Not Found"):
        subnet(api, workloads.namespace)
