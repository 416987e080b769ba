"""What a run says of pods that do not reach each other."""

from __future__ import annotations

import re

from server import PLAYBOOKS, run
from testinfra.host import Host

testinfra_hosts = ["ansible://kube_control_plane"]


def test_a_run_proves_that_pods_reach_pods_of_other_nodes(host: Host) -> None:
    """Nodes are Ready and the cluster's DNS is rolled out in networks that drop what pods send each other."""
    prove = (PLAYBOOKS / "cluster.yml", "--tags", "kubernetes_verify")
    host.check_output("ip route flush proto 117")
    try:
        broken = run(*prove)
    finally:
        host.check_output("systemctl reload kubegpu-pod-network")
    whole = run(*prove)

    assert not broken.succeeded
    assert re.search(r"a pod of (cp1|gpu1) does not reach the cluster's DNS in pods of other nodes", broken.text)
    assert (whole.succeeded, whole.changed) == (True, 0)
    assert "kubegpu-reach" not in host.check_output("ip netns list; ls /var/lib/cni/networks/kubegpu")
