# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""What kubeadm is given for a node and its cluster, and what of it differs from what it was given before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha1
from typing import Any

from ...formats.feature_gates import FLAG, SCALE_TO_ZERO, gate_of
from ...formats.yaml import to_sorted_yaml
from .options import KubernetesOptions
from .paths import PATCHES

API_VERSION = "kubeadm.k8s.io/v1beta4"
CRI_SOCKET = "unix:///run/containerd/containerd.sock"
# Fields of the ClusterConfiguration that kubeadm sets once, and those that it writes again with the static pods.
FIXED = ("networking", "controlPlaneEndpoint", "clusterName", "certificatesDir")
APPLIED_AT_ONCE = ("apiServer", "controllerManager", "scheduler")
# Phase of `kubeadm init` that uploads a document to the cluster.
PHASES = {"cluster": "upload-config kubeadm", "kubelet": "upload-config kubelet", "kubeproxy": "addon kube-proxy"}
# Programs without whose feature gate an HPA does not scale to zero, by their field of the ClusterConfiguration.
HPA_PROGRAMS = {"apiServer": "kube-apiserver", "controllerManager": "kube-controller-manager"}
OF_WORKERS = ("kubelet", "patches", "network")
# Of kubeadm's errors those that an interrupted run leaves: files, folders and ports of what it has started.
INTERRUPTED = (
    "DirAvailable--etc-kubernetes-manifests",
    "FileAvailable--etc-kubernetes-bootstrap-kubelet.conf",
    "FileAvailable--etc-kubernetes-kubelet.conf",
    "FileAvailable--etc-kubernetes-manifests-etcd.yaml",
    "FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml",
    "FileAvailable--etc-kubernetes-manifests-kube-controller-manager.yaml",
    "FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml",
    "FileAvailable--etc-kubernetes-pki-ca.crt",
    *("Port-2379", "Port-2380", "Port-6443", "Port-10250", "Port-10257", "Port-10259"),
)

Document = dict[str, Any]


@dataclass(frozen=True)
class Kubeadm:
    """Documents for one node.

    systemd_cgroup: whether containerd uses systemd's cgroups.
    requests:       requests a second that the controller manager may send.
    applied:        what the node was given before; empty if that is unknown.
    """

    options: KubernetesOptions
    node: str
    is_control_plane: bool
    systemd_cgroup: bool
    requests: int
    applied: Mapping[str, Any]

    # Documents.

    @property
    def first_ip(self) -> str:
        """The address that the API server uses if the node has one of each stack."""
        return self.options.node_ip.split(",")[0]

    @property
    def etcd_metrics_url(self) -> str:
        """kubeadm writes etcd's manifest at an upgrade, and not with the other changes."""
        return f"http://{'0.0.0.0' if self.options.control_plane_metrics else '127.0.0.1'}:2381"

    @property
    def init(self) -> Document:
        return {
            "apiVersion": API_VERSION,
            "kind": "InitConfiguration",
            "localAPIEndpoint": self._local_endpoint,
            "nodeRegistration": self._registration | self._taints,
            "patches": {"directory": PATCHES},
        }

    @property
    def join(self) -> Document:
        """Without the token, which is made when it is used."""
        joined = {
            "apiVersion": API_VERSION,
            "kind": "JoinConfiguration",
            "nodeRegistration": self._registration | (self._taints if self.is_control_plane else {}),
            "patches": {"directory": PATCHES},
        }
        # In kubeadm's 2 minutes a busy server may not have started the new member of etcd, which stays half joined.
        more = {"controlPlane": {"localAPIEndpoint": self._local_endpoint}, "timeouts": {"etcdAPICall": "10m"}}
        return joined | (more if self.is_control_plane else {})

    @cached_property
    def cluster(self) -> Document:
        options = self.options
        base = {
            "apiVersion": API_VERSION,
            "kind": "ClusterConfiguration",
            "kubernetesVersion": f"v{options.release}",
            "controlPlaneEndpoint": options.control_plane_endpoint,
            "networking": {"podSubnet": options.pod_subnet, "serviceSubnet": options.service_subnet},
            "controllerManager": {"extraArgs": _arguments(self.controller_manager)},
        }
        names = {"apiServer": {"certSANs": [options.api_address]}} if options.api_address else {}
        return combined(base, self._metrics, names, options.cluster_config)

    @property
    def controller_manager(self) -> dict[str, str]:
        """Flags; their values are texts, for any type in the inventory."""
        options = self.options
        default = {
            "horizontal-pod-autoscaler-sync-period": f"{options.hpa_sync_period}s",
            "concurrent-horizontal-pod-autoscaler-syncs": options.hpa_concurrent_syncs,
            # A decision takes two or three requests. With Kubernetes' own 20 a second some 40 autoscalers keep a
            # period of 5 s, and further ones make all late.
            "kube-api-qps": self.requests,
            "kube-api-burst": self.requests * 3 // 2,
        }
        # etcd and kube-proxy ask for no login; the other two need a token that may read /metrics.
        metrics = {"bind-address": "0.0.0.0"} if options.control_plane_metrics else {}
        flags = default | metrics | dict(options.controller_manager_args)
        return {str(name): str(value) for name, value in flags.items()}

    @property
    def _metrics(self) -> Document:
        if not self.options.control_plane_metrics:
            return {}
        return {
            "scheduler": {"extraArgs": _arguments({"bind-address": "0.0.0.0"})},
            "etcd": {"local": {"extraArgs": _arguments({"listen-metrics-urls": self.etcd_metrics_url})}},
        }

    @cached_property
    def kubelet(self) -> Document:
        base = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "systemd" if self.systemd_cgroup else "cgroupfs",
        }
        swap = {"failSwapOn": False} if self.options.swap == "allow" else {}
        return combined(base, swap, self.options.kubelet_config)

    @cached_property
    def kubeproxy(self) -> Document:
        base = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}
        metrics = {"metricsBindAddress": "0.0.0.0:10249"} if self.options.control_plane_metrics else {}
        return combined(base, metrics, self.options.kubeproxy_config)

    @property
    def config_text(self) -> str:
        """No comment above the first document: kubeadm would take it for one without a kind."""
        return "---\n".join(map(to_sorted_yaml, (self.init, self.cluster, self.kubelet, self.kubeproxy)))

    @property
    def _registration(self) -> Document:
        address = {"kubeletExtraArgs": _arguments({"node-ip": self.options.node_ip})} if self.options.node_ip else {}
        return {"name": self.node, "criSocket": CRI_SOCKET, **address}

    @property
    def _taints(self) -> Document:
        return {"taints": []} if self.options.schedule_on_control_plane else {}

    @property
    def _local_endpoint(self) -> Document:
        return {"advertiseAddress": self.first_ip} if self.first_ip else {}

    # What differs.

    @cached_property
    def _all_wanted(self) -> Document:
        """The version changes by an upgrade alone."""
        return {
            "cluster": {name: value for name, value in self.cluster.items() if name != "kubernetesVersion"},
            "kubelet": self.kubelet,
            "kubeproxy": self.kubeproxy,
            "patches": self.options.patches,
            # Not kubeadm's: recorded to know that it would change.
            "network": {"cni": self.options.cni},
        }

    @cached_property
    def wanted(self) -> Document:
        """What the node is given, to know a change when it comes."""
        if self.is_control_plane:
            return self._all_wanted
        return {name: document for name, document in self._all_wanted.items() if name in OF_WORKERS}

    @cached_property
    def wanted_text(self) -> str:
        return to_sorted_yaml(self.wanted)

    def differs(self, checksum: str) -> bool:
        """checksum: of the file with what the node was given; empty if it has none."""
        return checksum != sha1(self.wanted_text.encode()).hexdigest()

    @cached_property
    def differing(self) -> tuple[str, ...]:
        """Names of kubeadm's documents; all of them where it is unknown what the node was given."""
        return tuple(name for name in _differing(self.wanted, self.applied) if name != "network")

    @cached_property
    def differing_fields(self) -> tuple[str, ...]:
        """Of the ClusterConfiguration, if the one before is known."""
        before = self.applied.get("cluster")
        return _differing(self._all_wanted["cluster"], before) if isinstance(before, Mapping) else ()

    # Words for kubeadm's command line.

    def ignored_errors(self, names: tuple[str, ...], is_interrupted: bool) -> str:
        """names: those that the user ignores. is_interrupted: the run continues an interrupted one."""
        folder = self._data_folder.replace("/", "-")
        left = (*INTERRUPTED, f"DirAvailable-{folder}") if is_interrupted else ()
        return f"--ignore-preflight-errors={','.join(names + left)}"

    @property
    def _data_folder(self) -> str:
        local = (self.cluster.get("etcd") or {}).get("local") or {}
        return str(local.get("dataDir") or "/var/lib/etcd")


def scales_to_zero(cluster: Mapping[str, Any], part: str, *, is_default: bool) -> bool:
    """Whether the feature gate of one of HPA_PROGRAMS is on by a ClusterConfiguration."""
    arguments = (cluster.get(part) or {}).get("extraArgs") or ()
    given = [str(argument["value"]) for argument in arguments if argument.get("name") == FLAG]
    is_on = gate_of(SCALE_TO_ZERO, given)
    return is_default if is_on is None else is_on


def combined(base: Mapping[str, Any], *overlays: Mapping[str, Any]) -> Document:
    """The same with the overlays' values, map by map; a list is replaced."""
    result = dict(base)
    for overlay in overlays:
        for name, value in overlay.items():
            before = result.get(name)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                result[name] = combined(before, value)
            else:
                result[name] = value
    return result


def _arguments(flags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in flags.items()]


def _differing(wanted: Mapping[str, Any], before: Mapping[str, Any]) -> tuple[str, ...]:
    missing = object()
    return tuple(name for name in {**wanted, **before} if wanted.get(name, missing) != before.get(name, missing))
