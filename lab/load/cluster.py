"""The cluster of the demo. Everything goes through the API server, so any kubeconfig works."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.utils.quantity import parse_quantity

from lab.load.scenario import Autoscaler, Sample
from plugins.module_utils.autoscaling.manifests import as_decided

PROMETHEUS = "monitoring/kube-prometheus-stack-prometheus:9090"  # where site.yml installs it
RATE_WINDOW_S = 2.0


class LabCluster:
    """The sample service's cluster.

    hpa:        name of the autoscaler; the load generator is the service `<its Deployment>-load` beside it.
    prometheus: namespace/service:port.
    """

    def __init__(self, kubeconfig: Path, namespace: str, hpa: str, prometheus: str = PROMETHEUS) -> None:
        self._api = config.new_client_from_config(str(kubeconfig))
        self._namespace = namespace
        home, _, service = prometheus.partition("/")
        self._prometheus = f"/api/v1/namespaces/{home}/services/{service}/proxy/api/v1/query"
        self.autoscaler = self._read_autoscaler(hpa)
        self._load = f"/api/v1/namespaces/{namespace}/services/{self.autoscaler.deployment}-load:80/proxy"
        self._counted: deque[tuple[float, dict[str, float]]] = deque()

    def demand(self, gpus: float) -> None:
        """Set the load of the load generator."""
        self._request("PUT", f"{self._load}/load", gpus=f"{gpus:g}")

    def counters(self) -> dict[str, float]:
        """Requests since the load generator's start: served, rejected, failed."""
        return self._request("GET", f"{self._load}/stats")

    def has_learned(self) -> bool:
        learned = f'namespace_workload:{self.autoscaler.metric}_demand:learned{{namespace="{self._namespace}"}}'
        return bool(self._request("GET", self._prometheus, query=learned)["data"]["result"])

    def observe(self, at_s: float, step: str) -> Sample:
        deployment = self._get("apps/v1", "deployments", self.autoscaler.deployment)
        counters = self.counters()
        self._counted.append((at_s, counters))
        while len(self._counted) > 2 and self._counted[1][0] <= at_s - RATE_WINDOW_S:
            self._counted.popleft()
        before_s, before = self._counted[0]
        rates = {
            name: max(counters[name] - before[name], 0) / (at_s - before_s) if at_s > before_s else 0.0
            for name in ("served", "rejected", "failed")
        }
        return Sample(
            at_s=round(at_s, 2),
            step=step,
            asked_per_s=counters["requests_per_s"],
            served_per_s=round(rates["served"], 1),
            rejected_per_s=round(rates["rejected"], 1),
            failed_per_s=round(rates["failed"], 1),
            utilisation=self._utilisation(),
            ready=deployment["status"].get("readyReplicas", 0),
            desired=deployment["spec"]["replicas"],
        )

    def now(self) -> float:
        """Prometheus' Unix time, which its samples have."""
        return float(self._request("GET", self._prometheus, query="time()")["data"]["result"][1])

    def times(self, series: str, since_s: float) -> list[float]:
        """Times of samples of the target's pods in the last `since_s` seconds, as Unix times.

        series: name of an exporter's or a recorded series.
        """
        pods = f'namespace="{self._namespace}", pod=~"{self.autoscaler.deployment}-.+"'
        found = self._request("GET", self._prometheus, query=f"{series}{{{pods}}}[{since_s:.0f}s]")["data"]["result"]
        return sorted({float(at_s) for pod_series in found for at_s, _value in pod_series["values"]})

    def _utilisation(self) -> dict[str, float]:
        query = f'namespace_pod:{self.autoscaler.metric}:avg{{namespace="{self._namespace}"}}'
        series = self._request("GET", self._prometheus, query=query)["data"]["result"]
        return {
            pod_series["metric"]["pod"]: float(pod_series["value"][1])
            for pod_series in sorted(series, key=lambda s: s["metric"]["pod"])
        }

    def _read_autoscaler(self, name: str) -> Autoscaler:
        # KEDA's HPA reads two decisions, which are made of one metric.
        spec = as_decided(self._get("autoscaling/v2", "horizontalpodautoscalers", name))["spec"]
        pods = next(metric["pods"] for metric in spec["metrics"] if metric["type"] == "Pods")
        return Autoscaler(
            name=name,
            deployment=spec["scaleTargetRef"]["name"],
            metric=pods["metric"]["name"].removesuffix("_sustained"),  # beside a demand; the current value is shown
            target_percent=float(parse_quantity(pods["target"]["averageValue"])),
            min_replicas=spec.get("minReplicas", 1),
            max_replicas=spec["maxReplicas"],
            has_demand=any(metric["type"] == "Object" for metric in spec["metrics"]),
        )

    def _get(self, api_version: str, plural: str, name: str) -> dict[str, Any]:
        return self._request("GET", f"/apis/{api_version}/namespaces/{self._namespace}/{plural}/{name}")

    def _request(self, method: str, path: str, **query: str) -> Any:
        """The JSON at a path. The typed client's proxy calls drop the query."""
        parts = self._api.param_serialize(method, path, query_params=list(query.items()), auth_settings=["BearerToken"])
        response = self._api.call_api(*parts, _request_timeout=10)
        body = response.read()
        if response.status >= 300:
            raise client.ApiException(http_resp=response, body=body.decode(errors="replace"), data=None)
        return json.loads(body)
