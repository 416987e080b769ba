"""Kubelet, scheduler and Deployment controller of one namespace, as far as a proof needs them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from control_plane import ControlPlane, eventually
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from metric_chain import MetricChain
from urllib3.exceptions import HTTPError

NAMESPACE = "kubegpu-proof"
PORT = 8000
PORT_S = 60  # another session of tests may have it


def message(gpus: int = 2, error: dict[str, Any] | None = None, devices: tuple[str, ...] = ("nvidia-uvm",)) -> str:
    """What the CUDA program leaves in the status of its container."""
    rows = [] if error else [{"uuid": f"GPU-{number}", "error": None, "seconds": 0.1} for number in range(gpus)]
    return json.dumps({"devices": list(devices), "gpus": rows, "error": error, "seconds": 0.5})


def share(text: str, name: str, limits: dict[str, str]) -> str:
    """What one of a node's pods leaves: the second one has the last GPU, and an idle one sees none."""
    if "-idle" in name:
        return message(0, devices=())
    found, count = json.loads(text), int(limits.get("nvidia.com/gpu", 1))
    gpus = found["gpus"][1:][-1:] if name.endswith("-2") else found["gpus"][:count]
    return json.dumps({**found, "gpus": gpus})


class Service:
    """The workload's: /work takes a while, and its GPU is busy as long as requests come."""

    def __init__(self, address: str) -> None:
        service = self
        self.last_s, self.status = 0.0, 200

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.last_s = time.monotonic()
                time.sleep(0.1)
                self.send_response(service.status)
                self.end_headers()
                self.wfile.write(b"OK\n")

            def log_message(self, *_args: object) -> None:
                """Requests are not worth a line."""

        def bound() -> ThreadingHTTPServer | None:
            with suppress(OSError):
                return ThreadingHTTPServer((address, PORT), Handler)
            return None

        self._server = eventually(bound, f"port {PORT} is free", PORT_S)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def percent(self) -> float:
        return 100.0 if time.monotonic() - self.last_s < 1 else 0.0

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Kubelet:
    """messages: what the CUDA pod of a node leaves, by node.

    cuda: names of nodes whose CUDA pods have run.
    preempts: CUDA pods are deleted instead, as the scheduler does for a pod with a higher priority.
    is_always_busy: the GPU of the workload is busy also without requests.
    """

    def __init__(self, plane: ControlPlane, kube: client.ApiClient, chain: MetricChain) -> None:
        self.messages: dict[str, str] = {}
        self.cuda: list[str] = []
        self.preempts = self.is_always_busy = False
        self._core, self._apps = client.CoreV1Api(kube), client.AppsV1Api(kube)
        self._address, self._exporter = plane.address, chain.exporter
        self._service = Service(plane.address)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def refuse_requests(self) -> None:
        self._service.status = 503

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._service.stop()

    def _follow(self) -> None:
        while not self._ended.wait(0.1):
            self._exporter.gpus(NAMESPACE, {"proof-0": 100.0 if self.is_always_busy else self._service.percent})
            with suppress(ApiException, HTTPError):
                self._run_pods()
                self._run_deployments()

    def _run_pods(self) -> None:
        for pod in self._core.list_namespaced_pod(NAMESPACE).items:
            if pod.metadata.name.startswith("cuda-") and pod.status.phase == "Pending":
                self._run_cuda(pod)

    def _run_cuda(self, pod: Any) -> None:
        terms = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
        node = terms[0].match_fields[0].values[0]
        if self.preempts:
            self._core.delete_namespaced_pod(pod.metadata.name, NAMESPACE)
            return
        text = self.messages.get(node, "")
        if not text:
            return
        text = share(text, pod.metadata.name, pod.spec.containers[0].resources.limits)
        failed = bool(json.loads(text)["error"])
        ended = {"exitCode": int(failed), "message": text}
        status = {"name": "cuda-proof", "ready": False, "restartCount": 0, "image": "", "imageID": ""}
        container = {**status, "state": {"terminated": ended}}
        body = {"status": {"phase": "Failed" if failed else "Succeeded", "containerStatuses": [container]}}
        self._core.patch_namespaced_pod_status(pod.metadata.name, NAMESPACE, body)
        if pod.metadata.name.count("-") == 1:  # the first of the node's pods
            self.cuda.append(node)

    def _run_deployments(self) -> None:
        for deployment in self._apps.list_namespaced_deployment(NAMESPACE).items:
            pods = {pod.metadata.name for pod in self._core.list_namespaced_pod(NAMESPACE).items}
            name = f"{deployment.metadata.name}-0"
            if name not in pods:
                self._ready_pod(name, deployment.spec.template)
                status = {"status": {"replicas": 1, "readyReplicas": 1}}
                self._apps.patch_namespaced_deployment_status(deployment.metadata.name, NAMESPACE, status)

    def _ready_pod(self, name: str, template: Any) -> None:
        pod = {"metadata": {"name": name, "labels": template.metadata.labels}, "spec": template.spec}
        self._core.create_namespaced_pod(NAMESPACE, client.ApiClient().sanitize_for_serialization(pod))
        ready = {"type": "Ready", "status": "True"}
        ip = {"podIP": self._address, "podIPs": [{"ip": self._address}]}
        self._core.patch_namespaced_pod_status(
            name, NAMESPACE, {"status": {"phase": "Running", "conditions": [ready], **ip}}
        )


@contextmanager
def kubelet(plane: ControlPlane, kube: client.ApiClient, chain: MetricChain) -> Iterator[Kubelet]:
    found = Kubelet(plane, kube, chain)
    try:
        yield found
    finally:
        found.stop()


def gone(probe: Callable[[], Any]) -> bool:
    """Whether the API server knows no such object."""
    try:
        probe()
    except ApiException as err:
        return bool(err.status == 404)
    return False
