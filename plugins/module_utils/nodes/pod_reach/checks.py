# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks why pods of a node do not reach pods of others."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.check import CheckResult, FindingTypes, check
from ...hops import Hop
from ..findings import seen_on
from .decisions import Reach

_KUBERNETES = FindingTypes(Hop.KUBERNETES)

BRIDGE_APART = _KUBERNETES.error(
    "KUBERNETES_BRIDGE_APART",
    "the network bridge needs nodes on one network segment that accepts packets of pods. AWS, GCP, Azure, OpenStack's "
    "port security and VMware accept only packets of the servers' own addresses",
    "on both nodes: `systemctl reload kubegpu-pod-network.service`, then `ip route` and `iptables -nvL FORWARD`; in "
    "such a network, create the cluster with kubernetes_cni: flannel or cilium. kubernetes_verify_network: false skips "
    "this check",
)
NETWORK_APART = _KUBERNETES.error(
    "KUBERNETES_NETWORK_APART",
    "a firewall between the nodes drops the packets of the network, or its pods do not work, or a network policy of "
    "kube-system allows no traffic",
    "on both nodes, allow each other's packets (VXLAN: UDP 4789 of calico, 8472 of flannel and cilium); then `kubectl "
    "get pods --all-namespaces --output wide`. kubernetes_verify_network: false skips this check",
)
NO_POD = _KUBERNETES.error(
    "KUBERNETES_NO_POD",
    "the proof that pods reach each other needs a pod on each node",
    "`kubectl --namespace kube-system get events --sort-by .lastTimestamp`. kubernetes_verify_network: false skips "
    "this check",
)


@check("pods reach pods of other nodes", BRIDGE_APART, NETWORK_APART, NO_POD)
def pods_reach_each_other(reach: Reach) -> Iterator[CheckResult]:
    rows = [f"{peer.address} on {peer.node}: {reach.missed[peer.address]}" for peer in reach.missed_peers]
    if rows:
        apart = BRIDGE_APART if reach.cni == "bridge" else NETWORK_APART
        yield seen_on(reach.host, apart, f"has a pod that does not reach pods of other nodes: {', '.join(rows)}")
    elif reach.peers is not None and not reach.has_pod:
        yield seen_on(reach.host, NO_POD, f"has no pod that got an address within {reach.wait_timeout} s")
    elif reach.failure:
        yield seen_on(reach.host, NO_POD, f"could not prove that pods reach each other: {reach.failure}")


AFTER = (pods_reach_each_other,)
