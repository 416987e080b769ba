# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Renders the end of a run: components of the cluster, their addresses, and the next steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..kube.objects import Manifest, name_of
from ..secrets import without_login

_MORE_ALERTS = "no receiver. Next: set prometheus_stack_receivers"


@dataclass(frozen=True)
class Run:
    """Data at the end of a run.

    context, server:  of the cluster. kubeconfig: its path. playbook: the command without the playbook's name.
    prometheus:       address of the inventory's Prometheus.
    stack_values:     values of the inventory for the chart kube-prometheus-stack. release: of that chart.
    grafana_secret:   Secret with the administrator's password; empty if the collection installs no Grafana.
    receivers:        names of Alertmanager's receivers.
    proof:            the proof in one line; empty if this run could not prove anything.
    left_out:         servers that failed in this run.
    """

    context: str
    server: str
    kubeconfig: str
    playbook: str
    nodes: Sequence[Manifest]
    autoscalers: Sequence[Manifest]
    prometheus: Mapping[str, Any]
    stack_values: Mapping[str, Any] = field(default_factory=dict)
    release: str = ""
    grafana_secret: str = ""
    receivers: Sequence[str] = ()
    proof: str = ""
    left_out: Sequence[str] = ()


def lines(run: Run) -> list[str]:
    return [
        f"Cluster: {run.context} at {run.server}. For kubectl: export KUBECONFIG={run.kubeconfig}",
        f"GPUs: {_gpus(run.nodes)} on {', '.join(name_of(node) for node in run.nodes) or 'no node'}",
        *([f"Left out, because they failed: {', '.join(run.left_out)}"] if run.left_out else []),
        f"Autoscalers: {_autoscalers(run)}",
        *([f"Proof: {run.proof}"] if run.proof else []),
        f"Prometheus: {_prometheus(run)}; alerts are at /alerts",
        f"Alerts are sent to {', '.join(run.receivers) or _MORE_ALERTS} (docs/monitoring.md)",
        f"Grafana: {_grafana(run)}",
        f"If something is wrong: {run.playbook}.doctor",
        f"To remove everything: {run.playbook}.uninstall, which asks for confirmation",
    ]


def outside_address(values: Mapping[str, Any], nodes: Sequence[Manifest]) -> str:
    """The external address of a part of the chart, by its values; can be empty.

    values: of the part, with `ingress`, `route` or `service` in the chart's format.
    """
    ingress, service = values.get("ingress") or {}, values.get("service") or {}
    route = (values.get("route") or {}).get("main") or {}
    if ingress.get("enabled") and ingress.get("hosts"):
        return f"{'https' if ingress.get('tls') else 'http'}://{ingress['hosts'][0]}"
    if route.get("enabled") and route.get("hostnames"):
        return str(route["hostnames"][0])
    if service.get("type") == "NodePort" and service.get("nodePort"):
        return f"http://{_node_address(nodes)}:{service['nodePort']}"
    return ""


def _node_address(nodes: Sequence[Manifest]) -> str:
    """In a browser's format: an IPv6 address needs brackets."""
    addresses = [row for node in nodes for row in (node.get("status") or {}).get("addresses") or ()]
    internal = [str(row["address"]) for row in addresses if row["type"] == "InternalIP"]
    address = internal[0] if internal else "the address of a node"
    return f"[{address}]" if ":" in address else address


def _gpus(nodes: Sequence[Manifest]) -> int:
    offered = [(node.get("status") or {}).get("allocatable") or {} for node in nodes]
    return sum(int(count) for row in offered for name, count in row.items() if name.startswith("nvidia.com/"))


def _autoscalers(run: Run) -> str:
    names = ", ".join(map(name_of, run.autoscalers))
    return names or f"none. Next: describe one in gpu_autoscaling_autoscalers, and run {run.playbook}.autoscaling"


def _prometheus(run: Run) -> str:
    it = run.prometheus
    outside = without_login(it.get("url") or "") or outside_address(run.stack_values.get("prometheus") or {}, run.nodes)
    forward = f"kubectl -n {it['namespace']} port-forward service/{it['service']} 9090:{it['port']}"
    local = f"{it.get('scheme') or 'http'}://localhost:9090{it['path_prefix']}"
    return str(outside or f"{forward}, then {local}")


def _grafana(run: Run) -> str:
    if not run.grafana_secret:
        return "not installed. prometheus_stack_grafana=true installs one; its dashboards exist"
    kubectl = f"kubectl -n {run.prometheus['namespace']}"
    forward = f"{kubectl} port-forward service/{run.release}-grafana 3000:80, then http://localhost:3000"
    address = outside_address(run.stack_values.get("grafana") or {}, run.nodes) or forward
    password = f"{kubectl} get secret {run.grafana_secret} -o jsonpath='{{.data.admin-password}}' | base64 -d"
    return f"{address}, user admin; the password: {password}"
