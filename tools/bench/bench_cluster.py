"""What the benchmark runs against: the API server of tests/integration, with Deployments and a log of requests."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from control_plane import ControlPlane, eventually
from kubernetes import client
from metric_chain import MetricChain
from prometheus_rules import serve_kind
from workloads import Workloads

NAMESPACES = 10
# Namespaces of others, in a cluster that is shared.
OTHER_NAMESPACES = 200
# More than any size asks for, so that no run has something to warn of.
GPUS = 1_000_000

# A user of its own, so that the log has what the modules ask and nothing else.
USER = "bench"
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        {"level": "Metadata", "users": [USER], "omitStages": ["RequestReceived", "ResponseStarted"]},
        {"level": "None"},
    ],
}


class BenchPlane(ControlPlane):
    """etcd and the API server alone: the HPA controller would share the processors with what is measured."""

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self.audit_log = work / "audit.log"

    def run(self, name: str, *command: object) -> None:
        if name == "kube-controller-manager":
            return
        if name == "kube-apiserver":
            (self.work / "audit.yml").write_text(json.dumps(AUDIT_POLICY))
            with (self.work / "tokens.csv").open("a") as tokens:
                tokens.write(f"{USER},{USER},2,system:masters\n")
            command += (
                "--audit-policy-file=audit.yml",
                f"--audit-log-path={self.audit_log}",
                "--audit-log-maxsize=10000",
            )
        super().run(name, *command)

    def bench_kubeconfig(self) -> Path:
        """As kubeconfig, for the user whose requests are logged."""
        text = self.kubeconfig.read_text()
        path = self.work / "bench-kubeconfig"
        path.write_text(text.replace('"token": "admin"', f'"token": "{USER}"'))
        return path


@dataclass(frozen=True)
class Cluster:
    kubeconfig: Path
    version: str
    kube: client.ApiClient
    chain: MetricChain
    _plane: BenchPlane
    _workloads: list[Workloads]

    def deploy(self, number: int) -> None:
        """Bring the Deployments to a number; they are never taken away."""
        there = len(client.AppsV1Api(self.kube).list_deployment_for_all_namespaces().items)
        for index in range(there, number):
            self._workloads[index % NAMESPACES].deployment(_name(index))

    def crowd(self, pods: int) -> None:
        """Pods of others, which no autoscaler is about; they are never taken away."""
        core = client.CoreV1Api(self.kube)
        names = [f"others-{index:03d}" for index in range(OTHER_NAMESPACES)]
        container = {"name": "main", "image": "service", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
        environment = [{"name": f"VARIABLE_{index}", "value": "value" * 8} for index in range(20)]

        def make(index: int) -> None:
            metadata = {"name": f"pod-{index:05d}", "labels": {"app": f"service-{index % 50}"}}
            spec = {"containers": [{**container, "env": environment}]}
            core.create_namespaced_pod(names[index % len(names)], {"metadata": metadata, "spec": spec})

        for name in names:
            core.create_namespace({"metadata": {"name": name}})
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(make, range(pods)))

    def remove_hpas(self) -> None:
        hpas = client.AutoscalingV2Api(self.kube)
        for workloads in self._workloads:
            hpas.delete_collection_namespaced_horizontal_pod_autoscaler(workloads.namespace)
        eventually(
            lambda: not hpas.list_horizontal_pod_autoscaler_for_all_namespaces(limit=1).items, "the HPAs are gone", 60
        )

    def requests(self, begin: datetime, end: datetime) -> dict[str, int]:
        """What was asked between two moments, by verb and kind, most often first."""
        with self._plane.audit_log.open() as log:
            return dict(count_requests(map(json.loads, log), begin, end).most_common())


@contextmanager
def start_cluster(*, interval_s: int = 1, prepare: Callable[[Path], None] | None = None) -> Iterator[Cluster]:
    """interval_s: of Prometheus. prepare: what has to be in its work folder before it starts."""
    with ExitStack() as stack:
        plane = BenchPlane(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kubegpu-bench-"))))
        stack.callback(plane.stop)
        kube = plane.start()
        chain = MetricChain(plane, kube, interval_s=interval_s)
        if prepare:
            prepare(plane.work)
        chain.start()
        stack.callback(chain.stop)
        serve_kind(kube)
        workloads = [Workloads(kube, namespace_of(index)) for index in range(NAMESPACES)]
        workloads[0].node("gpu", GPUS)
        version = client.VersionApi(kube).get_code().git_version
        yield Cluster(plane.bench_kubeconfig(), version, kube, chain, plane, workloads)


def autoscalers(number: int, max_replicas: int = 4) -> list[dict[str, Any]]:
    """Options for as many autoscalers, spread over the namespaces, each with the Deployment that deploy() makes."""
    return [
        {"namespace": namespace, "target": {"name": name}, "max_replicas": max_replicas}
        for namespace, name in places(number)
    ]


def places(number: int) -> list[tuple[str, str]]:
    """Namespace and name of the Deployments that deploy() makes."""
    return [(namespace_of(index), _name(index)) for index in range(number)]


def count_requests(events: Iterator[dict[str, Any]], begin: datetime, end: datetime) -> Counter[str]:
    """Audit events as `verb kind`; the second and later pages of a list are counted apart."""
    return Counter(
        _title(event) for event in events if begin <= datetime.fromisoformat(event["requestReceivedTimestamp"]) <= end
    )


def _title(event: dict[str, Any]) -> str:
    path, _, query = event["requestURI"].partition("?")
    of = event.get("objectRef")
    if not of:
        return f"{event['verb']} {path}"
    verb = "list, next page" if event["verb"] == "list" and "continue=" in query else event["verb"]
    return f"{verb} {'/'.join(filter(None, (of.get('resource'), of.get('subresource'))))}"


def namespace_of(index: int) -> str:
    return f"bench-{index % NAMESPACES}"


def _name(index: int) -> str:
    return f"service-{index:04d}"
