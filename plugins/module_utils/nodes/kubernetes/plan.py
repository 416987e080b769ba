# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The plan of the role kubernetes: its options and what was read, in; what its tasks do, out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ...formats.yaml import from_yaml
from ...hops import Hop
from ...kube.labels import CORDONED_FOR_UPGRADE
from ..findings import errors, findings, warnings
from ..membership.control_planes import ControlPlane, Membership
from ..membership.etcd_members import members_of
from ..membership.liveness import internal_address
from ..survey.files import slurped
from ..survey.host import Host
from ..survey.program_output import Answer, lines_of
from . import paths as files
from . import pod_network
from .checks import ALWAYS, BEFORE, CHANGES, DAY2, DOCTOR, GONE, LEAVING, UPGRADE
from .decisions import ApiAnswer, Kubernetes, KubernetesSurvey, Upgrade
from .kube_vip import ADMIN_CONF, SUPER_ADMIN_CONF, static_pod
from .options import AnsibleController, KubernetesOptions
from .upkeep import Upkeep, UpkeepOptions


def kubernetes_plan(options: KubernetesOptions, upkeep: UpkeepOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, its `controller`, the `run` with its servers, and results of the tasks that have run."""
    host = Host.of(survey["host"])
    membership = _membership(survey["run"], _names(options.lost_nodes))
    node = Kubernetes(host, options, AnsibleController(**survey["controller"]), membership, _survey(survey))
    checks = ALWAYS + (BEFORE if node.is_wanted else ())
    return {
        "refused": errors(checks, node),
        "notices": warnings(CHANGES, node),
        "hop": str(Hop.KUBERNETES),
        "findings": [] if node.is_foreign else findings(host, checks + DOCTOR, node),
        "node": node.survey.node,
        "is_control_plane": node.is_control_plane,
        "is_complete": node.is_complete,
        "is_member": node.is_member,
        "is_ours": node.is_ours,
        "leads": node.leads,
        "control_plane": membership.control_plane,
        "staying": [*membership.staying],
        "etcd_at": next(iter((*membership.staying, *(server.host for server in membership.members))), ""),
        "api": {"asked": node.api_asked, "server": _api_server(node)},
        "packages": _packages(node),
        "files": _files(node),
        "steps": _steps(node),
        "kubeadm": _kubeadm(node),
        "kube_vip": _kube_vip(node),
        "network": _network(node),
        "metrics": _metrics(node),
        "upkeep": _upkeep(node, upkeep),
        "gone": _gone(node),
        "leaving": {"refused": errors(LEAVING, node)},
        "upgrade": _upgrade(node),
    }


def _api_server(node: Kubernetes) -> str:
    """Address of the API server in the kubeconfig on the controller; empty where kubeadm's own serves."""
    return f"{node.api_in_url}:6443" if node.options.api_address else ""


def _packages(node: Kubernetes) -> dict[str, Any]:
    """sources: empty where nothing is installed. release: of the kubelet and kube-proxy, now or soon."""
    apt = node.apt.describe()
    return {
        "apt": apt,
        "kubeadm": node.apt_kubeadm.describe(),
        "sources": [apt] if node.is_wanted else [],
        "release": node.installed_release or node.options.release,
        "image_repository": node.kubeadm.cluster.get("imageRepository") or "registry.k8s.io",
    }


def _files(node: Kubernetes) -> dict[str, Any]:
    """Paths by what they are for. removed: when the server leaves; those of `shared` only if they are the role's."""
    return {
        "folder": files.FOLDER,
        "config": files.CONFIG,
        "next_config": files.NEXT_CONFIG,
        "join_config": files.JOIN_CONFIG,
        "initialised": files.INITIALISED,
        "upgrading": files.UPGRADING,
        "applied": files.APPLIED,
        "patches": files.PATCHES,
        "identity": files.IDENTITY,
        "joined": files.INITIALISED if node.is_control_plane else files.KUBELET_CONF,
        "manifests": files.MANIFESTS,
        "kube_vip": files.KUBE_VIP,
        "etcd_manifest": files.ETCD_MANIFEST,
        "modules": files.MODULES,
        "sysctl": files.SYSCTL,
        "no_swap": files.NO_SWAP,
        "networkd": files.NETWORKD,
        "cni_config": files.CNI_CONFIG,
        "network_unit": files.NETWORK_UNIT,
        "network_script": files.NETWORK_SCRIPT,
        "metrics_unit": files.METRICS_UNIT,
        "metrics_script": files.METRICS_SCRIPT,
        "removed": {
            "own": [*files.OWN],
            "shared": [*files.SHARED],
            "networks": [*files.OF_NETWORKS] if node.is_ours else [],
        },
    }


def _steps(node: Kubernetes) -> dict[str, bool]:
    """Each with whether it is taken."""
    return _steps_of_tasks(node) | _steps_of_configuration(node) | _steps_of_a_change(node) | _steps_of_removal(node)


def _steps_of_tasks(node: Kubernetes) -> dict[str, bool]:
    """Of main.yml and of what it reads first."""
    ours = node.is_ours and node.is_member
    asks = {
        "read_packages": ours,
        "read_applied": node.has(files.APPLIED) and node.differs,
        "ask_api": node.asks_api,
    }
    return {
        **asks,
        "ask": any(asks.values()),
        "read_hpas": bool(node.ends_zero),
        "install": node.is_wanted,
        "verify": node.is_wanted and node.options.cni != "none",
        "remove": not node.is_wanted,
    }


def _steps_of_configuration(node: Kubernetes) -> dict[str, bool]:
    options, comes = node.options, not node.is_complete
    return {
        "turn_swap_off": node.turns_swap_off,
        "enable_kubelet": not node.has(files.KUBELET_LINK),
        "guard_metrics_first": options.control_plane_metrics and not node.has_metrics_rules,
        "begin": comes,
        "exchange_members": comes or bool(node.membership.gone),
        "forget": bool(node.membership.gone),
        "join_control_plane": comes and node.is_control_plane and not node.leads,
        "join": comes and not node.is_control_plane,
        "record_identity": comes and not node.leads,
        "settle": comes or node.differs,
        "kube_vip": node.is_control_plane and bool(options.kube_vip_address),
        "bridge": options.cni == "bridge",
        "charts": node.leads and options.cni not in ("bridge", "none", "manifest"),
        "manifest": node.leads and options.cni == "manifest",
        "guard_metrics": options.control_plane_metrics or node.has_metrics_rules,
        "close_metrics": not options.control_plane_metrics and node.has_metrics_rules,
    }


def _steps_of_a_change(node: Kubernetes) -> dict[str, bool]:
    changed = {*node.changed}
    return {
        "change": bool(changed),
        "write_patches": "patches" in changed,
        "tell_cluster": bool(node.phases),
        "restart_kube_proxy": "kubeproxy" in changed,
        "restart_control_plane": node.is_control_plane and bool(changed & {"cluster", "patches"}),
        "configure_kubelet": bool(changed & {"kubelet", "patches"}),
    }


def _steps_of_removal(node: Kubernetes) -> dict[str, bool]:
    goes_on = bool(node.membership.staying)
    return {
        "leave_others": goes_on,
        "ask_etcd": bool(node.membership.members),
        "end_cluster": not goes_on and node.is_member and node.leads,
        "drain": goes_on and node.is_member,
        "has_metrics_rules": node.has_metrics_rules,
        "stop_metrics": node.has(files.METRICS_UNIT),
        "remove_networkd": node.has(files.NETWORKD),
        "allow_swap": node.has(files.NO_SWAP),
        "remove_firewall": bool(node.options.kubelet_config.get("makeIPTablesUtilChains", True)),
    }


def _kubeadm(node: Kubernetes) -> dict[str, Any]:
    kubeadm = node.kubeadm
    return {
        "config": kubeadm.config_text if node.is_control_plane else "",
        "applied": kubeadm.wanted_text,
        "join": kubeadm.join,
        "token_ttl": node.token_ttl,
        "changed": [*node.changed],
        "phases": [*node.phases],
        "ignored_errors": kubeadm.ignored_errors(node.options.ignore_preflight_errors, is_interrupted=node.is_ours),
        "etcd_metrics_url": kubeadm.etcd_metrics_url,
    }


def _kube_vip(node: Kubernetes) -> dict[str, Any]:
    """The static pod while the cluster is created, and from then on."""
    if not node.options.kube_vip_address:
        return {}
    return {
        "at_init": static_pod(node.options, SUPER_ADMIN_CONF),
        "afterwards": static_pod(node.options, ADMIN_CONF),
    }


def _network(node: Kubernetes) -> dict[str, Any]:
    return {
        "charts": pod_network.charts(node.options),
        "sysctls": pod_network.sysctls(node.options),
        "routes": pod_network.routes(node.survey.nodes, node.survey.node),
        "pod_cidr": pod_network.pod_cidr(node.survey.nodes, node.survey.node),
        "mtu": node.survey.mtu,
    }


def _metrics(node: Kubernetes) -> dict[str, Any]:
    ipv4, ipv6 = pod_network.metrics_sources(node.options, node.survey.metrics_addresses)
    return {"ports": pod_network.metrics_ports(node.is_control_plane), "ipv4": ipv4, "ipv6": ipv6}


def _upkeep(node: Kubernetes, options: UpkeepOptions) -> dict[str, Any]:
    """files: as they should be, but for the program. unwanted: units of timers that the node no longer has."""
    position = node.membership.control_planes.index(node.host.name) if node.is_control_plane else None
    has_etcd = "external" not in (node.kubeadm.cluster.get("etcd") or {})
    upkeep = Upkeep(options, node.survey.node, position, has_etcd, node.survey.checksums)
    return {
        "program": files.UPKEEP,
        "status": files.UPKEEP_STATUS,
        "files": [{"path": file.path, "mode": file.mode, "content": file.content} for file in upkeep.wanted],
        "timers": upkeep.timers,
        "refused": errors(DAY2, node),
        "enabled": upkeep.is_enabled,
        "unwanted": [*upkeep.unwanted],
        "installed": [path for path in files.UPKEEP_UNITS if path.endswith(".timer") and node.has(path)],
    }


def _gone(node: Kubernetes) -> dict[str, Any]:
    """What is deleted for nodes that are gone.

    unproven: names that the name of the cluster has to confirm. addresses: at which their kubelets may answer.
    """
    refused, departures = errors(GONE, node), node.known.departures(node.membership.gone)
    known = (internal_address(found) for found in node.survey.nodes if found["metadata"]["name"] in departures.nodes)
    return {
        "refused": refused,
        "members": [] if refused else [{"ID": member.id, "name": member.name} for member in departures.members],
        "nodes": [] if refused else [*departures.nodes],
        "unproven": [*departures.unproven],
        "addresses": sorted({*known} - {""}),
    }


def _upgrade(node: Kubernetes) -> dict[str, Any]:
    found = node.survey.upgrade
    return {
        "refused": errors(UPGRADE, node),
        "required": node.upgrades,
        "release": node.options.release,
        "record": node.upgrade_record,
        "command": node.upgrade_command,
        "uncordon": bool(found.before) and not found.before.get("cordoned", False) and not found.is_cordoned,
    }


def _names(given: Iterable[str]) -> tuple[str, ...]:
    """No empty one, which an option without a value gives: a member of etcd that has never started has no name."""
    return tuple(name.strip() for names in given for name in names.split(",") if name.strip())


def _membership(run: Mapping[str, Any], lost: tuple[str, ...]) -> Membership:
    servers = (ControlPlane(**{**server, "addresses": tuple(server.get("addresses", ()))}) for server in run["servers"])
    return Membership(
        control_planes=tuple(run["control_planes"]),
        hosts=tuple(run["hosts"]),
        all_hosts=tuple(run["all_hosts"]),
        nodes=dict(zip(run.get("nodes", ()), run["hosts"], strict=False)),
        servers={server.host: server for server in servers},
        elsewhere={row["item"]: bool((row.get("stat") or {}).get("exists")) for row in run.get("elsewhere", ())},
        silent=tuple(row["item"] for row in run.get("reached", ()) if "msg" in row),
        lost=lost,
    )


def _survey(survey: Mapping[str, Any]) -> KubernetesSurvey:
    route = survey.get("default_route", {})
    return KubernetesSurvey(
        node=survey["node"],
        address=str(route.get("address") or ""),
        mtu=int(route.get("mtu") or 1500),
        checksums={str(file["path"]): str(file.get("checksum") or "") for file in survey.get("files", ())},
        swaps=tuple(survey.get("swaps", ())),
        installed=_installed(lines_of(Answer.of(survey.get("packages")))),
        applied=_applied(survey.get("applied", {})),
        api=_api_answer(survey.get("api", {})),
        iptables_missing=(survey.get("iptables", {}).get("stat") or {}).get("exists") is False,
        nodes=_listed(survey.get("nodes", {})),
        kubelets=tuple(row["item"] for row in survey.get("kubelets", ()) if row.get("status", -1) > 0),
        members=members_of(survey.get("etcd", {}).get("json") or {}, survey.get("etcd_health", ())),
        hpas=_listed(survey.get("hpas", {})),
        metrics_addresses=tuple(" ".join(lines_of(Answer.of(survey.get("metrics_addresses")))).split()),
        status=json.loads(slurped(survey.get("status")) or "{}"),
        upgrade=Upgrade(
            cluster_release=_cluster_release(survey.get("kubeadm_config", {})),
            kubelet_release=_kubelet_release(_first(survey.get("node_before", {}))),
            is_cordoned=_is_cordoned(_first(survey.get("node_before", {}))),
            before=json.loads(slurped(survey.get("before")) or "{}"),
        ),
    )


def _is_cordoned(node: Mapping[str, Any]) -> bool:
    is_ours = CORDONED_FOR_UPGRADE in ((node.get("metadata") or {}).get("annotations") or {})
    return bool((node.get("spec") or {}).get("unschedulable")) and not is_ours


def _installed(rows: Iterable[str]) -> dict[str, str]:
    """Releases without the packages' revision, by `kubelet 1.36.3-1.1`."""
    found = (row.split() for row in rows)
    return {name: version[0].partition("-")[0] for name, *version in found if version}


def _applied(record: Mapping[str, Any]) -> dict[str, Any]:
    """Empty if it cannot be read: then all of it is applied again."""
    try:
        found = from_yaml(slurped(record))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _api_answer(result: Mapping[str, Any]) -> ApiAnswer | None:
    if not result or result.get("skipped"):
        return None
    return ApiAnswer(int(result.get("status") or 0), str(result.get("msg") or ""))


def _listed(result: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Items of a list that kubectl has printed as JSON."""
    text = str(result.get("stdout") or "")
    return tuple(json.loads(text)["items"]) if text else ()


def _first(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first of the objects that k8s_info has read."""
    return next(iter(result.get("resources") or ()), {})


def _cluster_release(result: Mapping[str, Any]) -> str | None:
    if not result:
        return None
    text = (_first(result).get("data") or {}).get("ClusterConfiguration")
    return str(from_yaml(text)["kubernetesVersion"]).removeprefix("v") if text else ""


def _kubelet_release(node: Mapping[str, Any]) -> str:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return str(info.get("kubeletVersion") or "").removeprefix("v")
