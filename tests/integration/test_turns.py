"""A control plane waits for its turn: the tasks of the role, with nodes of a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from control_plane import ControlPlane
from kubernetes import client
from playbook import local, run_playbook

LABEL = "node-role.kubernetes.io/control-plane"
# Nothing listens on the port of an API server there.
SILENT = "127.0.0.77"


@pytest.fixture
def nodes(kube: client.ApiClient) -> Iterator[client.CoreV1Api]:
    core = client.CoreV1Api(kube)
    for name, labels in {"turn-cp1": {LABEL: ""}, "turn-cp2": {LABEL: ""}, "turn-gpu1": {}}.items():
        core.create_node({"metadata": {"name": name, "labels": labels}})
        status = {"addresses": [{"type": "InternalIP", "address": SILENT}]}
        core.patch_node_status(name, {"status": status})
    yield core
    for name in ("turn-cp1", "turn-cp2", "turn-gpu1"):
        core.delete_node(name)


@pytest.mark.parametrize(
    ("node", "others", "refused"),
    [("turn-cp1", True, True), ("turn-cp1", False, False), ("turn-gpu1", True, False)],
    ids=["beside a silent one", "the only one", "a worker"],
)
def test_a_control_plane_is_not_taken_beside_a_silent_one(
    tmp_path: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    nodes: client.CoreV1Api,
    node: str,
    *,
    others: bool,
    refused: bool,
) -> None:
    if not others:
        nodes.patch_node("turn-cp2", {"metadata": {"labels": {LABEL: None}}})
    host = {"name": node, "system": "Debian 12", "kernel": "6.1", "architecture": "x86_64"}
    known = {"kubegpu_kubeconfig": str(plane[0].kubeconfig), "kubernetes_node_name": node, "_common_host": host}
    tasks = (
        {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.kubernetes", "tasks_from": "turn"}},
        {"ansible.builtin.debug": {"msg": "it is taken"}},
    )
    done = run_playbook(tmp_path, local(*tasks), known)
    said = " ".join((done.stdout + done.stderr).split())

    assert (done.returncode != 0, "it is taken" in said) == (refused, not refused)
    assert ("the API server of turn-cp2 is not ready" in said) == refused
