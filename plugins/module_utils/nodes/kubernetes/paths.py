# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Paths on a server that the role kubernetes decides by, writes or removes."""

from __future__ import annotations

# The folder shows that this collection made the server a node. A folder without the results is an interrupted run.
FOLDER = "/etc/kubernetes/kubegpu"
CONFIG = f"{FOLDER}/kubeadm.yaml"
NEXT_CONFIG = f"{FOLDER}/next.yaml"
JOIN_CONFIG = f"{FOLDER}/join.yaml"
INITIALISED = f"{FOLDER}/initialised"
UPGRADING = f"{FOLDER}/upgrading"
# The documents by which the node and the cluster run.
APPLIED = f"{FOLDER}/applied.yaml"
PATCHES = f"{FOLDER}/patches"
# Which cluster and which machine; the module server_info reads it.
IDENTITY = f"{FOLDER}/cluster.json"

KUBELET_CONF = "/etc/kubernetes/kubelet.conf"
MANIFESTS = "/etc/kubernetes/manifests"
KUBE_VIP = f"{MANIFESTS}/kube-vip.yaml"
ETCD_MANIFEST = f"{MANIFESTS}/etcd.yaml"
# With it, the kubelet starts at boot.
KUBELET_LINK = "/etc/systemd/system/multi-user.target.wants/kubelet.service"

MODULES = "/etc/modules-load.d/kubegpu-kubernetes.conf"
# The last name wins: 99-sysctl.conf is /etc/sysctl.conf, which may forbid to forward.
SYSCTL = "/etc/sysctl.d/99-zz-kubegpu.conf"
# The folder is of all swap units: those of fstab, of partitions, of systemd's zram-generator.
NO_SWAP = "/etc/systemd/system/swap.d/kubegpu.conf"
# Of zram-tools and zram-config: they turn swap on by a program at each boot, and not by a swap unit.
SWAP_SERVICES = ("zramswap.service", "zram-config.service")

CNI_FOLDER = "/etc/cni/net.d"
CNI_CONFIG = f"{CNI_FOLDER}/10-kubegpu.conflist"
NETWORK_UNIT = "/etc/systemd/system/kubegpu-pod-network.service"
NETWORK_SCRIPT = "/etc/kubegpu-pod-network"
# systemd-networkd removes routes that it does not know: whenever it restarts, and at `netplan apply`.
NETWORKD = "/etc/systemd/networkd.conf.d/kubegpu.conf"
METRICS_UNIT = "/etc/systemd/system/kubegpu-metrics.service"
METRICS_SCRIPT = "/etc/kubegpu-metrics"
# Backups, certificates and status: a program with its settings, and a service and a timer for each of what it does.
UPKEEP = "/etc/kubegpu_upkeep.py"
UPKEEP_SETTINGS = f"{FOLDER}/upkeep.json"
UPKEEP_STATUS = "/var/lib/kubegpu/status.json"
TIMERS = "/etc/systemd/system/timers.target.wants"
UPKEEP_UNITS = tuple(
    f"/etc/systemd/system/kubegpu-{name}.{kind}"
    for name in ("backup", "certificates", "status")
    for kind in ("service", "timer")
)
UPKEEP_STAMPS = tuple(
    f"/var/lib/systemd/timers/stamp-{path.rpartition('/')[2]}" for path in UPKEEP_UNITS if path.endswith(".timer")
)

# Files that a removed node does not need. This collection's record is last, so an interrupted removal continues.
OWN = (
    KUBELET_LINK,
    "/var/lib/cni/networks/kubegpu",
    CNI_CONFIG,
    NETWORK_UNIT,
    NETWORK_SCRIPT,
    NETWORKD,
    SYSCTL,
    MODULES,
    UPKEEP,
    UPKEEP_STATUS,
    *UPKEEP_UNITS,
    *(f"{TIMERS}/{path.rpartition('/')[2]}" for path in UPKEEP_UNITS if path.endswith(".timer")),
    *UPKEEP_STAMPS,
)
# k3s, RKE2 and others have theirs in the same places.
SHARED = ("/usr/libexec/kubernetes", "/var/log/containers", "/var/log/pods", "/var/lib/cni/results", "/etc/kubernetes")
# What a network of the cluster leaves on it.
OF_NETWORKS = (
    f"{CNI_FOLDER}/10-flannel.conflist",
    f"{CNI_FOLDER}/10-calico.conflist",
    f"{CNI_FOLDER}/calico-kubeconfig",
    f"{CNI_FOLDER}/05-cilium.conflist",
    "/run/flannel",
    "/var/lib/calico",
    "/var/run/calico",
    "/var/run/cilium",
)
