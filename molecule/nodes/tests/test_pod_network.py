"""Errors of a run about pods that do not reach each other."""

from __future__ import annotations

import re

from kubectl import KUBECTL
from server import PLAYBOOKS, run
from testinfra.host import Host
from waiting import eventually

testinfra_hosts = ["ansible://kube_control_plane"]

# A run deletes its DaemonSet. The garbage collector then takes the pods, and containerd their networks.
GONE_S = 120


def test_a_run_proves_that_pods_reach_pods_of_other_nodes(host: Host) -> None:
    """Nodes are Ready and the cluster's DNS is rolled out in networks that drop what pods send each other."""
    prove = (PLAYBOOKS / "cluster.yml", "--tags", "kubernetes_verify")
    host.check_output("ip route flush proto 117")
    try:
        broken = run(*prove)
    finally:
        host.check_output("systemctl reload kubegpu-pod-network")
    whole = run(*prove, "-v")

    assert not broken.succeeded
    for server, other in (("cp1", "gpu1"), ("gpu1", "cp1")):
        seen = rf"{server} has a pod that does not reach pods of other nodes: \S+:8080 on {other}: \S"
        assert re.search(seen, broken.text)
    assert "kubernetes_cni: flannel or cilium" in broken.text
    assert (whole.succeeded, whole.changed) == (True, 0)
    assert len(re.findall(r"reached: - \S+:8080", whole.text)) == 2


def test_nothing_stays_of_the_proof(host: Host) -> None:
    assert host.check_output(f"{KUBECTL} get daemonsets -A -l k8s-app=kubegpu-reach -o name") == ""
    assert eventually(lambda: remains(host), lambda left: not left, GONE_S) == []


def remains(host: Host) -> list[str]:
    """Pods of the proof, and the server that answers for the one of this node."""
    pods = host.check_output(f"{KUBECTL} get pods -A -l k8s-app=kubegpu-reach -o name")
    service = "kubegpu-reach.service"
    return [*pods.split(), *([service] if host.run(f"systemctl is-active {service}").rc == 0 else [])]
