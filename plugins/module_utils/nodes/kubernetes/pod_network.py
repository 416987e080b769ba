# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""How pods are connected: the bridge and its routes, the charts of other networks, and who reaches the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..membership.liveness import internal_address
from .kubeadm import combined
from .options import KubernetesOptions
from .paths import CNI_CONFIG, CNI_FOLDER

# containerd takes the first file of its folder by name, and `kubeadm reset` leaves those of its cluster.
_CONFIG_NAMES = {
    "bridge": CNI_CONFIG.rpartition("/")[2],
    "flannel": "10-flannel.conflist",
    "calico": "10-calico.conflist",
}
# Charts of a network, in the order in which they are installed; the user's values are for the last one.
_CHARTS = {
    "flannel": ({"name": "flannel", "release": "flannel", "namespace": "kube-flannel"},),
    "calico": (
        {"name": "crd.projectcalico.org.v1", "release": "calico-crds", "namespace": "tigera-operator"},
        {"name": "tigera-operator", "release": "calico", "namespace": "tigera-operator"},
    ),
    "cilium": ({"name": "cilium", "release": "cilium", "namespace": "kube-system"},),
}


def in_the_way(cni: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Files of other pod networks that containerd would take before this one's."""
    mine = _CONFIG_NAMES.get(cni, "")
    return tuple(sorted(path for path in paths if path.startswith(f"{CNI_FOLDER}/") and path.rpartition("/")[2] < mine))


def charts(options: KubernetesOptions) -> list[dict[str, Any]]:
    """As the task files chart_*.yml of the role _common take them."""
    rows = _CHARTS.get(options.cni, ())
    return [_chart(options, row, is_last=row is rows[-1]) for row in rows]


def _chart(options: KubernetesOptions, row: Mapping[str, str], *, is_last: bool) -> dict[str, Any]:
    values = _values(options).get(row["name"], {})
    return {
        **options.versions["networks"][row["name"]],
        **row,
        "kinds": [],
        "crd_group": "",
        "values": combined(values, options.cni_values) if is_last else values,
    }


def _values(options: KubernetesOptions) -> dict[str, dict[str, Any]]:
    # Calico's operator takes one pool for each subnet, and rejects two with a comma between.
    pools = [{"cidr": cidr, "encapsulation": "VXLANCrossSubnet"} for cidr in options.pod_subnets]
    return {
        "flannel": {"podCidr": options.pod_subnet},
        "tigera-operator": {"installation": {"calicoNetwork": {"ipPools": pools}}},
        "cilium": {"ipam": {"mode": "kubernetes"}},
    }


def routes(nodes: Sequence[Mapping[str, Any]], node: str) -> list[str]:
    """Lines `SUBNET via ADDRESS` for the pods of each other node."""
    others = sorted((row["metadata"]["name"], row) for row in nodes if row["metadata"]["name"] != node)
    return [f"{row['spec'].get('podCIDR', '')} via {internal_address(row)}" for _name, row in others]


def pod_cidr(nodes: Sequence[Mapping[str, Any]], node: str) -> str:
    mine = (row["spec"].get("podCIDR", "") for row in nodes if row["metadata"]["name"] == node)
    return str(next(mine, ""))


def sysctls(options: KubernetesOptions) -> list[str]:
    """What the kernel needs to forward packets of pods, and to show them to iptables."""
    lines = [
        "net.ipv4.ip_forward = 1",
        "net.bridge.bridge-nf-call-iptables = 1",
        "net.bridge.bridge-nf-call-ip6tables = 1",
    ]
    return [*lines, "net.ipv6.conf.all.forwarding = 1"] if ":" in options.pod_subnet else lines


def metrics_ports(is_control_plane: bool) -> list[int]:
    """Of kube-proxy; of etcd, the controller manager and the scheduler."""
    return [10249, 2381, 10257, 10259] if is_control_plane else [10249]


def metrics_sources(options: KubernetesOptions, addresses: Iterable[str]) -> tuple[list[str], list[str]]:
    """Clients of these ports: pods and nodes, by IPv4 and by IPv6. addresses: of the nodes."""
    sources = [*options.pod_subnets, *addresses]
    return [row for row in sources if ":" not in row], [row for row in sources if ":" in row]
