"""Two workloads under one load, which prometheus-adapter and KEDA scale, with their kubelets and GPUs.

Pods are objects only. What plays kubelets makes them ready and removes them, and their GPUs share the load.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from random import Random
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.keda_rules import Decisions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from control_plane import eventually
from keda import Rig
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from metric_chain import Exporter, have_namespace
from urllib3.exceptions import HTTPError

WAYS = BY_ADAPTER, BY_KEDA = "by-adapter", "by-keda"
ENDS_S = 3
READY_S = 120
UP, DOWN = (("Pods", 2), ("Percent", 50)), (("Pods", 1), ("Percent", 25))
# Of kube-controller-manager, so that pods follow the replicas of a Deployment, also through a rolling update.
CONTROLLERS = ("deployment-controller", "replicaset-controller", "garbage-collector-controller")


class Nodes:
    """Kubelets and GPUs of the workloads in `namespaces`.

    load:     of each workload, in percent of one GPU.
    starts_s: a pod takes from 0 to so many seconds to start, the first ones of all workloads the same time.
    silent:   no GPU has a value.
    """

    def __init__(
        self, kube: client.ApiClient, exporter: Exporter, namespaces: Sequence[str] = WAYS, *, starts_s: float = 20
    ) -> None:
        self.load, self.silent = 0.0, False
        random = Random(49)
        self._all_starts_s = [random.uniform(0, starts_s) for _ in range(500)]
        self._core, self._exporter, self._namespaces = client.CoreV1Api(kube), exporter, namespaces
        self._starts_s: dict[str, dict[str, float]] = {namespace: {} for namespace in namespaces}
        self._ready: dict[str, list[str]] = {namespace: [] for namespace in namespaces}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def ready(self) -> set[int]:
        """How many pods of a workload run."""
        return {len(names) for names in self._ready.values()}

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stopped.wait(0.25):
            for namespace in self._namespaces:
                with suppress(ApiException, HTTPError):  # without an API server pods go on
                    self._ready[namespace] = self._step(namespace)
            self._exporter.text = "" if self.silent else "".join(map(self._values, self._namespaces))

    def _values(self, namespace: str) -> str:
        ready = self._ready[namespace]
        percent = min(100.0, self.load / max(len(ready), 1))
        return "".join(
            f'DCGM_FI_DEV_GPU_UTIL{{UUID="GPU-{namespace}-{name}",namespace="{namespace}",pod="{name}",'
            f'container="main"}} {percent}\n'
            for name in ready
        )

    def _step(self, namespace: str) -> list[str]:
        """Start and end pods. Returns those that run."""
        now, running = datetime.now(UTC), []
        for pod in self._core.list_namespaced_pod(namespace, _request_timeout=5).items:
            name = pod.metadata.name
            if pod.metadata.deletion_timestamp:
                grace_s = pod.metadata.deletion_grace_period_seconds or 0
                if (pod.metadata.deletion_timestamp - now).total_seconds() <= grace_s - ENDS_S:
                    with suppress(ApiException):
                        self._core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)
                continue
            starts_s = self._starts_s[namespace]
            start_s = starts_s.setdefault(name, self._all_starts_s[len(starts_s) % len(self._all_starts_s)])
            if pod.status.phase == "Running":
                running.append(name)
            elif (now - pod.metadata.creation_timestamp).total_seconds() >= start_s:
                with suppress(ApiException):
                    self._start(name, namespace, now.isoformat())
        return running

    def _start(self, name: str, namespace: str, now: str) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        status = {"phase": "Running", "startTime": now, "conditions": [ready]}
        self._core.patch_namespaced_pod_status(name, namespace, {"status": status})


class Counts:
    """The replicas of a workload, each tenth of a second.

    seen: (seconds since the begin, replicas) of each change; the first is at the begin.
    """

    def __init__(self, kube: client.ApiClient, namespace: str) -> None:
        self.seen: list[tuple[float, int]] = []
        self._kube, self._namespace, self._stopped = kube, namespace, threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Counts:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def values(self) -> set[int]:
        return {count for _at_s, count in self.seen}

    def _follow(self) -> None:
        while not self._stopped.wait(0.1):
            with suppress(ApiException, HTTPError):
                count = replicas_of(self._kube, self._namespace)
                if not self.seen or count != self.seen[-1][1]:
                    self.seen.append((time.monotonic() - self._began, count))


def followed(namespace: str, backend: str, **changes: Any) -> Autoscaler:
    """As by default, but in a run of minutes: windows and periods are shorter."""
    autoscaler = Autoscaler.from_params(
        {
            "namespace": namespace,
            "target": {"name": "chat"},
            "max_replicas": 12,
            "scale_up": {"policies": [{"type": kind, "value": value, "period_seconds": 15} for kind, value in UP]},
            "scale_down": {
                "stabilization_window_seconds": 20,
                "policies": [{"type": kind, "value": value, "period_seconds": 10} for kind, value in DOWN],
            },
            **changes,
        }
    )
    return replace(autoscaler, backend=backend)


def deploy(kube: client.ApiClient, namespace: str, name: str = "chat", replicas: int = 2) -> None:
    have_namespace(client.CoreV1Api(kube), namespace)
    container = {
        "name": "main",
        "image": "service:1",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "readinessProbe": {"httpGet": {"port": 8080}},
    }
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "nodeName": "gpu1"}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    client.AppsV1Api(kube).create_namespaced_deployment(namespace, {"metadata": {"name": name}, "spec": spec})


def scale_by(rig: Rig, *autoscalers: Autoscaler) -> None:
    """Create rules and scalers under a load that keeps the count, and wait until all of them scale."""
    made = rig.made_for(*autoscalers)
    for rule in (one for one in made if one["kind"] == "PrometheusRule"):
        rig.create(rule)
    for autoscaler in autoscalers:
        if autoscaler.backend == "keda":
            steady = f'{Decisions("gpu").unchanged}{{namespace="{autoscaler.namespace}"}} == 1'
            eventually(lambda steady=steady: '"value"' in rig.chain.answer(steady), "the load is steady", READY_S)
    for scaler in (one for one in made if one["kind"] != "PrometheusRule"):
        rig.create(scaler)
    eventually(lambda: all(is_active(rig.kube, one) for one in autoscalers), "all HPAs have a value", READY_S)


def is_active(kube: client.ApiClient, autoscaler: Autoscaler) -> bool:
    return condition(kube, autoscaler.namespace, "ScalingActive")[0] == "True"


def condition(kube: client.ApiClient, namespace: str, kind: str) -> tuple[str, str]:
    """Status and reason of a condition of the HPA in the namespace; empty while there is none."""
    hpas = client.AutoscalingV2Api(kube).list_namespaced_horizontal_pod_autoscaler(namespace).items
    rows = [row for hpa in hpas for row in (hpa.status.conditions if hpa.status else None) or ()]
    return next(((row.status, row.reason) for row in rows if row.type == kind), ("", ""))


def replicas_of(kube: client.ApiClient, namespace: str, name: str = "chat") -> int:
    apps = client.AppsV1Api(kube)
    return apps.read_namespaced_deployment(name, namespace, _request_timeout=5).spec.replicas


def renew(kube: client.ApiClient) -> None:
    """A rolling update of both workloads."""
    stamp = {"metadata": {"annotations": {"renewed": str(time.time())}}}
    for namespace in WAYS:
        client.AppsV1Api(kube).patch_namespaced_deployment("chat", namespace, {"spec": {"template": stamp}})


def limit_pods(kube: client.ApiClient, pods: int) -> None:
    """A quota of both namespaces; it counts what exists, if the controllers include resourcequota-controller."""
    core, body = client.CoreV1Api(kube), {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": str(pods)}}}
    for namespace in WAYS:
        core.create_namespaced_resource_quota(namespace, body)


def unlimit_pods(kube: client.ApiClient) -> None:
    for namespace in WAYS:
        client.CoreV1Api(kube).delete_namespaced_resource_quota("pods", namespace)


def turns(counts: Sequence[int]) -> int:
    """Changes of direction."""
    ways = [after > before for before, after in pairwise(counts) if after != before]
    return sum(one != other for one, other in pairwise(ways))
