"""kubectl on a control plane."""

from __future__ import annotations

from testinfra.host import Host

# Without its cache, which would stay in the home of root.
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf --cache-dir /dev/null"


def kubectl(host: Host, words: str) -> str:
    return host.check_output(f"{KUBECTL} {words}")
