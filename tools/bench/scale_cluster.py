"""A cluster of many GPU nodes on one machine: all that decides is real, and set as our roles set it; kwok plays nodes.

Real: etcd, API server, scheduler, the controllers of Deployments, DaemonSets, nodes and HPAs, Prometheus, the adapter
and kube-state-metrics. kwok keeps nodes and pods Ready; fleet_exporter.py answers for the exporter of each node. A
second Prometheus watches the others and takes no part.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from bench_cluster import NAMESPACES, Cluster, autoscalers, count_requests, namespace_of
from collection import ROOT
from control_plane import ControlPlane, eventually, free_port
from doctor_cluster import (
    EXPORTER,
    OTHERS,
    PLUGIN,
    PLUGINS,
    SYSTEM,
    VOLUMES,
    Size,
    address_of,
    node_labels,
    node_status,
)
from kubernetes import client
from metric_chain import MONITORING, MetricChain
from programs import program
from prometheus_rules import serve_kind
from workloads import Workloads

WRITERS = 8
TRAINING_GPUS = 4  # of each node; the others are the autoscalers'
GPU_NODES = {"nvidia.com/gpu.present": "true"}
RULE_GROUP = "kubegpu-gpu"
EXPORTERS = "app.kubernetes.io/name=dcgm-exporter"
LIST = 500  # objects a page
OBSERVED_S = 10
READY_S = 600

CONTROLLERS = ("deployment-controller", "replicaset-controller", "daemonset-controller", "node-lifecycle-controller")
# Each component as kubeadm knows it, so that the API server treats and counts it as in a cluster.
MANAGER, SCHEDULER, ADAPTER, KWOK, STATE, BENCH = USERS = (
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "adapter",
    "kwok",
    "kube-state-metrics",
    "bench",
)
HPA_CONTROLLER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [{"level": "Metadata", "omitStages": ["RequestReceived", "ResponseStarted"]}],
}
ROLES = ROOT / "roles"


@dataclass(frozen=True)
class Settings:
    """What our roles set by the size of the fleet; seconds and numbers."""

    scrape_s: int = 2
    evaluate_s: int = 2
    period_s: int = 5
    workers: int = 5
    manager_qps: int = 200
    adapter_qps: int = 200
    relist_s: int = 30


class ScalePlane(ControlPlane):
    """Flags that come later win: what tests set otherwise than the roles is set back."""

    def __init__(self, work: Path, settings: Settings) -> None:
        super().__init__(work, *CONTROLLERS)
        self._settings = settings
        self.audit_log = work / "audit.log"
        self.ports: dict[str, int] = {}
        (work / "kube-scheduler").symlink_to(program("kube"))

    def processor_s(self) -> dict[str, float]:
        """Seconds of a processor that each component has taken until now."""
        ticks = os.sysconf("SC_CLK_TCK")
        found = {}
        for name, process in self._processes.items():
            times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            found[name] = (int(times[11]) + int(times[12])) / ticks
        return found

    def run(self, name: str, *command: object) -> None:
        if name == "kube-apiserver":
            (self.work / "audit.yml").write_text(json.dumps(AUDIT_POLICY))
            with (self.work / "tokens.csv").open("a") as tokens:
                for number, user in enumerate(USERS, 10):
                    group = "system:masters" if user in (KWOK, BENCH) else "system:authenticated"
                    tokens.write(f"{user},{user},{number},{group}\n")
            command += (
                "--audit-policy-file=audit.yml", f"--audit-log-path={self.audit_log}", "--audit-log-maxsize=10000",
            )  # fmt: skip
        if name == "kube-controller-manager":
            settings = self._settings
            command += (
                f"--kubeconfig={self.kubeconfig_of(MANAGER)}", "--use-service-account-credentials=true",
                f"--horizontal-pod-autoscaler-sync-period={settings.period_s}s", "--vmodule=horizontal=0",
                f"--concurrent-horizontal-pod-autoscaler-syncs={settings.workers}",
                f"--kube-api-qps={settings.manager_qps}", f"--kube-api-burst={settings.manager_qps * 3 // 2}",
                "--service-account-private-key-file=sa.key", "--root-ca-file=certs/apiserver.crt",
                "--authentication-kubeconfig=kubeconfig", "--authorization-kubeconfig=kubeconfig",
            )  # fmt: skip
        if name == "prometheus-adapter":
            command += (f"--lister-kubeconfig={self.kubeconfig_of(ADAPTER)}",)
        for word in map(str, command):
            if word.startswith("--secure-port="):
                self.ports[name] = int(word.partition("=")[2])
        # Memory as in a cluster: tests have the garbage of Go's programs collected late.
        super().run(name, "env", "-u", "GOGC", *command)


class ScaleChain(MetricChain):
    """The exporters' targets are those of the ServiceMonitor that our chart makes, and its relabeling."""

    def __init__(self, plane: ScalePlane, kube: client.ApiClient, settings: Settings, exporters: int) -> None:
        super().__init__(plane, kube, interval_s=30)
        self._settings = settings
        self._exporters = exporters
        self._targets = plane.work / "exporters.json"
        self._targets.write_text("[]")
        self.state, self.state_itself = free_port(), free_port()
        groups = [
            group
            for file in sorted((ROLES / "gpu_alerts" / "files").glob("*.yml"))
            for group in yaml.safe_load(file.read_text())["groups"]
        ]
        (plane.work / "alerts.yml").write_text(json.dumps({"groups": groups}))

    def scrape_configs(self) -> list[dict[str, Any]]:
        interval = f"{self._settings.scrape_s}s"
        return [
            {
                "job_name": "serviceMonitor/monitoring/dcgm-exporter/0",
                "honor_labels": True,
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "file_sd_configs": [{"files": [str(self._targets)], "refresh_interval": "5s"}],
                "metric_relabel_configs": list(relabelings()),
            },
            {
                "job_name": "kube-state-metrics",
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{self.state}"]}],
            },
        ]

    def adapter_flags(self) -> Sequence[str]:
        relist, qps = self._settings.relist_s, self._settings.adapter_qps
        return (
            f"--metrics-relist-interval={relist}s", f"--metrics-max-age={max(relist * 4, 120)}s",
            f"--client-qps={qps}", f"--client-burst={qps * 3 // 2}",
        )  # fmt: skip

    def scrape(self, exporters: Mapping[str, str]) -> None:
        """exporters: the exporter's pod by node."""
        targets = [
            {
                "targets": [f"127.0.0.1:{self._exporters}"],
                "labels": {
                    "__metrics_path__": f"/{node}/metrics", "instance": f"{address_of(int(node[-4:]))}:9400",
                    "job": "dcgm-exporter", "namespace": MONITORING, "pod": pod, "service": "dcgm-exporter",
                    "container": "exporter", "endpoint": "metrics",
                },
            }
            for node, pod in exporters.items()
        ]  # fmt: skip
        fresh = self._targets.with_suffix(".new")
        fresh.write_text(json.dumps(targets))
        fresh.rename(self._targets)

    def addresses(self) -> dict[str, int]:
        """The ports of what there is to observe."""
        return {"prometheus": self.port, "adapter": self._adapter}


def relabelings() -> Iterator[dict[str, Any]]:
    """What our role has the exporter's ServiceMonitor do to each sample."""
    values = yaml.safe_load((ROLES / "dcgm_exporter" / "vars" / "main.yml").read_text())["__dcgm_exporter_values"]
    names = {"dcgm_exporter_namespace": MONITORING, "__dcgm_exporter_name": "dcgm-exporter"}
    for rule in values["serviceMonitor"]["metricRelabelings"]:
        regex = rule["regex"]
        for name, value in names.items():
            regex = regex.replace(f"{{{{ {name} }}}}", value)
        yield {
            "source_labels": rule["sourceLabels"],
            "regex": regex,
            "target_label": rule["targetLabel"],
            "replacement": rule["replacement"],
        }


class Observer:
    """A Prometheus that scrapes the parts of the cluster. Only what the bench reads is kept."""

    KEPT = "|".join(
        (
            "process_resident_memory_bytes",
            "prometheus_rule_group_(last_duration_seconds|iterations_missed_total)",
            "prometheus_tsdb_head_(series|samples_appended_total)",
            "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds_(sum|count)",
            "workqueue_depth",
            "apiserver_request_total",
        )
    )

    def __init__(self, plane: ScalePlane, ports: Mapping[str, tuple[str, int]]) -> None:
        """ports: scheme and port by name."""
        self._port = free_port()
        scrapes = [
            {
                "job_name": name,
                "scheme": scheme,
                "tls_config": {"insecure_skip_verify": True},
                "authorization": {"credentials": "admin"},
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
                "metric_relabel_configs": [{"source_labels": ["__name__"], "regex": self.KEPT, "action": "keep"}],
            }
            for name, (scheme, port) in ports.items()
        ]
        file = plane.work / "observer.yml"
        file.write_text(yaml.safe_dump({"global": {"scrape_interval": f"{OBSERVED_S}s"}, "scrape_configs": scrapes}))
        plane.run(
            "observer", program("prometheus"), f"--config.file={file}", "--storage.tsdb.path=observed",
            f"--web.listen-address=127.0.0.1:{self._port}",
        )  # fmt: skip

    def values(self, promql: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series."""
        query = urllib.parse.urlencode({"query": promql})
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/query?{query}") as answer:
            result = json.load(answer)["data"]["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def value(self, promql: str) -> float | None:
        found = self.values(promql)
        return found[0][1] if found else None


@dataclass(frozen=True)
class ScaleCluster(Cluster):
    settings: Settings
    observer: Observer
    audit_log: Path

    def requests(self, begin: datetime, end: datetime) -> dict[str, int]:
        """Those of the modules that the bench runs."""
        events = (event for event in self.events() if event["user"]["username"] == BENCH)
        return dict(count_requests(events, begin, end).most_common())

    def processor_s(self) -> dict[str, float]:
        """As the plane's; and `all`, of the machine, whoever took it."""
        ticks = os.sysconf("SC_CLK_TCK")
        times = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
        idle = times[3] + times[4]  # and while it waits for a disk
        return self._plane.processor_s() | {"all": (sum(times) - idle) / ticks}

    def rule_processor_s(self, otherwise: float, rounds: int) -> float:
        """Of Prometheus for one evaluation of the rule. otherwise: processors that it keeps busy anyway."""
        groups = json.loads((self._plane.work / "rules.yml").read_text())["groups"]
        queries = [rule["expr"] for group in groups if group["name"] == RULE_GROUP for rule in group["rules"]]
        began, before = time.monotonic(), self._plane.processor_s()["prometheus"]
        for _ in range(rounds):
            for query in queries:
                self.chain.answer(query)
        used = self._plane.processor_s()["prometheus"] - before
        return (used - otherwise * (time.monotonic() - began)) / rounds

    def events(self, offset: int = 0) -> Iterator[dict[str, Any]]:
        """offset: of the log, where to begin."""
        with self.audit_log.open() as log:
            log.seek(offset)
            for line in log:
                if line.endswith("\n"):  # the last one may be half written
                    yield json.loads(line)

    def grow(
        self,
        size: Size,
        others: int,
        autoscale: Callable[[list[dict[str, Any]]], None],
        said: Callable[[str], None],
    ) -> None:
        """Nodes with what runs on each, workloads and their autoscalers, until each autoscaler has a value.

        others: pods a node that have no GPU.
        """
        core, apps = client.CoreV1Api(self.kube), client.AppsV1Api(self.kube)
        there = len(core.list_node(label_selector="nvidia.com/gpu.present=true").items)
        said(f"{size}: nodes")
        with ThreadPoolExecutor(WRITERS) as writers:
            list(writers.map(lambda index: _node(core, index), range(there, size.nodes)))
        for name, replicas in (("training", size.nodes), ("others", others * size.nodes)):
            apps.patch_namespaced_replica_set_scale(name, SYSTEM, {"spec": {"replicas": replicas}})
        self.deploy(size.autoscalers)
        settled = size.nodes * (2 + len(OTHERS) + 1 + others) + size.autoscalers
        said(f"{size}: pods")
        eventually(lambda: _running(self._plane) >= settled, "pods run", READY_S)
        exporters = {
            pod["spec"]["nodeName"]: pod["metadata"]["name"]
            for pod in _pods(self._plane, f"/api/v1/namespaces/{MONITORING}/pods", EXPORTERS)
        }
        self.chain.scrape(exporters)
        said(f"{size}: autoscalers")
        autoscale(autoscalers(size.autoscalers, max_replicas=8))
        said(f"{size}: values")
        eventually(lambda: self._active() == size.autoscalers, "each HPA has a value", READY_S)

    def _active(self) -> int:
        hpas = client.AutoscalingV2Api(self.kube).list_horizontal_pod_autoscaler_for_all_namespaces().items
        return sum(
            any(condition.type == "ScalingActive" and condition.status == "True" for condition in hpa.status.conditions)
            for hpa in hpas
            if hpa.status and hpa.status.conditions
        )


def _node(core: client.CoreV1Api, index: int) -> None:
    name = f"gpu-{index:04d}"
    metadata = {"name": name, "labels": node_labels(name)}
    core.create_node({"metadata": metadata, "status": node_status(address_of(index))})


def _pods(plane: ControlPlane, path: str, selector: str = "") -> Iterator[dict[str, Any]]:
    """As JSON: the client's objects of thousands of pods take seconds."""
    token = ""
    while True:
        query = urllib.parse.urlencode({"limit": LIST, "labelSelector": selector, "continue": token})
        page = plane.get(f"{path}?{query}")
        yield from page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            return


def _running(plane: ControlPlane) -> int:
    return sum(pod.get("status", {}).get("phase") == "Running" for pod in _pods(plane, "/api/v1/pods"))


@contextmanager
def start_scale(settings: Settings) -> Iterator[ScaleCluster]:
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kubegpu-scale-")))
        plane = ScalePlane(work, settings)
        stack.callback(plane.stop)
        kube = plane.start()
        _rights(kube)
        exporters, scheduler = free_port(), free_port()
        chain = ScaleChain(plane, kube, settings, exporters)
        plane.run(
            "kube-scheduler", work / "kube-scheduler", f"--kubeconfig={plane.kubeconfig_of(SCHEDULER)}",
            "--leader-elect=false", f"--secure-port={scheduler}", "--cert-dir=certs",
            # How fast a bench is set up is not what it measures.
            "--kube-api-qps=500", "--kube-api-burst=500",
        )  # fmt: skip
        plane.run(
            "kwok", program("kwok"), f"--kubeconfig={plane.kubeconfig_of(KWOK)}",
            f"--config={Path(__file__).with_name('kwok.yml')}", "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40", "-v=WARN",
        )  # fmt: skip
        plane.run(
            "kube-state-metrics", program("kube-state-metrics"), f"--kubeconfig={plane.kubeconfig_of(STATE)}",
            f"--port={chain.state}", f"--telemetry-port={chain.state_itself}",
        )  # fmt: skip
        plane.run(
            "fleet-exporter", sys.executable, Path(__file__).with_name("fleet_exporter.py"),
            plane.kubeconfig_of(BENCH), exporters,
        )  # fmt: skip
        chain.start()
        stack.callback(chain.stop)
        serve_kind(kube)
        _daemons(kube)
        ports = chain.addresses()
        observer = Observer(
            plane,
            {
                "prometheus": ("http", ports["prometheus"]),
                "adapter": ("https", ports["adapter"]),
                "apiserver": ("https", plane.ports["kube-apiserver"]),
                "controller-manager": ("https", plane.ports["kube-controller-manager"]),
            },
        )
        workloads = [Workloads(kube, namespace_of(index)) for index in range(NAMESPACES)]
        version = client.VersionApi(kube).get_code().git_version
        kubeconfig = plane.kubeconfig_of(BENCH)
        yield ScaleCluster(kubeconfig, version, kube, chain, plane, workloads, settings, observer, plane.audit_log)


def _rights(kube: client.ApiClient) -> None:
    """What the charts would grant, and more: the bench is not about rights."""
    rights = client.RbacAuthorizationV1Api(kube)
    for user in (ADAPTER, STATE):
        rights.create_cluster_role_binding(
            {
                "metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            }
        )


def _daemons(kube: client.ApiClient) -> None:
    """What runs on each GPU node, and one pod a node that holds half of its GPUs."""
    core, apps = client.CoreV1Api(kube), client.AppsV1Api(kube)
    core.create_namespace({"metadata": {"name": PLUGINS}})
    others = [(name, SYSTEM, {"name": name, "image": f"registry.k8s.io/{name}:v1"}) for name in OTHERS]
    for name, namespace, container in (
        ("dcgm-exporter", MONITORING, EXPORTER),
        (PLUGINS, PLUGINS, PLUGIN),
        *others,
    ):
        labels = {"app.kubernetes.io/name": name}
        pod = {"containers": [container], "nodeSelector": GPU_NODES, "volumes": VOLUMES}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        apps.create_namespaced_daemon_set(namespace, {"metadata": {"name": name}, "spec": spec})
    for name, resources in (("training", {"limits": {"nvidia.com/gpu": str(TRAINING_GPUS)}}), ("others", {})):
        labels = {"app": name}
        pod = {"containers": [{"name": "main", "image": name, "resources": resources}]}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        apps.create_namespaced_replica_set(SYSTEM, {"metadata": {"name": name}, "spec": spec})
