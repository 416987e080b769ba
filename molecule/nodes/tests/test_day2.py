"""Day 2 of a cluster with one control plane: a backup and its restore, new certificates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import testinfra
from kubectl import kubectl
from server import EPHEMERAL, PLAYBOOKS, Run, Server, run

testinfra_hosts = ["ansible://kube_node"]

BACKUPS = "/var/lib/kubegpu/backups"
UPKEEP = "/etc/kubegpu_upkeep.py"
PRESENTED = "python3 -c \"import ssl; print(ssl.get_server_certificate(('127.0.0.1', 6443)))\""
# What converge.yml sets beside the inventory that the tests use.
CONVERGED = {"kubernetes_control_plane_metrics": True, "kubernetes_swap": "disable"}


@pytest.fixture
def workload(cp1: Server) -> Iterator[str]:
    kubectl(cp1.host, "create deployment kept --image docker.io/library/python:3.11-slim -- python -m http.server")
    kubectl(cp1.host, "wait --for=condition=Available --timeout=120s deployment/kept")
    yield "kept"
    kubectl(cp1.host, "delete deployment kept --ignore-not-found")


@pytest.fixture(autouse=True, scope="module")
def no_backups() -> Iterator[None]:
    """They stay when a cluster is removed, and this scenario looks for what stays."""
    yield
    testinfra.get_host("ansible://cp1", ansible_inventory=str(EPHEMERAL / "inventory")).check_output(f"rm -r {BACKUPS}")


def cluster(cp1: Server) -> str:
    return kubectl(cp1.host, "get configmap --namespace kube-system kubegpu-cluster --output=jsonpath={.data.name}")


def member(cp1: Server) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cp1.sh(f"python3 {UPKEEP} member --folder {BACKUPS}"))
    return found


def newest(cp1: Server) -> dict[str, Any]:
    found: dict[str, Any] = member(cp1)["backups"][-1]
    return found


def restore(name: str, **variables: str) -> Run:
    return run(PLAYBOOKS / "restore.yml", kubernetes_restore_backup=name, **variables)


@pytest.mark.slow
def test_what_was_deleted_after_a_backup_is_there_again(cp1: Server, workload: str) -> None:
    assert run(PLAYBOOKS / "backup.yml").succeeded
    name = newest(cp1)["name"]
    kubectl(cp1.host, f"delete deployment {workload}")
    kubectl(cp1.host, "create configmap later")

    refused = [
        restore(name),
        restore("20200101T000000Z", kubegpu_confirm=cluster(cp1)),
        restore(name, kubegpu_confirm="x"),
    ]

    assert [(attempt.succeeded, attempt.changed) for attempt in refused] == [(False, 0)] * 3
    assert "no complete backup 20200101T000000Z of this cluster was found" in refused[1].text
    listed = restore("")
    assert (listed.succeeded, listed.changed) == (True, 0)
    assert name in listed.text
    assert restore(name, kubegpu_confirm=cluster(cp1)).succeeded
    kubectl(cp1.host, f"wait --for=condition=Available --timeout=180s deployment/{workload}")
    assert kubectl(cp1.host, "get configmap later --ignore-not-found") == ""
    assert cp1.sh(f"stat --format=%a {BACKUPS}/{name}/*").split() == ["600"] * 3
    copy = EPHEMERAL / "inventory" / ".kubegpu" / "backups" / newest(cp1)["cluster"] / "cp1" / name
    assert {file.name: file.stat().st_mode & 0o777 for file in copy.iterdir()} == dict.fromkeys(
        ("backup.json", "etcd.db.gz", "kubernetes.tar"), 0o600
    )


@pytest.mark.slow
def test_a_restore_that_was_killed_half_way_continues(cp1: Server, workload: str) -> None:
    assert run(PLAYBOOKS / "backup.yml").succeeded
    backup = newest(cp1)
    confirmed = cluster(cp1)
    kubectl(cp1.host, f"delete deployment {workload}")
    digest = f"--sha256 {backup['sha256']}"
    told = member(cp1)
    prepare = f"restore-prepare --backup {backup['path']} --members {told['name']}={told['peer']}"
    cp1.sh(f"python3 {UPKEEP} {prepare} {digest}")
    assert restore("", kubernetes_restore_state="absent").succeeded
    assert member(cp1)["restoring"] == {}
    cp1.sh(f"python3 {UPKEEP} {prepare} {digest}")
    cp1.sh(f"python3 {UPKEEP} restore-stop {digest}")
    assert not restore("", kubernetes_restore_state="absent").succeeded

    assert restore(backup["name"], kubegpu_confirm=confirmed).succeeded

    kubectl(cp1.host, f"wait --for=condition=Available --timeout=180s deployment/{workload}")
    assert member(cp1)["restoring"] == {}


@pytest.mark.slow
def test_new_certificates_are_served_and_reach_the_controller(cp1: Server) -> None:
    kubeconfig = EPHEMERAL / "inventory" / ".kubegpu" / "kubeconfig"
    before = cp1.sh(PRESENTED), kubeconfig.read_text()

    assert run(PLAYBOOKS / "certificates.yml").succeeded

    assert cp1.sh(PRESENTED) != before[0]
    assert cp1.sh("cat /etc/kubernetes/pki/apiserver.crt").startswith(cp1.sh(PRESENTED).strip())
    assert kubeconfig.read_text() != before[1]
    assert run(PLAYBOOKS / "cluster.yml", **CONVERGED).changed == 0
    timers = cp1.sh("systemctl list-timers --all --no-legend --plain 'kubegpu-*'")
    assert all(f"kubegpu-{name}.timer" in timers for name in ("backup", "certificates", "status"))
    cp1.sh("systemctl start kubegpu-status.service")
    metrics = cp1.sh("cat /var/lib/node_exporter/textfile_collector/kubegpu.prom")
    assert 'kubegpu_certificate_end_timestamp_seconds{node="cp1",certificate="apiserver"}' in metrics
