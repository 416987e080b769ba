"""Reports of gpu_doctor, as a healthy cluster and as broken ones give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HOPS = {
    "access": ("Access to the cluster", "kubernetes-admin has all permissions that the checks need"),
    "node": ("GPU nodes and drivers", "8 nodes, 64 GPUs, driver 595.58.03"),
    "device_plugin": ("Device plugin and allocatable GPUs", "64 of 64 GPUs allocatable"),
    "node_labels": ("Node labels", "8 nodes labelled"),
    "exporter": ("dcgm-exporter", "8 pods on 8 nodes, every 1 s"),
    "scrape": ("Prometheus scrapes the exporter", "8 targets up, every 2 s"),
    "labels": ("Series name the pods", "12 of 12 pods with GPUs are named"),
    "rule": ("Recording rules", "2 rules, every 2 s, no error"),
    "metrics_api": ("Metrics API", "custom.metrics.k8s.io is Available, prometheus-adapter"),
    "metric": ("Metric of each pod", "12 of 12 ready pods have a value"),
    "hpa": ("HorizontalPodAutoscaler", "3 of 3 are active"),
    "workload": ("Workload", "3 workloads, 12 of 12 pods ready"),
}
EVIL = '<script>alert("x")</script>&\x1b[31m'


def report(
    statuses: Mapping[str, str] | None = None,
    findings: Sequence[Mapping[str, Any]] = (),
    autoscalers: Sequence[Mapping[str, Any]] = (),
    **changes: Any,
) -> dict[str, Any]:
    """statuses: of hops that are not ok. The verdict follows from the findings."""
    severities = {finding["severity"] for finding in findings}
    statuses = statuses or {}
    return {
        "schema": "kubegpu.autoscale/doctor/v1",
        "generated_at": "2026-03-01T03:00:00Z",
        "duration_s": 1.42,
        "cluster": {
            "reached": True,
            "context": "gpus-in-europe",
            "server": "https://192.0.2.10:6443",
            "server_version": "v1.36.3",
            "nodes": 11,
            "gpu_nodes": 8,
        },
        "scope": {"namespace": None, "name": None},
        "servers": [],
        "verdict": _verdict(statuses, severities),
        "unchecked_hops": [hop for hop, status in statuses.items() if status in ("partial", "unknown")],
        "hops": [
            {"id": name, "title": title, "status": statuses.get(name, "ok"), "summary": summary}
            for name, (title, summary) in HOPS.items()
        ],
        "findings": list(findings),
        "not_checked": [],
        "autoscalers": list(autoscalers),
        **changes,
    }


def _verdict(statuses: Mapping[str, str], severities: set[str]) -> str:
    if "error" in severities:
        return "broken"
    if [statuses.get(hop) for hop in HOPS if hop != "access"].count("unknown") == len(HOPS) - 1:
        return "unknown"
    if {"partial", "unknown"} & set(statuses.values()):
        return "partial"
    return "warning" if severities else "ok"


def finding(id_: str = "EXPORTER_NO_POD_RESOURCES", hop: str = "labels", **changes: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "hop": hop,
        "severity": "error",
        "object": "DaemonSet monitoring/dcgm-exporter",
        "servers": [],
        "seen": [
            "DCGM_FI_DEV_GPU_UTIL has 64 series, label pod is empty on all of them",
            "no volume of the DaemonSet has the path /var/lib/kubelet/pod-resources",
        ],
        "since": "2026-03-01T02:41:00+00:00",
        "cause": "the kubelet's pod-resources folder is not mounted, so the exporter cannot query the pods of GPUs",
        "fix": "mount /var/lib/kubelet/pod-resources, or the folder of a kubelet with another root",
        "doc": f"docs/doctor/{hop}.md#{id_.lower()}",
        "consequences": ["Recording rules: gpu has no series", "HorizontalPodAutoscaler: ml/chat is not active"],
        "grace_s": 0,
        **changes,
    }


def autoscaler(name: str = "chat", samples: int = 60, **changes: Any) -> dict[str, Any]:
    """Load comes after a third of the time and is gone after two thirds."""
    busy = [samples // 3 <= index < 2 * samples // 3 for index in range(samples)]
    return {
        "namespace": "ml",
        "name": name,
        "target": {"kind": "Deployment", "name": name},
        "metric": "gpu",
        "target_value": 60.0,
        "unit": "percent",
        "min_replicas": 1,
        "max_replicas": 8,
        "replicas": 2,
        "desired_replicas": 2,
        "verified": True,
        "budget": {
            "collect_s": 1,
            "scrape_s": 2,
            "evaluate_s": 2,
            "sync_s": 5,
            "worst_s": 10,
            "mean_s": 5,
            "sources": {},
        },
        "history": {
            "step_s": 10,
            "times": [1772334000 + 10 * index for index in range(samples)],
            "value": [55.0 + 20 * is_busy + index % 7 for index, is_busy in enumerate(busy)],
            "replicas": [5 if busy[max(0, index - 2)] else 2 for index in range(samples)],
            "desired": [5 if is_busy else 2 for is_busy in busy],
        },
        **changes,
    }


HEALTHY = report(autoscalers=[autoscaler("chat"), autoscaler("embed"), autoscaler("rerank")])

_DARK = dict.fromkeys(("rule", "metric", "hpa", "workload"), "consequence")
BLIND = autoscaler(
    verified=False,
    replicas=None,
    desired_replicas=None,
    budget=None,
    history={
        "step_s": 10,
        "times": [1772334000 + 10 * index for index in range(30)],
        "value": [50.0] * 12 + [None] * 6 + [70.0] + [None] * 11,
        "replicas": [2] * 30,
        "desired": [2] * 12 + [None] * 18,
    },
)
BROKEN = report(
    {"labels": "broken", "metrics_api": "unknown", **_DARK},
    [finding()],
    [BLIND, autoscaler("embed", verified=False, history=None)],
    not_checked=[
        {
            "check": "APIService of custom.metrics.k8s.io",
            "hop": "metrics_api",
            "reason": "the user may not get apiservices.apiregistration.k8s.io",
            "finding": None,
        }
    ],
)

MANY = report(
    {"node": "broken", "exporter": "warning", "scrape": "broken", "hpa": "broken", "workload": "warning"},
    [
        finding(f"DRIVER_{word}", "node", object=f"node gpu-{word.lower()}.example.org", consequences=[])
        for word in ("BROKEN", "NEEDS_REBOOT")
    ]
    + [
        finding("EXPORTER_COLLECTS_SLOWLY", "exporter", severity="warning", object=f"DaemonSet {name}", seen=["30 s"])
        for name in ("monitoring/dcgm-exporter", "gpu-operator/nvidia-dcgm-exporter")
    ]
    + [finding("TARGET_DOWN", "scrape", object=f"target 10.1.{index}.7:9400") for index in range(9)]
    + [finding("HPA_INACTIVE", "hpa", object=f"HorizontalPodAutoscaler ml/{'long-' * index}name") for index in range(9)]
    + [finding("WORKLOAD_PENDING", "workload", severity="warning", object="Deployment ml/chat")],
    [autoscaler("chat", verified=False)],
)

FLEET = report(
    autoscalers=[
        autoscaler(f"model-{index:02}", verified=index % 20 != 7, desired_replicas=2 + index % 3) for index in range(60)
    ],
    findings=[finding("REACTION_SLOW", "rule", severity="warning")],
    statuses={"rule": "warning"},
)

HOSTILE = report(
    {"labels": "broken"},
    [finding(object=EVIL, seen=[EVIL], cause=EVIL, fix=EVIL, consequences=[EVIL], doc=EVIL)],
    [autoscaler(EVIL, metric=EVIL, unit=EVIL, target={"kind": EVIL, "name": EVIL}), autoscaler(EVIL, history=None)],
    not_checked=[{"check": EVIL, "hop": "rule", "reason": EVIL, "finding": None}],
    cluster={"reached": True, "context": EVIL, "server": EVIL, "server_version": EVIL, "nodes": 1, "gpu_nodes": 1},
    scope={"namespace": EVIL, "name": EVIL},
)

REPORTS = {"healthy": HEALTHY, "broken": BROKEN, "many": MANY, "fleet": FLEET, "hostile": HOSTILE}
