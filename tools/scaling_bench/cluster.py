"""The benchmark's cluster: everything through the API server, so that any kubeconfig will do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from urllib3.exceptions import HTTPError

from scaling_bench.configurations import NAMESPACE

MANAGER = "kubegpu-bench"
PROMETHEUS = "/api/v1/namespaces/monitoring/services/kube-prometheus-stack-prometheus:9090/proxy/api/v1/query"
BALANCER = f"/api/v1/namespaces/{NAMESPACE}/services/balancer:8000/proxy"
HPAS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
AT_ONCE = 8


class NotReached(Exception):
    """A condition that was waited for did not come."""


class BenchCluster:
    def __init__(self, kubeconfig: Path) -> None:
        self._api = config.new_client_from_config(str(kubeconfig))
        self._dynamic = DynamicClient(self._api)
        self._held: dict[str, dict[str, Any]] = {}
        self._desired: dict[str, list[tuple[float, int]]] = {}
        self._lock = threading.Lock()

    # ---- objects

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Server-side, several at once."""

        def send(thing: Mapping[str, Any]) -> None:
            kind = self._dynamic.resources.get(api_version=thing["apiVersion"], kind=thing["kind"])
            metadata = thing["metadata"]
            self._dynamic.server_side_apply(
                kind,
                body=dict(thing),
                name=metadata["name"],
                namespace=metadata.get("namespace"),
                field_manager=MANAGER,
                force_conflicts=True,
            )

        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(send, objects))

    def read(self, api_version: str, kind: str, name: str, namespace: str) -> dict[str, Any]:
        resource = self._dynamic.resources.get(api_version=api_version, kind=kind)
        return resource.get(name=name, namespace=namespace).to_dict()

    # ---- workloads

    def rest(self, names: Sequence[str], pod: Mapping[str, Any]) -> None:
        """Nobody scales, and each workload has one new pod, made of `pod`, that is ready."""
        self.hold()
        for replicas in (0, 1):
            patch = {"spec": {"replicas": replicas, "template": {"spec": pod}}}
            self._each(names, partial(self._patch_deployment, patch=patch))
            wait_until(partial(self._all_have, names, replicas), f"{replicas} ready pods of each workload", 300)

    def hold(self) -> None:
        """Take the HPAs away until `release`. One that was made anew meanwhile counts, not the one before."""
        for hpa in self.request("GET", HPAS)["items"]:
            name = hpa["metadata"]["name"]
            meta = {key: hpa["metadata"].get(key) or {} for key in ("labels", "annotations")}
            kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
            self._held[name] = {**kind, "metadata": {**meta, "name": name}, "spec": hpa["spec"]}
            self.request("DELETE", f"{HPAS}/{name}")

    def release(self) -> None:
        """Let the HPAs scale again, without a memory of what was before."""
        bodies, self._held = list(self._held.values()), {}
        self._each(bodies, lambda body: self.request("POST", HPAS, body=body))

    def _patch_deployment(self, name: str, patch: Mapping[str, Any]) -> None:
        kind = "application/strategic-merge-patch+json"
        self.request("PATCH", f"{DEPLOYMENTS}/{name}", body=patch, content=kind)

    def _all_have(self, names: Sequence[str], count: int) -> bool:
        found = {deployment["metadata"]["name"]: deployment for deployment in self.request("GET", DEPLOYMENTS)["items"]}
        pods = [pod["metadata"]["labels"].get("app") for pod in self.request("GET", PODS)["items"]]
        return all(
            found[name]["status"].get("observedGeneration", 0) >= found[name]["metadata"]["generation"]
            and found[name]["status"].get("readyReplicas", 0) == count == pods.count(name)
            for name in names
        )

    def _each(self, things: Iterable[Any], act: Callable[[Any], object]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(act, things))

    def gpus(self) -> int:
        nodes = self.request("GET", "/api/v1/nodes")["items"]
        return sum(int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)) for node in nodes)

    # ---- what is seen

    def follow(self) -> None:
        """Note from now on, in a thread, when each Deployment was told another number of replicas."""
        threading.Thread(target=self._follow, daemon=True).start()

    def desired(self, name: str) -> list[tuple[float, int]]:
        """Unix times and replicas, all that was noted of a Deployment."""
        with self._lock:
            return list(self._desired.get(name, []))

    def _follow(self) -> None:
        while True:
            try:
                listing = client.AppsV1Api(self._api).list_namespaced_deployment
                for event in watch.Watch().stream(listing, NAMESPACE, timeout_seconds=600):
                    self._note(event["object"].metadata.name, event["object"].spec.replicas)
            except (ApiException, HTTPError):
                time.sleep(0.2)  # the API server; the next watch begins with what there is

    def _note(self, name: str, replicas: int) -> None:
        with self._lock:
            noted = self._desired.setdefault(name, [])
            if not noted or noted[-1][1] != replicas:
                noted.append((time.time(), replicas))

    def put_traces(self, traces: Mapping[str, list[list[float]]]) -> None:
        self.request("PUT", f"{BALANCER}/traces", body=traces)

    def put_requests(self, times: Sequence[float]) -> None:
        """Unix times of what all workloads get beside their traces."""
        self.request("PUT", f"{BALANCER}/requests", body=[round(at, 3) for at in times])

    def record(self) -> dict[str, dict[str, list[list[float]]]]:
        """What the balancer has noted since the traces."""
        return self.request("GET", f"{BALANCER}/record")

    def samples(self, selector: str, seconds: float) -> list[tuple[float, float]]:
        """Unix times and values that Prometheus has of the last seconds, of all series together, the earliest first."""
        found = self.request("GET", PROMETHEUS, query=f"{selector}[{seconds:.0f}s]")["data"]["result"]
        return sorted((float(at), float(value)) for series in found for at, value in series["values"])

    def value(self, query: str) -> float | None:
        """Of the first series; None without one."""
        found = self.request("GET", PROMETHEUS, query=query)["data"]["result"]
        return float(found[0]["value"][1]) if found else None

    def request(
        self, method: str, path: str, body: object = None, content: str = "application/json", **query: str
    ) -> Any:
        """The JSON that a path answers with. The typed client's proxy calls drop the query."""
        parts = self._api.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Content-Type": content} if body is not None else {},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = self._api.call_api(*parts, _request_timeout=30)
        text = response.read()
        if response.status >= 300:
            raise ApiException(http_resp=response, body=text.decode(errors="replace"), data=None)
        return json.loads(text)

    # ---- the HPA controller

    def sync_period_is(self, seconds: int) -> bool:
        """Whether the one that leads was started with this period, and works."""
        labels = "component=kube-controller-manager"
        pods = self.request("GET", "/api/v1/namespaces/kube-system/pods", labelSelector=labels)["items"]
        flag = f"--horizontal-pod-autoscaler-sync-period={seconds}s"
        if not pods or any(flag not in pod["spec"]["containers"][0]["command"] for pod in pods):
            return False
        statuses = [pod["status"].get("containerStatuses") for pod in pods]  # none while the kubelet takes it over
        if not all(statuses):
            return False
        states = [status["state"].get("running") for of_pod in statuses for status in of_pod]
        # One has fractions of a second and the other has not.
        acquired = self.request("GET", LEASE)["spec"]["acquireTime"][: len("2026-01-01T00:00:00")]
        return all(state and acquired >= state["startedAt"].removesuffix("Z") for state in states)


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Raises NotReached if it does not hold in time. A cluster that does not answer is asked again."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            if holds():
                return
        except (ApiException, HTTPError):
            pass
        time.sleep(0.5)
    fix = f"`kubectl -n {NAMESPACE} get pods,hpa`"
    raise NotReached(f"bench -> cluster: not within {timeout_s:.0f} s: {what}\n  fix:  {fix}")
