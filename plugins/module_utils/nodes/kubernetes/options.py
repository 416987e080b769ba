# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Options of the role kubernetes, and what of the controller it decides by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..apt.versions import any_revision

# The oldest release that the role installs.
OLDEST_KUBERNETES = "1.34"


@dataclass(frozen=True)
class KubernetesOptions:
    """The role's options by their names without `kubernetes_`. versions: rows of the version file."""

    state: str
    version: str
    versions: Mapping[str, Any]
    ignore_preflight_errors: tuple[str, ...]
    swap: str
    control_plane_endpoint: str
    api_address: str
    kube_vip_address: str
    kube_vip_interface: str
    lost_nodes: tuple[str, ...]
    node_ip: str
    pod_subnet: str
    service_subnet: str
    cni: str
    cni_values: Mapping[str, Any]
    cni_manifest: str
    cni_manifest_checksum: str
    schedule_on_control_plane: bool
    hpa_sync_period: int
    hpa_concurrent_syncs: int
    controller_manager_args: Mapping[str, Any]
    control_plane_metrics: bool
    cluster_config: Mapping[str, Any]
    kubelet_config: Mapping[str, Any]
    kubeproxy_config: Mapping[str, Any]
    patches: Mapping[str, Any]

    @property
    def release(self) -> str:
        """`1.36.3` of `1.36.3-*`; empty if the version does not name a release in full."""
        return _start(r"[0-9]+\.[0-9]+\.[0-9]+", self.version)

    @property
    def minor(self) -> str:
        return _start(r"[0-9]+\.[0-9]+", self.version)

    @property
    def apt_version(self) -> str:
        """The packages' version has a revision: 1.36.3-1.1."""
        return any_revision(self.version)

    @property
    def pod_subnets(self) -> tuple[str, ...]:
        return tuple(self.pod_subnet.split(","))


@dataclass(frozen=True)
class AnsibleController:
    """What the run has on the controller.

    kubeconfig_option: kubegpu_kubeconfig as the user wrote it.
    kubeconfig_file:   the same with the home folder filled in; `real` is its absolute path.
    playbook_folder:   where a relative path would lead.
    systemd_cgroup:    whether containerd uses systemd's cgroups.
    requests:          requests a second that the controller manager may send.
    """

    kubeconfig_option: str
    kubeconfig_file: str
    kubeconfig_real: str
    kubeconfig_exists: bool
    playbook_folder: str
    systemd_cgroup: bool
    requests: int


def _start(pattern: str, text: str) -> str:
    found = re.match(pattern, text)
    return found[0] if found else ""
