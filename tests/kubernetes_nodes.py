"""Servers for the role kubernetes: what is found on them and in their cluster, and what is planned for them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.host import Host
from planned import plan_of

from lab.versions import versions

NOW = 1795737600
FOLDER = "/etc/kubernetes/kubegpu"
KUBELET_CONF = "/etc/kubernetes/kubelet.conf"
INITIALISED = f"{FOLDER}/initialised"
APPLIED = f"{FOLDER}/applied.yaml"
WORKER = (FOLDER, APPLIED, KUBELET_CONF)
CONTROL_PLANE = (*WORKER, INITIALISED)
PIN = versions()["packages"]["kubernetes"]
RELEASE = PIN.partition("-")[0]
# Defaults that depend on the inventory.
DEFAULTS = {
    "version": PIN,
    "swap": "disable",
    "control_plane_endpoint": "",
    "schedule_on_control_plane": False,
    "hpa_sync_period": 5,
    "hpa_concurrent_syncs": 5,
}


@dataclass(frozen=True)
class Node:
    """One server of a run.

    files:      that are there; a control plane is complete by one of them.
    planes:     control planes of the inventory.
    hosts:      of the run, all of which answer; empty for the server alone.
    others:     of the other servers of the run: whether they are complete control planes.
    elsewhere:  control planes that the run leaves out and that answer, with whether they are complete.
    silent:     control planes that the run leaves out and that do not answer.
    """

    name: str = "cp1"
    files: Sequence[str] = ()
    planes: Sequence[str] = ("cp1",)
    hosts: Sequence[str] = ()
    others: Mapping[str, bool] = field(default_factory=dict)
    elsewhere: Mapping[str, bool] = field(default_factory=dict)
    silent: Sequence[str] = ()
    other_state: str = "present"
    other_addresses: Sequence[str] = ("192.0.2.9",)
    addresses: Sequence[str] = ("192.0.2.1",)
    swaps: Sequence[str] = ()
    clusters: Sequence[str] = ()
    kubeconfig: str = "/nowhere/kubeconfig"
    has_kubeconfig: bool = False
    applied: Mapping[str, Any] | None = None
    survey: Mapping[str, Any] = field(default_factory=dict)
    cgroup: bool = True
    requests: int = 200

    def plan(self, **options: Any) -> dict[str, Any]:
        """options: of the role, by their names without its own."""
        survey = {"controller": self._controller(), "run": self._run(options.get("state", "present")), **self._survey()}
        host = Host(self.name, "Debian 12", "6.1.0-40-amd64", "x86_64", clusters=tuple(self.clusters), now=NOW)
        return plan_of("kubernetes", survey, host, **DEFAULTS | options)

    def refused(self, **options: Any) -> str:
        return "\n".join(self.plan(**options)["refused"])

    def _controller(self) -> dict[str, Any]:
        expanded = self.kubeconfig.replace("~", "/root")
        return {
            "kubeconfig_option": self.kubeconfig,
            "kubeconfig_file": expanded,
            "kubeconfig_real": f"/here/{self.kubeconfig}",
            "kubeconfig_exists": self.has_kubeconfig,
            "playbook_folder": "/collection/playbooks",
            "systemd_cgroup": self.cgroup,
            "requests": self.requests,
        }

    def _run(self, state: str) -> dict[str, Any]:
        hosts = [*self.hosts] or [self.name, *self.others]
        mine = self._server(self.name, state, INITIALISED in self.files, self.addresses)
        others = [
            self._server(name, self.other_state, complete, self.other_addresses)
            for name, complete in self.others.items()
        ]
        return {
            "control_planes": [*self.planes],
            "hosts": hosts,
            "all_hosts": hosts,
            "nodes": [host.lower() for host in hosts],
            "servers": [mine, *others],
            "reached": [
                *({"item": name, "msg": "timed out"} for name in self.silent),
                *({"item": name} for name in self.elsewhere),
            ],
            "elsewhere": [{"item": name, "stat": {"exists": there}} for name, there in self.elsewhere.items()],
        }

    @staticmethod
    def _server(name: str, state: str, is_complete: bool, addresses: Sequence[str] = ()) -> dict[str, Any]:
        return {
            "host": name,
            "node": name.lower(),
            "state": state,
            "is_complete": is_complete,
            "addresses": [*addresses],
        }

    def _survey(self) -> dict[str, Any]:
        return {
            "node": self.name.lower(),
            "default_route": {"address": "192.0.2.1", "mtu": 1450},
            "files": [{"path": path, "checksum": "0"} for path in self.files],
            "swaps": [*self.swaps],
            "applied": {} if self.applied is None else {"content": encoded(yaml.safe_dump(dict(self.applied)))},
            **self.survey,
        }


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def listed(*nodes: Mapping[str, Any]) -> dict[str, Any]:
    """As kubectl prints a list."""
    return {"rc": 0, "stdout": json.dumps({"items": nodes})}


def cluster_node(name: str, address: str = "192.0.2.9", ready: str = "True", pod_cidr: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"podCIDR": pod_cidr} if pod_cidr else {},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}],
        },
    }


def _member(name: str) -> dict[str, Any]:
    return {"ID": f"id-{name}", "name": name, "clientURLs": ["https://192.0.2.9:2379"]}


def etcd(**states: str) -> dict[str, Any]:
    """Members by their state, and what each answered: healthy, without a majority, down, never started."""
    answers = {
        "healthy": {"status": 200, "content": '{"health":"true","reason":""}'},
        "unhealthy": {"status": 503, "content": '{"health":"false","reason":"RAFT NO LEADER"}'},
        "down": {"status": -1, "msg": "Connection refused"},
    }
    members = [{**_member(name), "isLearner": state == "learner"} for name, state in states.items()]
    health = [{"item": known, **answers[state]} for known in members if (state := states[known["name"]]) in answers]
    return {"etcd": {"json": {"members": members}}, "etcd_health": health}


def documents(config: str) -> dict[str, Any]:
    """kubeadm's documents by their kinds."""
    return {document["kind"]: document for document in yaml.safe_load_all(config)}
