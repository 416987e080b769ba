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
GPUS = 2
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
    starts: number of the workload's pods that become ready; others stay pending.
    """

    def __init__(self, plane: ControlPlane, kube: client.ApiClient, chain: MetricChain) -> None:
        self.messages: dict[str, str] = {}
        self.cuda: list[str] = []
        self.preempts = self.is_always_busy = False
        self.starts = GPUS
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
            with suppress(ApiException, HTTPError):
                self._report_gpus()
                self._run_pods()
                self._run_deployments()

    def _report_gpus(self) -> None:
        """Of the first node: the n-th GPU is that of the n-th pod."""
        pods = {pod.metadata.name for pod in self._core.list_namespaced_pod(NAMESPACE).items}
        percents = [100.0 if self.is_always_busy else self._service.percent, 0.0]
        text = ""
        for number, percent in enumerate(percents):
            pod = f"proof-{number}"
            user = f',namespace="{NAMESPACE}",pod="{pod}",container="main"' if pod in pods or not number else ""
            labels = f'{{gpu="{number}",UUID="GPU-{number}",Hostname="gpu1"{user}}}'
            text += f"DCGM_FI_DEV_GPU_UTIL{labels} {percent}\nDCGM_FI_DEV_FB_USED{labels} 500\n"
        self._exporter.text = text

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
            name = deployment.metadata.name
            wanted = [f"{name}-{number}" for number in range(deployment.spec.replicas)]
            pods = {pod.metadata.name for pod in self._core.list_namespaced_pod(NAMESPACE).items}
            for number, pod in enumerate(wanted):
                if pod not in pods:
                    self._start_pod(pod, deployment.spec.template, is_ready=number < self.starts)
            for pod in pods - {*wanted}:
                if pod.startswith(f"{name}-"):
                    self._core.delete_namespaced_pod(pod, NAMESPACE)
            if deployment.status.replicas != len(wanted):
                status = {"status": {"replicas": len(wanted), "readyReplicas": min(len(wanted), self.starts)}}
                self._apps.patch_namespaced_deployment_status(name, NAMESPACE, status)

    def _start_pod(self, name: str, template: Any, *, is_ready: bool) -> None:
        pod = {"metadata": {"name": name, "labels": template.metadata.labels}, "spec": template.spec}
        self._core.create_namespaced_pod(NAMESPACE, client.ApiClient().sanitize_for_serialization(pod))
        if not is_ready:
            return
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
