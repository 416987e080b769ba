# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""What the role kubernetes does to a server: whether it joins, changes, is upgraded or leaves.

Called by plan.py and checks.py. In: the role's options, what was read on the server, and the other control planes
(nodes/membership). Out: properties for each step; kubeadm.py has the documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ...formats.feature_gates import SCALES_TO_ZERO_MINOR
from ..apt.sources import AptSet
from ..apt.versions import numbers
from ..membership.control_planes import ControlPlane, Membership
from ..membership.etcd_members import Member
from ..membership.liveness import Known, Life
from ..survey.host import Host
from . import paths as files
from .kubeadm import APPLIED_AT_ONCE, FIXED, HPA_PROGRAMS, PHASES, Kubeadm, scales_to_zero
from .options import OLDEST_KUBERNETES, AnsibleController, KubernetesOptions
from .pod_network import in_the_way

REPOSITORY = "https://pkgs.k8s.io/core:/stable:"
PACKAGES = ("kubelet", "kubeadm", "kubectl")


@dataclass(frozen=True)
class ApiAnswer:
    """What was returned where the API server will be. status: of HTTP, -1 if nothing answered."""

    status: int
    message: str = ""


@dataclass(frozen=True)
class Upgrade:
    """What an upgrade finds.

    cluster_release: by kubeadm's own record; empty if the cluster has none, None if it was not queried.
    kubelet_release: as the node reports it; empty until it was queried.
    is_cordoned:     whether the node takes no pods now, for another reason than an upgrade.
    before:          the record of the run that began the upgrade; empty until it was read.
    """

    cluster_release: str | None = None
    kubelet_release: str = ""
    is_cordoned: bool = False
    before: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class KubernetesSurvey:
    """What was read on the server and in its cluster so far.

    node:              the name of the server's node.
    address, mtu:      of its default route.
    checksums:         of files by their paths; empty for a folder or a link.
    swaps:             devices and files that the server swaps to.
    installed:         releases by package, of a node of this cluster.
    applied:           documents that the node was given before; empty if unknown.
    api:               the answer of the API server's address; None if it was not queried.
    iptables_missing:  whether the program is not installed.
    nodes, members:    of the cluster and of etcd; empty until it was queried.
    kubelets:          addresses of nodes that are gone, at which a kubelet answers.
    hpas:              of the cluster; empty unless a change ends scaling to zero.
    metrics_addresses: of the nodes that may read the control plane's metrics.
    status:            what the timer kubegpu-status wrote last, for the doctor; empty if it was not read.
    """

    node: str
    address: str = ""
    mtu: int = 1500
    checksums: Mapping[str, str] = field(default_factory=dict)
    swaps: tuple[str, ...] = ()
    installed: Mapping[str, str] = field(default_factory=dict)
    applied: Mapping[str, Any] = field(default_factory=dict)
    api: ApiAnswer | None = None
    iptables_missing: bool = False
    nodes: Sequence[Mapping[str, Any]] = ()
    members: Sequence[Member] = ()
    kubelets: tuple[str, ...] = ()
    hpas: Sequence[Mapping[str, Any]] = ()
    metrics_addresses: tuple[str, ...] = ()
    upgrade: Upgrade = Upgrade()
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kubernetes:
    """The decisions, each a property; nodes/kubernetes/checks.py judges them."""

    host: Host
    options: KubernetesOptions
    controller: AnsibleController
    membership: Membership
    survey: KubernetesSurvey
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_wanted(self) -> bool:
        return self.options.state == "present"

    # The server in its cluster.

    def has(self, path: str) -> bool:
        return path in self.survey.checksums

    @property
    def is_control_plane(self) -> bool:
        return self.host.name in self.membership.control_planes

    @property
    def leads(self) -> bool:
        return self.host.name == self.membership.control_plane

    @property
    def is_ours(self) -> bool:
        """Whether this collection has begun with it. Without the result it is an interrupted run, which continues."""
        return self.has(files.FOLDER)

    @property
    def is_member(self) -> bool:
        return self.has(files.KUBELET_CONF)

    @property
    def is_complete(self) -> bool:
        return self.has(files.INITIALISED) if self.is_control_plane else self.is_member

    @property
    def is_worker(self) -> bool:
        """A complete worker that the inventory now lists as a control plane. An interrupted join recorded nothing."""
        joined = self.is_member and self.has(files.APPLIED) and not self.has(files.INITIALISED)
        return self.is_control_plane and joined

    @property
    def other_clusters(self) -> tuple[str, ...]:
        """Files by which it is a node of a cluster that kubeadm has not made. kubeadm's own folder may be prepared."""
        return tuple(path for path in self.host.clusters if not path.startswith("/etc/kubernetes/"))

    @property
    def is_foreign(self) -> bool:
        """Whether it is a node of a cluster that this collection does not manage."""
        return bool(self.other_clusters) or (self.is_member and not self.is_ours)

    # Where the API server is.

    @property
    def api_host(self) -> str:
        return self.options.api_address or self.kubeadm.first_ip or self.survey.address

    @property
    def api_in_url(self) -> str:
        return f"[{self.api_host}]" if self.api_host.count(":") > 1 else self.api_host

    @property
    def api_asked(self) -> str:
        """Address and port at which the controller asks for it."""
        endpoint = self.options.control_plane_endpoint
        host = endpoint if endpoint and not self.options.api_address else self.api_in_url
        return host if re.search(":[0-9]+$", host) else f"{host}:6443"

    @property
    def asks_api(self) -> bool:
        """Nothing listens there yet: a server that can be reached reports that at once."""
        has_address = bool(self.api_host or self.options.control_plane_endpoint)
        return self.is_wanted and self.leads and not self.is_member and has_address

    @property
    def api_silence(self) -> str:
        """What tells that the address cannot be reached.

        A load balancer without servers may not answer, and no server has the address of kube-vip yet: of these, only a
        name that is not known tells.
        """
        names = "not known|resolution"
        return names if self.options.control_plane_endpoint else f"{names}|timed out|route|unreachable"

    # Packages.

    @property
    def installed_release(self) -> str:
        """Of the kubelet; empty if it was not queried or is not installed."""
        return self.survey.installed.get("kubelet", "")

    @property
    def is_too_old(self) -> bool:
        return not self.options.release or numbers(self.options.release) < numbers(OLDEST_KUBERNETES)

    @property
    def apt(self) -> AptSet:
        url = f"{REPOSITORY}/v{self.options.minor}/deb"
        return AptSet(
            name="kubernetes",
            url=url,
            hosts=("prod-cdn.packages.k8s.io",),  # where pkgs.k8s.io redirects apt to
            suite="/",
            key_url=f"{url}/Release.key",
            fingerprint=self.options.versions["repositories"]["kubernetes"]["fingerprint"],
            packages=PACKAGES,
            version=self.options.apt_version,
            pinned=PACKAGES,
            # The pod network calls it; packages of the kubelet from 1.36.5 on only recommend it
            # (kubernetes/release#4518). Not if it is installed: apt would mark it as asked for by hand, for ever.
            extra=("iptables",) if self.survey.iptables_missing else (),
            services=("kubelet.service",),
        )

    @property
    def apt_kubeadm(self) -> AptSet:
        """The first step of an upgrade."""
        return replace(self.apt, packages=("kubeadm",))

    # Configuration.

    @cached_property
    def kubeadm(self) -> Kubeadm:
        return Kubeadm(
            options=self.options,
            node=self.survey.node,
            is_control_plane=self.is_control_plane,
            systemd_cgroup=self.controller.systemd_cgroup,
            requests=self.controller.requests,
            applied=self.survey.applied,
        )

    @property
    def differs(self) -> bool:
        return self.kubeadm.differs(self.survey.checksums.get(files.APPLIED, ""))

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The new kubeadm documents of a node of the cluster."""
        return self.kubeadm.differing if self.is_complete and self.differs else ()

    @property
    def changed_fields(self) -> tuple[str, ...]:
        return self.kubeadm.differing_fields if "cluster" in self.changed else ()

    @property
    def fixed_fields(self) -> tuple[str, ...]:
        """Changed fields that kubeadm cannot set again."""
        return tuple(name for name in self.changed_fields if name in FIXED)

    @property
    def deferred_fields(self) -> tuple[str, ...]:
        """Changed fields that wait for the next upgrade."""
        return tuple(name for name in self.changed_fields if name not in APPLIED_AT_ONCE) if self.leads else ()

    @property
    def ends_zero(self) -> tuple[str, ...]:
        """Programs of the control plane whose feature gate for HPAs at zero replicas a change turns off."""
        if not self.leads or "cluster" not in self.changed:
            return ()
        before, wanted = self.survey.applied.get("cluster"), self.kubeadm.wanted["cluster"]
        if not isinstance(before, Mapping):
            return ()
        is_default = numbers(self.installed_release or self.options.release)[:2] >= (1, SCALES_TO_ZERO_MINOR)
        return tuple(
            program
            for part, program in HPA_PROGRAMS.items()
            if scales_to_zero(before, part, is_default=is_default)
            and not scales_to_zero(wanted, part, is_default=is_default)
        )

    @property
    def hpas_to_zero(self) -> tuple[str, ...]:
        """HPAs with a minimum of 0, by namespace and name."""
        found = [hpa for hpa in self.survey.hpas if hpa["spec"].get("minReplicas") == 0]
        return tuple(f"{hpa['metadata']['namespace']}/{hpa['metadata']['name']}" for hpa in found)

    @property
    def phases(self) -> tuple[str, ...]:
        """By which the leader tells the cluster of changes."""
        return tuple(phase for name, phase in PHASES.items() if name in self.changed) if self.leads else ()

    @property
    def token_ttl(self) -> str:
        """How long the token of the run's joins is valid, in kubeadm's notation. Afterwards it is deleted.

        Control planes join one by one, for at most 10 minutes each (Kubeadm.join). Of workers as many join at a time as
        Ansible has forks: with five, and half a minute for each, 200 of them need 20 minutes.
        """
        minutes = 30 + 10 * len(self.membership.control_planes) + len(self.membership.all_hosts)
        return f"{minutes}m"

    # Swap and networks.

    @property
    def swap_services(self) -> tuple[str, ...]:
        """Enabled services that turn swap on at each boot."""
        enabled = {path.rpartition("/")[2] for path in self.survey.checksums if ".wants/" in path}
        return tuple(name for name in files.SWAP_SERVICES if name in enabled)

    @property
    def turns_swap_off(self) -> bool:
        return self.options.swap == "disable" and bool(self.survey.swaps)

    @property
    def other_networks(self) -> tuple[str, ...]:
        return in_the_way(self.options.cni, self.survey.checksums)

    @property
    def network_before(self) -> str:
        """The kubernetes_cni of a node of the cluster; empty if it is unknown. Earlier runs have not recorded it."""
        if not self.is_complete:
            return ""
        record = self.survey.applied.get("network") or {}
        return str(record.get("cni") or ("bridge" if self.has(files.NETWORK_UNIT) else ""))

    @property
    def has_metrics_rules(self) -> bool:
        return self.has(files.METRICS_UNIT) or self.has(files.METRICS_SCRIPT)

    # Removal of nodes.

    @property
    def known(self) -> Known:
        return Known(self.survey.nodes, self.survey.members, self.survey.kubelets)

    @property
    def lost_alive(self) -> dict[str, Life]:
        """Signs of life of nodes that the user calls lost."""
        signs = {name: self.known.life(name) for name in self.membership.lost}
        return {name: sign for name, sign in signs.items() if sign}

    def namesakes(self, servers: Iterable[ControlPlane]) -> Iterator[tuple[ControlPlane, Life]]:
        """Those under whose name another machine is alive, as clones of a server are."""
        for server in servers:
            sign = self.known.life(server.node, server.addresses)
            if sign:
                yield server, sign

    # An upgrade.

    @property
    def upgrades(self) -> bool:
        """Completed steps are skipped, so an interrupted upgrade continues."""
        here, release = self.survey.upgrade, self.options.release
        return self.has(files.UPGRADING) or self.installed_release != release or here.kubelet_release != release

    @property
    def upgrade_record(self) -> dict[str, bool]:
        """The state before, for an interrupted run. apply: whether the cluster as a whole needs the upgrade."""
        here = self.survey.upgrade
        return {"apply": here.cluster_release != self.options.release, "cordoned": here.is_cordoned}

    @property
    def upgrade_command(self) -> list[str]:
        applies = self.is_control_plane and self.survey.upgrade.before.get("apply", False)
        return [
            *("kubeadm", "upgrade"),
            *(("apply", "--yes", f"v{self.options.release}") if applies else ("node",)),
            *("--patches", files.PATCHES),
            self.kubeadm.ignored_errors(self.options.ignore_preflight_errors, is_interrupted=False),
        ]
