"""Job controller and kubelet of one namespace, as far as a load test needs them: it runs the generator as a process."""

from __future__ import annotations

import ssl
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from control_plane import ControlPlane
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from playbook import run_playbook

NODE = "generator"


class JobKubelet:
    """Each Job gets one pod, whose container is Locust with the Job's arguments and the files of its Secret."""

    def __init__(self, plane: ControlPlane, kube: client.ApiClient, namespace: str, folder: Path) -> None:
        self._core, self._batch = client.CoreV1Api(kube), client.BatchV1Api(kube)
        self._namespace, self._folder = namespace, folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.orphans: list[str] = []  # Secrets that nothing owned, as often as they were seen
        self._ended = threading.Event()
        self._server = self._serve_logs(plane)
        status = {
            "addresses": [{"type": "InternalIP", "address": plane.address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_port}},
        }
        self._core.create_node({"metadata": {"name": NODE}})
        self._core.patch_node_status(NODE, {"status": status})
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _serve_logs(self, plane: ControlPlane) -> ThreadingHTTPServer:
        """By the path under which the API server asks a kubelet."""
        folder = self._folder

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _, kind, _namespace, pod, _container = self.path.partition("?")[0].split("/")
                text = (folder / pod / "log").read_bytes() if kind == "containerLogs" else b""
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Looks at a log are not worth a line."""

        server = ThreadingHTTPServer((plane.address, 0), Handler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(plane.work / "proxy.crt", plane.work / "proxy.key")
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._server.shutdown()
        for process in self._running.values():
            process.kill()
        self._core.delete_node(NODE)

    def _follow(self) -> None:
        known: set[str] = set()
        while not self._ended.wait(0.2):
            secrets = {
                secret.metadata.name: secret for secret in self._core.list_namespaced_secret(self._namespace).items
            }
            self.orphans += [name for name, secret in secrets.items() if not secret.metadata.owner_references]
            for job in self._batch.list_namespaced_job(self._namespace).items:
                secret = secrets.get(job.spec.template.spec.volumes[0].secret.secret_name)
                if secret and job.metadata.uid not in known:  # until then a pod is in ContainerCreating
                    known.add(job.metadata.uid)
                    self._start(job, secret)
            for pod, process in list(self._running.items()):
                if process.poll() is not None:
                    del self._running[pod]
                    self._tell(pod, "Succeeded", {"terminated": {"exitCode": process.returncode}})

    def _start(self, job: Any, secret: Any) -> None:
        pod = f"{job.metadata.name}-{job.metadata.uid[:5]}"
        place = self._folder / pod
        place.mkdir()
        spec = job.spec.template.spec
        for name, data in secret.data.items():
            (place / name).write_bytes(b64decode(data))
        [container] = spec.containers
        labels = {"job-name": job.metadata.name, "batch.kubernetes.io/job-name": job.metadata.name}
        containers = [{"name": container.name, "image": container.image}]
        body = {"metadata": {"name": pod, "labels": labels}, "spec": {"nodeName": NODE, "containers": containers}}
        self._core.create_namespaced_pod(self._namespace, body)
        arguments = [argument.replace("/plan/", f"{place}/") for argument in container.args]
        with (place / "log").open("wb") as log:
            command = [sys.executable, "-m", "locust", *arguments]
            self._running[pod] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self._tell(pod, "Running", {"running": {}})

    def _tell(self, pod: str, phase: str, state: dict[str, Any]) -> None:
        statuses = [{"name": "load", "state": state, "ready": True, "image": "", "imageID": "", "restartCount": 0}]
        with suppress(ApiException):  # the role has removed it
            status = {"status": {"phase": phase, "containerStatuses": statuses}}
            self._core.patch_namespaced_pod_status(pod, self._namespace, status)


@contextmanager
def generators(plane: ControlPlane, kube: client.ApiClient, namespace: str, folder: Path) -> Iterator[JobKubelet]:
    folder.mkdir()
    kubelet = JobKubelet(plane, kube, namespace, folder)
    try:
        yield kubelet
    finally:
        kubelet.stop()


def loadtest(folder: Path, plane: ControlPlane, namespace: str, **options: Any) -> tuple[str, Path]:
    """What a load test of the autoscaler `chat` prints, and the folder of its report. options: gpu_loadtest_*."""
    given = {"namespace": namespace, "name": "chat", "report_dir": str(folder / "report"), **options}
    variables = {f"gpu_loadtest_{name}": value for name, value in given.items()}
    variables["kubegpu_kubeconfig"] = str(plane.kubeconfig)
    return run_playbook(folder, "kubegpu.autoscale.loadtest", variables).stdout, folder / "report"
