# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans of the server roles, by role and subject."""

from __future__ import annotations

from ..role_plan import Plan
from .apt.plan import apt_offer_plan, apt_plan
from .apt.repository import AptOptions
from .containerd.decisions import ContainerdOptions
from .containerd.drop_in_plan import drop_in_plan
from .containerd.plan import containerd_plan
from .driver.decisions import DriverOptions
from .driver.plan import driver_plan
from .kubernetes.options import KubernetesOptions
from .kubernetes.plan import kubernetes_plan
from .kubernetes.upkeep import UpkeepOptions
from .maintain.plan import maintain_plan
from .maintain.turn import turn_plan
from .pod_reach.plan import ReachOptions, reach_plan
from .restore import RestoreOptions, restore_plan
from .server.plan import ClusterOptions, cluster_plan, server_plan, servers_plan
from .toolkit.decisions import ToolkitOptions
from .toolkit.plan import toolkit_plan
from .toolkit.unrequested_gpus import UnrequestedOptions, unrequested_plan

PLANS: dict[str, Plan] = {
    "_common.apt": Plan(apt_plan, (AptOptions,)),
    "_common.apt_offer": Plan(apt_offer_plan, (AptOptions,)),
    "_common.server": Plan(server_plan),
    "_common.servers": Plan(servers_plan),
    "containerd": Plan(containerd_plan, (ContainerdOptions,)),
    "containerd.drop_in": Plan(drop_in_plan),
    "kubernetes": Plan(kubernetes_plan, (KubernetesOptions, UpkeepOptions)),
    "kubernetes.cluster": Plan(cluster_plan, (ClusterOptions,)),
    "kubernetes.reach": Plan(reach_plan, (ReachOptions,)),
    "kubernetes.restore": Plan(restore_plan, (RestoreOptions,)),
    "kubernetes.turn": Plan(turn_plan),
    "maintain": Plan(maintain_plan),
    "nvidia_container_toolkit": Plan(toolkit_plan, (ToolkitOptions,)),
    "nvidia_container_toolkit.unrequested": Plan(unrequested_plan, (UnrequestedOptions,)),
    "nvidia_driver": Plan(driver_plan, (DriverOptions,)),
}
