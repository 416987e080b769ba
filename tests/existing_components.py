"""Components of a cluster as gpu_cluster_info reports them, and what a chart role decides beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

STACK, EXPORTER, PLUGIN, ADAPTER = "prometheus_stack", "dcgm_exporter", "nvidia_device_plugin", "prometheus_adapter"
METRICS, OPERATOR, KEDA = "metrics_server", "gpu_operator", "keda"


def found(name: str, *, owned: bool = False, release: str = "") -> dict[str, Any]:
    return {"kind": "DaemonSet", "name": name, "owned": owned, "release": release}


ADDRESS = {"service": "web", "namespace": "x", "port": 9090, "path_prefix": "/prom"}


def prometheus(name: str, *, owned: bool = False, **more: Any) -> dict[str, Any]:
    return {
        **found(name, owned=owned),
        "kind": "Prometheus",
        "rule_labels": {},
        "monitor_labels": {},
        **ADDRESS,
        **more,
    }


def of_team(team: str, **more: Any) -> dict[str, Any]:
    """One of several, each with labels of its own."""
    place = {"namespace": f"team-{team}", "service": f"{team}-prometheus"}
    labels = {"release": team}
    return prometheus(f"team-{team}/{team}", rule_labels=labels, monitor_labels=labels, **{**place, **more})


SEVERAL = {"prometheus": [of_team("a", port=9091, path_prefix="/a"), of_team("b", path_prefix="")]}
B = {"namespace": "team-b", "service": "b-prometheus"}
WHICH = ("the cluster has team-a/a and team-b/b", "set kubegpu_prometheus to the namespace and service of the one")
# Of an agent, or of a Thanos Ruler: nothing of it answers queries.
OPERATOR_ALONE = {"prometheus_operator": [found("a/operator")]}


def apis(**servers: bool) -> dict[str, Any]:
    """By the first word of the API: whether the server is ours."""
    return {
        f"{api}.metrics.k8s.io": {"service": "x/server", "owned": owned, "release": "", "is_adapter": True}
        for api, owned in servers.items()
    }


@dataclass(frozen=True)
class Case:
    """expected: the state, or words of the refusal."""

    role: str
    components: dict[str, Any]
    expected: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


NO_RIGHT = {kind: f"no right to list {kind}" for kind in ("DaemonSet", "APIService", "Prometheus")}
