# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Why a server cannot join, change, be upgraded or leave its cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from ...diagnosis.check import CheckResult, FindingTypes, check
from ...errors import enumeration
from ...formats.feature_gates import SCALE_TO_ZERO
from ...hops import Hop
from ..apt.versions import numbers
from ..findings import seen_on
from ..membership.control_planes import ControlPlane
from ..membership.etcd_members import majority_loss
from . import paths as files
from .decisions import Kubernetes
from .options import OLDEST_KUBERNETES

_KUBERNETES = FindingTypes(Hop.KUBERNETES)

# For any state.

FOREIGN_CLUSTER = _KUBERNETES.error(
    "KUBERNETES_FOREIGN_CLUSTER",
    "the role changes only nodes that it has joined to their cluster",
    "to use that cluster as it is, set kubegpu_kubeconfig and leave the node roles out; to remove the server from it, "
    "run `kubeadm reset` on the server",
    before="refuse",
)


@check("the server is not a node of an unmanaged cluster", FOREIGN_CLUSTER)
def cluster_is_managed(node: Kubernetes) -> Iterator[CheckResult]:
    if node.is_member and not node.is_ours:
        yield seen_on(
            node.host, FOREIGN_CLUSTER, f"belongs to a cluster that this role did not create: {files.KUBELET_CONF}"
        )


LEAVES_BESIDE = _KUBERNETES.error(
    "KUBERNETES_LEAVES_BESIDE",
    "a server is removed in a separate run, in which a remaining control plane drains it",
    "`ansible-playbook kubegpu.autoscale.cluster --limit {host} -e kubernetes_state=absent`",
    before="refuse",
)


@check("a run does not keep some control planes and remove others", LEAVES_BESIDE)
def server_leaves_by_itself(node: Kubernetes) -> Iterator[CheckResult]:
    staying = node.membership.staying_beside
    if not node.is_wanted and node.is_member and staying:
        seen = f"is to leave the cluster, and {', '.join(staying)} of the same run to stay"
        yield seen_on(node.host, LEAVES_BESIDE, seen, host=node.host.name)


CANNOT_LEAVE = _KUBERNETES.error(
    "KUBERNETES_CANNOT_LEAVE",
    "a working control plane must drain and delete the node",
    "start one of them and run this again; or remove them from kube_control_plane if the cluster is gone for good",
    before="refuse",
)


@check("a control plane can drain a node that leaves", CANNOT_LEAVE)
def node_can_leave(node: Kubernetes) -> Iterator[CheckResult]:
    membership = node.membership
    outside = [name for name in membership.silent if name not in membership.all_hosts]
    if node.is_wanted or not node.is_member or membership.staying:
        return
    if outside or (membership.silent and not membership.complete):
        silent = ", ".join(outside or membership.silent)
        seen = f"cannot be drained or removed from the cluster: its control planes {silent} do not answer"
        yield seen_on(node.host, CANNOT_LEAVE, seen)


KUBECONFIG_RELATIVE = _KUBERNETES.error(
    "KUBERNETES_KUBECONFIG_RELATIVE",
    "the kubeconfig is shared by playbooks in several folders, so its path has to be absolute",
    "set kubegpu_kubeconfig to {absolute}",
    before="refuse",
)


@check("the path of the kubeconfig is absolute", KUBECONFIG_RELATIVE)
def kubeconfig_is_absolute(node: Kubernetes) -> Iterator[CheckResult]:
    controller = node.controller
    if not controller.kubeconfig_file.startswith("/"):
        seen = f"has the relative path {controller.kubeconfig_option} as kubegpu_kubeconfig, which would be a file in "
        yield seen_on(
            node.host, KUBECONFIG_RELATIVE, seen + controller.playbook_folder, absolute=controller.kubeconfig_real
        )


# Checks of a server that should be a node.

OTHER_DISTRIBUTION = _KUBERNETES.error(
    "KUBERNETES_OTHER_DISTRIBUTION",
    "a server is a node of one cluster only",
    "to use that cluster as it is, set kubegpu_kubeconfig and leave the node roles out; to remove the server from it, "
    "uninstall it with the tool that installed it",
    before="refuse",
)


@check("the server is not a node of another distribution", OTHER_DISTRIBUTION)
def no_other_distribution(node: Kubernetes) -> Iterator[CheckResult]:
    if node.other_clusters:
        seen = f"belongs to a cluster of another distribution: it has {', '.join(node.other_clusters)}"
        yield seen_on(node.host, OTHER_DISTRIBUTION, seen)


NO_CONTROL_PLANE = _KUBERNETES.error(
    "KUBERNETES_NO_CONTROL_PLANE",
    "a cluster needs one control plane",
    "add a server to kube_control_plane; for an existing cluster, set kubegpu_kubeconfig and leave the node roles out",
    before="refuse",
)
ENDPOINT_MISSING = _KUBERNETES.error(
    "KUBERNETES_ENDPOINT_MISSING",
    "several control planes need an address that is not that of one server",
    "set kubernetes_control_plane_endpoint (a load balancer) or kubernetes_kube_vip_address (an address that moves "
    "between them)",
    before="refuse",
)


@check("the control planes have an address", NO_CONTROL_PLANE, ENDPOINT_MISSING)
def control_planes_have_an_address(node: Kubernetes) -> Iterator[CheckResult]:
    count = len(node.membership.control_planes)
    if not count:
        yield seen_on(node.host, NO_CONTROL_PLANE, "has no control plane: the group kube_control_plane has 0 hosts")
    elif count > 1 and not node.options.control_plane_endpoint:
        yield seen_on(node.host, ENDPOINT_MISSING, f"has several control planes: kube_control_plane has {count} hosts")


VERSION_UNFIT = _KUBERNETES.error(
    "KUBERNETES_VERSION_UNFIT",
    f"the role supports Kubernetes {OLDEST_KUBERNETES} and later, and kubeadm needs the exact release",
    f"set kubernetes_version to a release in full, 1.36.3-* for instance, of {OLDEST_KUBERNETES} or later",
    before="refuse",
)


@check("the version is a supported release", VERSION_UNFIT)
def version_is_a_release(node: Kubernetes) -> Iterator[CheckResult]:
    if node.is_too_old:
        yield seen_on(node.host, VERSION_UNFIT, f"would get kubernetes_version {node.options.version}")


VERSION_DIFFERS = _KUBERNETES.error(
    "KUBERNETES_VERSION_DIFFERS",
    "a cluster is upgraded node by node",
    "`ansible-playbook kubegpu.autoscale.upgrade_kubernetes`; or set kubernetes_version to {installed}",
    before="refuse",
)


@check("the node has the wanted release", VERSION_DIFFERS)
def release_is_the_wanted_one(node: Kubernetes) -> Iterator[CheckResult]:
    release, installed = node.options.release, node.installed_release
    if release and installed and installed != release:
        seen = f"has Kubernetes {installed}, kubernetes_version is {release}"
        yield seen_on(node.host, VERSION_DIFFERS, seen, installed=installed)


KUBECONFIG_OF_OTHER_CLUSTER = _KUBERNETES.error(
    "KUBERNETES_KUBECONFIG_OF_OTHER_CLUSTER",
    "the file would be overwritten, and it may be the only way into that cluster",
    "to use that cluster, leave the node roles out; to create a new one, set kubegpu_kubeconfig to another path or "
    "move the file away",
    before="refuse",
)


@check("the kubeconfig does not belong to another cluster", KUBECONFIG_OF_OTHER_CLUSTER)
def kubeconfig_is_of_this_cluster(node: Kubernetes) -> Iterator[CheckResult]:
    if node.leads and not node.is_member and node.controller.kubeconfig_exists:
        seen = f"is in no cluster, and {node.controller.kubeconfig_option} on the controller is of one"
        yield seen_on(node.host, KUBECONFIG_OF_OTHER_CLUSTER, seen)


CONTROL_PLANES_SILENT = _KUBERNETES.error(
    "KUBERNETES_CONTROL_PLANES_SILENT",
    "kubeadm could create a second cluster beside theirs",
    "start one of them and run this again, so that {host} joins its cluster; or remove them from kube_control_plane if "
    "they have none",
    before="refuse",
)


@check("control planes that may have a cluster respond", CONTROL_PLANES_SILENT)
def control_planes_answer(node: Kubernetes) -> Iterator[CheckResult]:
    membership = node.membership
    if not node.is_member and not membership.complete and membership.silent:
        silent = ", ".join(membership.silent)
        seen = f"is in no cluster, and control planes that may have one do not answer: {silent}"
        yield seen_on(node.host, CONTROL_PLANES_SILENT, seen, host=node.host.name)


API_SERVER_EXISTS = _KUBERNETES.error(
    "KUBERNETES_API_SERVER_EXISTS",
    "kubeadm would create a second cluster beside that one",
    "add a control plane of that cluster to kube_control_plane, so that {host} joins it; or set "
    "kubernetes_control_plane_endpoint to an address that no cluster has",
    before="refuse",
)
API_SERVER_UNREACHABLE = _KUBERNETES.error(
    "KUBERNETES_API_SERVER_UNREACHABLE",
    "later tasks of the controller send their requests to the API server",
    "allow the connection (firewall, security group, VPN), or set kubernetes_api_address to an address by which the "
    "controller reaches the server",
    before="refuse",
)
_HTTP_OF_API_SERVERS = (200, 401, 403)


@check("the address of the API server is free and reachable", API_SERVER_EXISTS, API_SERVER_UNREACHABLE)
def api_server_can_be_there(node: Kubernetes) -> Iterator[CheckResult]:
    answer = node.survey.api
    if answer is None:
        return
    if answer.status in _HTTP_OF_API_SERVERS:
        seen = f"is in no cluster and would create one, but an API server answers at {node.api_asked}"
        yield seen_on(node.host, API_SERVER_EXISTS, seen, host=node.host.name)
    elif answer.status == -1 and re.search(node.api_silence, answer.message):
        reason = re.sub("^.*<|>$", "", answer.message)
        seen = f"would have its API server at {node.api_asked}, which the controller does not reach ({reason})"
        yield seen_on(node.host, API_SERVER_UNREACHABLE, seen)


WORKER_TO_CONTROL_PLANE = _KUBERNETES.error(
    "KUBERNETES_WORKER_TO_CONTROL_PLANE",
    "to join the control plane, the server would be reset under its pods",
    "`ansible-playbook kubegpu.autoscale.cluster --limit {host} -e kubernetes_state=absent`, which drains it; then run "
    "this again",
    before="refuse",
)


@check("no worker is in kube_control_plane", WORKER_TO_CONTROL_PLANE)
def worker_stays_a_worker(node: Kubernetes) -> Iterator[CheckResult]:
    if node.is_worker:
        seen = "is a worker of the cluster, and the inventory has it in kube_control_plane"
        yield seen_on(node.host, WORKER_TO_CONTROL_PLANE, seen, host=node.host.name)


FIXED_FIELDS = _KUBERNETES.error(
    "KUBERNETES_FIXED_FIELDS",
    "kubeadm sets these fields when it creates a cluster, and not again",
    "set the variables back (kubernetes_pod_subnet, kubernetes_service_subnet, kubernetes_control_plane_endpoint, "
    "kubernetes_cluster_config), or create a new cluster",
    before="refuse",
)


@check("fields that kubeadm sets only once do not change", FIXED_FIELDS)
def fixed_fields_stay(node: Kubernetes) -> Iterator[CheckResult]:
    before, wanted = node.survey.applied.get("cluster", {}), node.kubeadm.wanted.get("cluster", {})
    changes = [
        f"{name} is {json.dumps(before.get(name, 'not set'))}, wanted is {json.dumps(wanted.get(name, 'not set'))}"
        for name in node.fixed_fields
    ]
    if changes:
        yield seen_on(node.host, FIXED_FIELDS, f"has a different ClusterConfiguration: {'; '.join(changes)}")


ZERO_ENDS = _KUBERNETES.error(
    "KUBERNETES_ZERO_ENDS",
    "without the feature gate no controller wakes a workload that its HPA has scaled to zero",
    "set min_replicas of these autoscalers to 1, wait until each workload has a replica, then run this again; or keep "
    f"the feature gate {SCALE_TO_ZERO} in kubernetes_cluster_config",
    before="refuse",
)


@check("no HPA scales to zero by a feature gate that is turned off", ZERO_ENDS)
def zero_stays_possible(node: Kubernetes) -> Iterator[CheckResult]:
    if node.ends_zero and node.hpas_to_zero:
        seen = f"would turn the feature gate {SCALE_TO_ZERO} of {' and '.join(node.ends_zero)} off, and HPAs have a "
        yield seen_on(node.host, ZERO_ENDS, f"{seen}minimum of 0: {enumeration(list(node.hpas_to_zero))}")


MANIFEST_OPTIONS = _KUBERNETES.error(
    "KUBERNETES_MANIFEST_OPTIONS",
    "a custom manifest needs both options",
    "set kubernetes_cni: manifest and the path or address of the manifest in kubernetes_cni_manifest, or neither",
    before="refuse",
)
MANIFEST_UNVERIFIED = _KUBERNETES.error(
    "KUBERNETES_MANIFEST_UNVERIFIED",
    "the content of an address may change, and it is applied with all permissions",
    "set kubernetes_cni_manifest_checksum to sha256:<digest> of the manifest that you have reviewed",
    before="refuse",
)


@check("a manifest of the network is named and verified", MANIFEST_OPTIONS, MANIFEST_UNVERIFIED)
def manifest_is_verified(node: Kubernetes) -> Iterator[CheckResult]:
    options = node.options
    manifest = options.cni_manifest
    if (options.cni == "manifest") != bool(manifest):
        seen = f"has kubernetes_cni {options.cni} and kubernetes_cni_manifest {manifest or 'empty'}"
        yield seen_on(node.host, MANIFEST_OPTIONS, seen)
    if re.match("https?://", manifest) and not options.cni_manifest_checksum:
        yield seen_on(node.host, MANIFEST_UNVERIFIED, f"has kubernetes_cni_manifest {manifest} without a checksum")


BRIDGE_IPV4 = _KUBERNETES.error(
    "KUBERNETES_BRIDGE_IPV4",
    "the network bridge supports IPv4 only",
    "set one IPv4 subnet each, or set kubernetes_cni: cilium or calico, with its values for IPv6",
    before="refuse",
)


@check("the bridge gets IPv4 addresses", BRIDGE_IPV4)
def bridge_has_ipv4(node: Kubernetes) -> Iterator[CheckResult]:
    options = node.options
    addresses = (options.pod_subnet, options.service_subnet, options.node_ip)
    if options.cni == "bridge" and re.search("[,:]", "".join(addresses)):
        pods, services, own = addresses
        seen = f"has kubernetes_pod_subnet {pods}, kubernetes_service_subnet {services}, kubernetes_node_ip "
        yield seen_on(node.host, BRIDGE_IPV4, seen + (own or "empty"))


OTHER_NETWORK = _KUBERNETES.error(
    "KUBERNETES_OTHER_NETWORK",
    "containerd uses the first file by name for all pods, and `kubeadm reset` does not remove those of a network",
    "on the server: `rm {files}`, if no cluster uses it any more",
    before="refuse",
)


@check("no other pod network takes precedence", OTHER_NETWORK)
def network_is_the_first(node: Kubernetes) -> Iterator[CheckResult]:
    others = node.other_networks
    if others and not node.is_member:
        seen = f"has a pod network that is not managed by this collection: {', '.join(others)}"
        yield seen_on(node.host, OTHER_NETWORK, seen, files=" ".join(others))


NETWORK_CHANGED = _KUBERNETES.error(
    "KUBERNETES_NETWORK_CHANGED",
    "new pods would be on the new network and existing pods on the old one, without a connection between them",
    "set kubernetes_cni: {before}; for another network, create a new cluster, or move this one by the instructions of "
    "the network's project with `kubernetes_cni: none` from the start",
    before="refuse",
)


@check("the pod network of a node does not change", NETWORK_CHANGED)
def network_stays(node: Kubernetes) -> Iterator[CheckResult]:
    before, wanted = node.network_before, node.options.cni
    if before not in ("", "none", wanted):
        seen = f"has the pod network {before}, and kubernetes_cni is {wanted}"
        yield seen_on(node.host, NETWORK_CHANGED, seen, before=before)


SWAP_ON = _KUBERNETES.error(
    "KUBERNETES_SWAP_ON",
    "the kubelet does not start with swap",
    "set kubernetes_swap: disable to turn swap off permanently, or kubernetes_swap: allow to let the kubelet run with "
    "swap",
    before="refuse",
)
SWAP_AT_BOOT = _KUBERNETES.error(
    "KUBERNETES_SWAP_AT_BOOT",
    "these services are not swap units, so the role cannot keep swap off, and the kubelet does not start with swap",
    "on the server: `systemctl disable --now {services}`; or set kubernetes_swap: allow to let the kubelet run with "
    "swap",
    before="refuse",
)


@check("the kubelet starts, now and after a boot", SWAP_ON, SWAP_AT_BOOT)
def kubelet_starts(node: Kubernetes) -> Iterator[CheckResult]:
    swap, swaps, services = node.options.swap, node.survey.swaps, node.swap_services
    if swap == "refuse" and swaps and not node.is_member:
        yield seen_on(node.host, SWAP_ON, f"swaps: {', '.join(swaps)}")
    if swap == "disable" and services:
        seen = f"enables swap at each boot with {', '.join(services)}"
        yield seen_on(node.host, SWAP_AT_BOOT, seen, services=" ".join(services))


# Of nodes that go.

NAMESAKE = _KUBERNETES.error(
    "KUBERNETES_NAMESAKE",
    "that control plane works, and would lose its vote in etcd",
    "on {host}: `hostnamectl set-hostname NAME`; then run this again",
    before="refuse",
)


@check("no server replaces a working control plane node", NAMESAKE)
def no_namesake_joins(node: Kubernetes) -> Iterator[CheckResult]:
    yield from _namesakes(node, node.membership.returned)


@check("no server leaves under the name of another control plane node", NAMESAKE)
def no_namesake_leaves(node: Kubernetes) -> Iterator[CheckResult]:
    """Its machine ID has been compared as well, so addresses that were not gathered are no contradiction."""
    yield from _namesakes(node, [server for server in node.membership.members if server.addresses])


def _namesakes(node: Kubernetes, servers: Iterable[ControlPlane]) -> Iterator[CheckResult]:
    for server, life in node.namesakes(servers):
        at = f"{life.address or 'an unknown address'}, not one of {', '.join(server.addresses) or '(none known)'}"
        seen = f"cannot continue: {server.host} has the name of node {server.node}, and {life.text} at {at}"
        yield seen_on(node.host, NAMESAKE, seen, host=server.host)


LOST_IN_RUN = _KUBERNETES.error(
    "KUBERNETES_LOST_IN_RUN",
    "a server that returns under the name of its node is not lost",
    "remove {node} from kubernetes_lost_nodes",
    before="refuse",
)
LOST_ALIVE = _KUBERNETES.error(
    "KUBERNETES_LOST_ALIVE",
    "what is alive is drained before it is removed, and a member of etcd would continue with the data of the cluster",
    "remove {node} from kubernetes_lost_nodes. To remove a node that works: `ansible-playbook "
    "kubegpu.autoscale.cluster --limit {node} -e kubernetes_state=absent`. If it is lost, turn that server off first, "
    "and check with `kubectl get node {node}`",
    before="refuse",
)


@check("lost nodes are lost", LOST_IN_RUN, LOST_ALIVE)
def lost_nodes_are_lost(node: Kubernetes) -> Iterator[CheckResult]:
    in_play = node.membership.in_play
    for name in node.membership.lost:
        lost, life = f"has {name} in kubernetes_lost_nodes", node.lost_alive.get(name)
        if name in in_play:
            yield seen_on(
                node.host, LOST_IN_RUN, f"{lost}, which is the node of {in_play[name]} in this run", node=name
            )
        elif life:
            at = f" at {life.address}" if life.address else ""
            yield seen_on(node.host, LOST_ALIVE, f"{lost}, and {life.text}{at}", node=name)


ETCD_MAJORITY = _KUBERNETES.error(
    "KUBERNETES_ETCD_MAJORITY",
    "etcd answers only with a majority of its members",
    "start the members that do not answer (`journalctl -u kubelet` on them), then run this again",
    before="refuse",
)


@check("etcd keeps its majority without the nodes that are gone", ETCD_MAJORITY)
def gone_members_can_go(node: Kubernetes) -> Iterator[CheckResult]:
    lost = node.membership.lost
    if not node.lost_alive and not any(name in node.membership.in_play for name in lost):
        yield from _majority(node, node.membership.gone)


@check("etcd keeps its majority without the nodes that leave", ETCD_MAJORITY)
def leaving_members_can_go(node: Kubernetes) -> Iterator[CheckResult]:
    if node.membership.staying:
        yield from _majority(node, [server.node for server in node.membership.members])


MEMBERS_OUTSIDE = _KUBERNETES.error(
    "KUBERNETES_MEMBERS_OUTSIDE",
    "a cluster ends with its last control plane, and a member of etcd that the run leaves out may continue it",
    "add {members} to the group kube_control_plane, and run this again. If they are lost: `ansible-playbook "
    "kubegpu.autoscale.cluster -e kubernetes_lost_nodes={members}` first. To end a cluster whose etcd has no majority: "
    f"on {{host}}, `mv {files.ETCD_MANIFEST} /root/`, and run this again",
    before="refuse",
)


@check("no cluster ends beside members of etcd that the run leaves out", MEMBERS_OUTSIDE)
def no_member_is_outside(node: Kubernetes) -> Iterator[CheckResult]:
    """By etcd's own list while it answers: the inventory may not name all control planes."""
    outside = {member.name for member in node.survey.members if member.name} - {*node.membership.leaving}
    if outside and not node.membership.staying:
        others = ",".join(sorted(outside))
        seen = f"would end the cluster, and etcd has members that do not leave in this run: {others}"
        yield seen_on(node.host, MEMBERS_OUTSIDE, seen, members=others, host=node.host.name)


def _majority(node: Kubernetes, leaving: Iterable[str]) -> Iterator[CheckResult]:
    loss = majority_loss(node.survey.members, leaving)
    if loss:
        yield CheckResult(ETCD_MAJORITY, "etcd", loss, affected=frozenset({f"server {node.host.name}"}))


# Checks of an upgrade.

NOT_A_NODE = _KUBERNETES.error(
    "KUBERNETES_NOT_A_NODE",
    "only nodes that this role has joined to a cluster can be upgraded, because the controller drains them",
    "`ansible-playbook kubegpu.autoscale.cluster` with the kubernetes_version of the cluster, or leave the host out",
    before="refuse",
)


@check("the server is a node that can be upgraded", NOT_A_NODE)
def server_is_a_node(node: Kubernetes) -> Iterator[CheckResult]:
    if not (node.is_ours and node.is_complete):
        yield seen_on(node.host, NOT_A_NODE, "is not a node that this role has joined to a cluster")
    elif not node.controller.kubeconfig_exists:
        yield seen_on(
            node.host, NOT_A_NODE, f"is a node, and {node.controller.kubeconfig_option} is not on the controller"
        )


RELEASE_UNKNOWN = _KUBERNETES.error(
    "KUBERNETES_RELEASE_UNKNOWN",
    "without the release of the cluster nothing shows whether it can be upgraded to kubernetes_version",
    "`kubectl --namespace kube-system get configmap kubeadm-config --output yaml` has to show a ClusterConfiguration; "
    f"`kubeadm init phase upload-config kubeadm --config {files.CONFIG}` on a control plane writes it again",
    before="refuse",
)
DOWNGRADE = _KUBERNETES.error(
    "KUBERNETES_DOWNGRADE",
    "Kubernetes does not support downgrades: an older release may not read the data of etcd",
    "set kubernetes_version to {cluster} or later",
    before="refuse",
)
MINOR_SKIPPED = _KUBERNETES.error(
    "KUBERNETES_MINOR_SKIPPED",
    "kubeadm upgrades by one minor version at a time",
    "set kubernetes_version to a release of {next}, run this, then continue with the next release",
    before="refuse",
)


@check("the version is the next one", RELEASE_UNKNOWN, DOWNGRADE, MINOR_SKIPPED)
def version_is_the_next(node: Kubernetes) -> Iterator[CheckResult]:
    release, cluster = node.options.release, node.survey.upgrade.cluster_release
    if cluster is None or node.is_too_old:
        return
    if not cluster:
        yield seen_on(
            node.host, RELEASE_UNKNOWN, "belongs to a cluster without kubeadm's record, the ConfigMap kubeadm-config"
        )
        return
    newest = max(numbers(cluster), numbers(node.installed_release))
    major, minor, *_patch = numbers(cluster)
    wanted = numbers(release)
    if wanted < newest:
        seen = f"has {node.installed_release}, the cluster {cluster}, and kubernetes_version is older: {release}"
        yield seen_on(node.host, DOWNGRADE, seen, cluster=cluster)
    elif wanted[0] != major or wanted[1] > minor + 1:
        seen = f"is of a cluster of {cluster}, kubernetes_version is {release}"
        yield seen_on(node.host, MINOR_SKIPPED, seen, next=f"{major}.{minor + 1}")


# Of backups and certificates.

ETCD_EXTERNAL = _KUBERNETES.error(
    "KUBERNETES_ETCD_EXTERNAL",
    "backups, restores and renewals are of etcd members and certificates that kubeadm made",
    "use the tools of that etcd, and kubernetes_backup: false",
    before="refuse",
)


@check("etcd runs on the control plane nodes", ETCD_EXTERNAL)
def server_has_a_control_plane(node: Kubernetes) -> Iterator[CheckResult]:
    if not node.is_control_plane:
        yield seen_on(node.host, ETCD_EXTERNAL, "is not in kube_control_plane, so it has no etcd")
    elif "external" in (node.kubeadm.cluster.get("etcd") or {}):
        yield seen_on(node.host, ETCD_EXTERNAL, "has kubernetes_cluster_config with an external etcd")


# Of the doctor, by what the timer kubegpu-status has written.

CERTIFICATE_EXPIRES = _KUBERNETES.warning(
    "KUBERNETES_CERTIFICATE_EXPIRES",
    "without a valid certificate every request to the API server fails. The timer that renews certificates is off or "
    "fails",
    "`ansible-playbook kubegpu.autoscale.certificates`; on the server, `journalctl -u kubegpu-certificates`",
)
BACKUP_OLD = _KUBERNETES.warning(
    "KUBERNETES_BACKUP_OLD",
    "what was written since the last backup would be lost. The timer that backs up etcd is off or fails, "
    "or its copy to kubernetes_backup_copy fails",
    "`ansible-playbook kubegpu.autoscale.backup`; on the server, `journalctl -u kubegpu-backup`",
)
# As the alerts have it: roles/gpu_alerts/files/servers.yml.
_CERTIFICATE_DAYS = 30
_BACKUP_HOURS = 26


@check("certificates and backups are in time", CERTIFICATE_EXPIRES, BACKUP_OLD)
def node_is_kept_up(node: Kubernetes) -> Iterator[CheckResult]:
    status, now = node.survey.status, node.host.now
    ends = {str(name): float(end) for name, end in (status.get("certificates") or {}).items()}
    name = min(ends, key=lambda name: ends[name], default="")
    if name and ends[name] - now < _CERTIFICATE_DAYS * 86400:
        left = (ends[name] - now) / 86400
        seen = f"has the certificate {name}, which " + (f"expires in {left:.0f} days" if left > 0 else "has expired")
        yield seen_on(node.host, CERTIFICATE_EXPIRES, seen)
    if "backup" in status and now - float(status["backup"]) > _BACKUP_HOURS * 3600:
        hours = (now - float(status["backup"])) / 3600
        yield seen_on(node.host, BACKUP_OLD, f"has had no backup of etcd for {hours:.0f} hours")


# Of changes that are applied.

CHANGE_DEFERRED = _KUBERNETES.warning(
    "KUBERNETES_CHANGE_DEFERRED",
    "kubeadm applies these fields of the ClusterConfiguration with the next upgrade",
    "nothing, or `ansible-playbook kubegpu.autoscale.upgrade_kubernetes` with a later kubernetes_version",
)
CERTIFICATE_KEPT = _KUBERNETES.warning(
    "KUBERNETES_CERTIFICATE_KEPT",
    "kubeadm does not issue the API server's certificate again",
    "for another name in certSANs, remove /etc/kubernetes/pki/apiserver.crt and .key on each control plane and run "
    f"`kubeadm init phase certs apiserver --config {files.CONFIG}` there",
)


@check("all changes are applied at once", CHANGE_DEFERRED, CERTIFICATE_KEPT)
def changes_are_applied(node: Kubernetes) -> Iterator[CheckResult]:
    if node.deferred_fields:
        yield seen_on(node.host, CHANGE_DEFERRED, f"keeps {', '.join(node.deferred_fields)} as before")
    if "apiServer" in node.changed_fields:
        yield seen_on(node.host, CERTIFICATE_KEPT, "keeps its certificate of the API server")


ALWAYS = (cluster_is_managed, server_leaves_by_itself, node_can_leave, kubeconfig_is_absolute)
BEFORE = (
    no_other_distribution,
    control_planes_have_an_address,
    version_is_a_release,
    release_is_the_wanted_one,
    kubeconfig_is_of_this_cluster,
    control_planes_answer,
    api_server_can_be_there,
    worker_stays_a_worker,
    fixed_fields_stay,
    zero_stays_possible,
    manifest_is_verified,
    bridge_has_ipv4,
    network_is_the_first,
    network_stays,
    kubelet_starts,
)
# Before nodes are deleted that are gone; before control planes leave; before an upgrade.
GONE = (no_namesake_joins, lost_nodes_are_lost, gone_members_can_go)
LEAVING = (no_namesake_leaves, leaving_members_can_go, no_member_is_outside)
UPGRADE = (server_is_a_node, version_is_a_release, version_is_the_next)
CHANGES = (changes_are_applied,)
DOCTOR = (node_is_kept_up,)
# Before a backup, a restore or new certificates.
DAY2 = (server_is_a_node, server_has_a_control_plane)
ALL = tuple(dict.fromkeys(ALWAYS + BEFORE + GONE + LEAVING + UPGRADE + CHANGES + DOCTOR + DAY2))
