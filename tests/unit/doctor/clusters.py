"""Clusters as the doctor captures them: a healthy one that tests break in one place, and ones that others have made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import PROFILES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.health_report import health_report
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.api import AdapterConfig, ApiState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.autoscaler import AutoscalerState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import State
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.demand import DemandState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.metric import MetricState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.prometheus import PrometheusState, Row
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.rejected_requests import Rejections
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.servers import ExaminedServer, NoCluster
from collection import ROOT

Manifest = dict[str, Any]

NOW = 1_800_000_000.0
OLD = 86_400.0
CUSTOM = "custom.metrics.k8s.io"
SERIES = "namespace_pod:gpu:avg"
SOURCES = PROFILES["gpu"].metrics[0].sources
# What is recorded of single GPUs and of pods, and of that what an HPA reads.
*READINGS, SMOOTHING = PROFILES["gpu"].metrics[0].recordings()
_ADAPTER_VALUES = yaml.safe_load((ROOT / "roles" / "prometheus_adapter" / "vars" / "main.yml").read_text())
ADAPTER_RULES = [
    *_ADAPTER_VALUES["__prometheus_adapter_rules"],
    *_ADAPTER_VALUES["__prometheus_adapter_external_rules"],
]
RELEASE = {"release": "kube-prometheus-stack"}


def at(age_s: float) -> str:
    return datetime.fromtimestamp(NOW - age_s, UTC).isoformat().replace("+00:00", "Z")


def meta(name: str, namespace: str = "", age_s: float = OLD, **labels: str) -> Manifest:
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, **place, "labels": labels, "creationTimestamp": at(age_s)}


def turned(kind: str, status: str = "True", age_s: float = OLD, **more: str) -> Manifest:
    return {"type": kind, "status": status, "lastTransitionTime": at(age_s), **more}


def node(name: str, gpus: int = 4, **labels: str) -> Manifest:
    amount = {"cpu": "64", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {
        "metadata": {**meta(name), "labels": {"nvidia.com/gpu.present": "true", **labels}},
        "spec": {},
        "status": {"capacity": dict(amount), "allocatable": dict(amount), "conditions": [turned("Ready")]},
    }


def pod(
    name: str,
    namespace: str,
    on: str,
    labels: Manifest,
    ip: str = "",
    ready: bool = True,
    age_s: float = OLD,
) -> Manifest:
    return {
        "metadata": {**meta(name, namespace, age_s), "labels": dict(labels)},
        "spec": {"nodeName": on, "runtimeClassName": "nvidia", "containers": [{"name": "main"}]},
        "status": {
            "phase": "Running",
            "podIP": ip,
            "conditions": [turned("PodScheduled", age_s=age_s), turned("Ready", str(ready), age_s)],
            "containerStatuses": [{"name": "main", "ready": ready, "restartCount": 0, "state": {}}],
        },
    }


def crash(of: dict[str, Any], message: str, reason: str = "CrashLoopBackOff") -> None:
    of["status"]["conditions"][1] = turned("Ready", "False", 3000)
    of["status"]["containerStatuses"] = [
        {
            "name": "main",
            "ready": False,
            "restartCount": 9,
            "state": {"waiting": {"reason": reason}},
            "lastState": {"terminated": {"reason": "Error", "exitCode": 1, "message": message, "finishedAt": at(20)}},
        }
    ]


def daemon_set(name: str, namespace: str, container: Manifest, labels: Manifest, **pod_spec: Any) -> Manifest:
    spec = {"containers": [container], "nodeSelector": {"nvidia.com/gpu.present": "true"}, **pod_spec}
    return {
        "metadata": meta(name, namespace),
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


EXPORTER = {"app.kubernetes.io/name": "dcgm-exporter"}
PLUGIN = {"app.kubernetes.io/name": "nvidia-device-plugin"}
ADAPTER = {"app.kubernetes.io/name": "prometheus-adapter"}
OPERATOR = {"app.kubernetes.io/name": "prometheus-operator"}
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}


def exporter_daemon_set(name: str = "dcgm-exporter", namespace: str = "monitoring") -> Manifest:
    container = {
        "name": "exporter",
        "image": "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless",
        "env": [
            {"name": "DCGM_EXPORTER_KUBERNETES", "value": "true"},
            {"name": "DCGM_EXPORTER_INTERVAL", "value": "1000"},
        ],
        "ports": [{"name": "metrics", "containerPort": 9400}],
        "livenessProbe": {"initialDelaySeconds": 45, "timeoutSeconds": 5},
        "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
        "resources": {"limits": {"memory": "512Mi"}},
    }
    volumes = [{"name": "pod-gpu-resources", "hostPath": {"path": "/var/lib/kubelet/pod-resources"}}]
    return daemon_set(name, namespace, container, EXPORTER, volumes=volumes)


def plugin_daemon_set() -> Manifest:
    container = {
        "name": "nvidia-device-plugin-ctr",
        "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
        "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
    }
    return daemon_set("nvidia-device-plugin", "nvidia-device-plugin", container, PLUGIN)


def service(name: str, namespace: str, selector: Manifest, port: int, port_name: str, **labels: str) -> Manifest:
    spec = {"selector": selector, "ports": [{"name": port_name, "port": port}]}
    return {"metadata": {**meta(name, namespace), "labels": {**selector, **labels}}, "spec": spec}


def monitor(name: str, namespace: str, selector: Manifest, **labels: str) -> Manifest:
    spec = {"selector": {"matchLabels": selector}, "endpoints": [{"port": "metrics", "interval": "2s"}]}
    return {"metadata": {**meta(name, namespace), "labels": labels}, "spec": spec}


def rows(pods: dict[str, str], names: tuple[str, ...] = SOURCES, layout: str = "exported_") -> list[Row]:
    """pods: instance of the exporter by `namespace/name`; layout: prefix of the labels that name the pod."""
    own = {"namespace": "monitoring", "pod": "dcgm-exporter-gpu1"} if layout else {}
    return [
        Row(
            {
                "__name__": name,
                "instance": instance,
                **own,
                f"{layout}namespace": place.split("/")[0],
                f"{layout}pod": place.split("/")[1],
            }
        )
        for name in names
        for place, instance in pods.items()
    ]


def hpa(name: str = "chat", metric: str = "gpu", maximum: int = 4) -> Manifest:
    target = {"type": "AverageValue", "averageValue": "60"}
    return {
        "metadata": meta(name, "ml"),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": maximum,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": metric}, "target": target}}],
        },
        "status": {
            "currentReplicas": 2,
            "desiredReplicas": 2,
            "conditions": [turned("AbleToScale"), turned("ScalingActive"), turned("ScalingLimited", "False")],
        },
    }


def deployment(name: str = "chat", gpus: int = 1, image: str = "service:1") -> Manifest:
    container = {
        "name": "main",
        "image": image,
        "readinessProbe": {"httpGet": {"port": 8080}},
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "metadata": meta(name, "ml"),
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }


def webhook(namespace: str = "monitoring", name: str = "operator", **changes: Any) -> Manifest:
    """What the chart of the Prometheus operator puts before PrometheusRules."""
    rules = [{"apiGroups": ["monitoring.coreos.com"], "resources": ["prometheusrules"]}]
    asked = {"clientConfig": {"service": {"namespace": namespace, "name": name}}, "rules": rules}
    return {"metadata": meta("prometheus-admission"), "webhooks": [{**asked, "failurePolicy": "Fail", **changes}]}


BUDGET = {
    "collect_s": 1.0,
    "scrape_s": 2.0,
    "evaluate_s": 2.0,
    "sync_s": 5.0,
    "worst_s": 10.0,
    "mean_s": 5.0,
    "sources": {"collect": "configured", "scrape": "seen", "evaluate": "configured", "sync": "configured"},
}


def metric(**changes: Any) -> MetricState:
    both = {"chat-0": 41.0, "chat-1": 55.0}
    given = MetricState(
        "gpu",
        CUSTOM,
        "Pods",
        series=SERIES,
        sources=SOURCES,
        reporter="dcgm-exporter",
        unit="percent",
        target_value=60.0,
        expected_objects=frozenset(both),
        values=both,
        recorded={name: (value - 1, value) for name, value in both.items()},
    )
    return replace(given, **changes)


@dataclass
class Cluster:
    """Two GPU nodes with a pod each of one autoscaler, as this collection sets them up; free to be broken."""

    nodes: list[Manifest] = field(default_factory=lambda: [node("gpu1"), node("gpu2")])
    daemon_sets: list[Manifest] = field(default_factory=lambda: [exporter_daemon_set(), plugin_daemon_set()])
    pods: dict[str, Manifest] = field(
        default_factory=lambda: {
            manifest["metadata"]["name"]: manifest
            for manifest in (
                pod("dcgm-exporter-gpu1", "monitoring", "gpu1", EXPORTER, "10.0.0.1"),
                pod("dcgm-exporter-gpu2", "monitoring", "gpu2", EXPORTER, "10.0.0.2"),
                pod("plugin-gpu1", "nvidia-device-plugin", "gpu1", PLUGIN),
                pod("plugin-gpu2", "nvidia-device-plugin", "gpu2", PLUGIN),
                pod("prometheus-0", "monitoring", "cpu1", PROMETHEUS),
                pod("operator-0", "monitoring", "cpu1", OPERATOR),
                pod("prometheus-adapter-0", "monitoring", "cpu1", ADAPTER),
                pod("chat-0", "ml", "gpu1", {"app": "chat"}),
                pod("chat-1", "ml", "gpu2", {"app": "chat"}),
            )
        }
    )
    namespaces: list[Manifest] = field(
        default_factory=lambda: [{"metadata": meta(name)} for name in ("monitoring", "ml", "nvidia-device-plugin")]
    )
    services: list[Manifest] = field(
        default_factory=lambda: [
            service("dcgm-exporter", "monitoring", EXPORTER, 9400, "metrics"),
            service("kube-prometheus-stack-prometheus", "monitoring", PROMETHEUS, 9090, "http-web"),
            service("operator", "monitoring", OPERATOR, 443, "https"),
            service("prometheus-adapter", "monitoring", ADAPTER, 443, "https"),
        ]
    )
    service_monitors: list[Manifest] = field(
        default_factory=lambda: [monitor("dcgm-exporter", "monitoring", EXPORTER, **RELEASE)]
    )
    pod_monitors: list[Manifest] = field(default_factory=list)
    prometheuses: list[Manifest] = field(
        default_factory=lambda: [
            {
                "metadata": meta("k8s", "monitoring"),
                "spec": {
                    "serviceMonitorSelector": {"matchLabels": RELEASE},
                    "serviceMonitorNamespaceSelector": {},
                    "podMonitorSelector": {"matchLabels": RELEASE},
                    "podMonitorNamespaceSelector": {},
                    "ruleSelector": {"matchLabels": RELEASE},
                    "ruleNamespaceSelector": {},
                    "replicas": 1,
                    "storage": {"volumeClaimTemplate": {"spec": {}}},
                },
            }
        ]
    )
    rule_objects: list[Manifest] = field(
        default_factory=lambda: [
            {
                "metadata": meta("kubegpu-gpu", "monitoring", **RELEASE),
                "spec": {
                    "groups": [
                        {
                            "name": "gpu",
                            "rules": [{"record": name, "expr": promql} for name, promql in (*READINGS, SMOOTHING)],
                        }
                    ]
                },
            }
        ]
    )
    webhooks: list[Manifest] = field(default_factory=lambda: [webhook()])
    events: list[Manifest] = field(default_factory=list)
    scaled_objects: list[Manifest] = field(default_factory=list)
    other_hpas: list[Manifest] = field(default_factory=list)
    hpa: Manifest = field(default_factory=hpa)
    target: Manifest | None = field(default_factory=deployment)
    adapter: Manifest = field(
        default_factory=lambda: {
            "metadata": meta("prometheus-adapter", "monitoring"),
            "spec": {
                "template": {
                    "spec": {
                        "containers": [
                            {
                                "name": "prometheus-adapter",
                                "args": [
                                    "--prometheus-url=http://kube-prometheus-stack-prometheus.monitoring.svc:9090",
                                    "--metrics-relist-interval=30s",
                                    "--metrics-max-age=120s",
                                    "--config=/etc/adapter/config.yaml",
                                ],
                                "volumeMounts": [{"name": "config", "mountPath": "/etc/adapter/"}],
                            }
                        ],
                        "volumes": [{"name": "config", "configMap": {"name": "prometheus-adapter"}}],
                    }
                }
            },
        }
    )
    rule: Manifest = field(
        default_factory=lambda: {
            "name": SERIES,
            "query": SMOOTHING[1],
            "health": "ok",
            "interval": 1.0,
            "lastEvaluation": at(1),
            "evaluationTime": 0.01,
        }
    )
    prometheus: Manifest = field(
        default_factory=lambda: {
            "rows": rows({"ml/chat-0": "10.0.0.1:9400", "ml/chat-1": "10.0.0.2:9400"}),
            "serving": [Row({"instance": f"10.0.0.{n}:9400"}) for n in (1, 2)],
            "up": [Row({"job": "dcgm-exporter", "instance": f"10.0.0.{n}:9400"}) for n in (1, 2)],
        }
    )
    api: Manifest = field(
        default_factory=lambda: {
            "service": {"metadata": meta(f"v1beta1.{CUSTOM}"), "status": {"conditions": [turned("Available")]}},
            "owner": "prometheus-adapter",
            "is_prometheus_adapter": True,
            "listed": frozenset({"pods/gpu"}),
            "config": AdapterConfig({"metadata": meta("prometheus-adapter", "monitoring")}, rules=ADAPTER_RULES),
        }
    )
    other_apis: list[ApiState] = field(default_factory=list)
    metric: MetricState = field(default_factory=metric)
    budget: Manifest = field(default_factory=lambda: dict(BUDGET))
    resource_slices: list[Manifest] = field(default_factory=list)
    claim_templates: list[Manifest] = field(default_factory=list)
    device_classes: list[Manifest] | None = None
    quotas: list[Manifest] = field(default_factory=list)
    rejected: list[Manifest] = field(default_factory=list)
    demand: DemandState | None = None
    rejections: dict[str, Rejections] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)
    answer_times: dict[str, float] = field(default_factory=dict)
    managed: bool = True
    replicas: int = 2
    facts: Manifest = field(default_factory=lambda: {"gpu1": {"gpus": [{}], "driver_problem": ""}})
    servers: list[ExaminedServer] = field(default_factory=list)
    no_cluster: NoCluster | None = None
    cuda_errors: Manifest = field(default_factory=dict)
    unrequested: Manifest = field(default_factory=dict)
    other_pods: list[Manifest] = field(default_factory=list)
    unavailable: Manifest = field(default_factory=dict)
    denied: Manifest = field(default_factory=dict)
    controller_events: list[Manifest] = field(default_factory=list)
    leases: Manifest = field(default_factory=dict)

    def container(self, index: int = 0) -> Manifest:
        return self.daemon_sets[index]["spec"]["template"]["spec"]["containers"][0]

    def exporter_env(self, **changes: str | None) -> None:
        kept = [variable for variable in self.container()["env"] if variable["name"] not in changes]
        self.container()["env"] = kept + [{"name": k, "value": v} for k, v in changes.items() if v is not None]

    def state(self) -> State:
        labels = {"app.kubernetes.io/managed-by": "kubegpu.autoscale"} if self.managed else {}
        hpa = {**self.hpa, "metadata": {**self.hpa["metadata"], "labels": labels}}
        chat = [manifest for manifest in self.pods.values() if manifest["metadata"]["namespace"] == "ml"]
        state = {"health": "ok", "interval": 1.0, "lastEvaluation": at(1), "evaluationTime": 0.01}
        readings = {name: [{"name": name, "query": query, **state}] for name, query in READINGS}
        rules = {self.rule["name"]: [self.rule], **readings} if self.rule else {}
        monitoring = [manifest for manifest in self.pods.values() if manifest["metadata"]["namespace"] == "monitoring"]
        return State(
            NOW,
            server_version="v1.36.3",
            nodes=self.nodes,
            daemon_sets=self.daemon_sets,
            component_pods=list(self.pods.values()),
            namespaces=self.namespaces,
            services=self.services,
            service_monitors=self.service_monitors,
            pod_monitors=self.pod_monitors,
            prometheuses=self.prometheuses,
            rule_objects=self.rule_objects,
            webhooks=self.webhooks,
            events=self.events,
            resource_slices=self.resource_slices,
            claim_templates=self.claim_templates,
            device_classes=self.device_classes,
            quotas=self.quotas,
            scaled_objects=self.scaled_objects,
            hpas=[hpa, *self.other_hpas],
            prometheus=PrometheusState(
                "monitoring/kube-prometheus-stack-prometheus:9090",
                **{
                    "rules": rules,
                    "pods": [
                        manifest for manifest in monitoring if manifest["metadata"]["name"].startswith("prometheus-0")
                    ],
                    **self.prometheus,
                },
            ),
            apis=[
                ApiState(
                    CUSTOM,
                    adapter=self.adapter,
                    pods=[manifest for manifest in monitoring if "adapter" in manifest["metadata"]["name"]],
                    **self.api,
                ),
                *self.other_apis,
            ],
            autoscalers=[
                AutoscalerState(
                    hpa,
                    self.target,
                    pods=chat,
                    metrics=[self.metric],
                    budget=self.budget,
                    replicas=self.replicas,
                    rejected_pods=self.rejected,
                    demand=self.demand,
                    rejections=self.rejections,
                    waiting=self.waiting,
                    answer_times=self.answer_times,
                )
            ],
            facts=self.facts,
            servers=self.servers,
            no_cluster=self.no_cluster,
            cuda_errors=self.cuda_errors,
            unrequested=self.unrequested,
            pods=[*self.pods.values(), *self.other_pods],
            unavailable=self.unavailable,
            denied=self.denied,
            controller_events=self.controller_events,
            leases=self.leases,
            user="looker",
        )

    def report(self, **options: Any) -> Manifest:
        return health_report(self.state(), **options)

    def silence(self, *pods: str, **changes: Any) -> None:
        """What follows when Prometheus has no value of these pods: neither has the metrics API, nor the HPA."""
        left = [name for name in ("chat-0", "chat-1") if name not in pods]
        self.metric = metric(values=dict.fromkeys(left, 40.0), recorded=dict.fromkeys(left, (40.0,)), **changes)
        if not left:
            condition = turned("ScalingActive", "False", reason="FailedGetPodsMetric", message="no metrics returned")
            self.hpa["status"]["conditions"][1] = condition


def ids(found: Manifest) -> list[str]:
    return [finding["id"] for finding in found["findings"]]
