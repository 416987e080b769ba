"""Kubelet, Deployment controller and kube-proxy of one workload: each replica is a sample service as a process."""

from __future__ import annotations

import random
import re
import shutil
import socket
import threading
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from control_plane import ControlPlane, free_port
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from metric_chain import Exporter
from model_servers import sample_server

STARTED = "2026-01-01T00:00:00Z"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": STARTED}


class Fleet:
    """As many replicas of the Deployment `chat` as its spec wants. port: where they share the requests.

    Their GPUs are as busy as the services count.
    """

    def __init__(
        self, plane: ControlPlane, kube: client.ApiClient, exporter: Exporter, namespace: str, folder: Path
    ) -> None:
        self._core, self._apps, self._exporter = client.CoreV1Api(kube), client.AppsV1Api(kube), exporter
        self._address, self._namespace, self._folder = plane.address, namespace, folder
        self._running: dict[str, tuple[int, ExitStack]] = {}
        self._busy: dict[str, tuple[float, float, int]] = {}
        self._number = 0
        self._ended = threading.Event()
        self._server = socket.create_server((plane.address, 0), backlog=256)
        self.port = self._server.getsockname()[1]
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._accept, self._follow)]

    def __enter__(self) -> Fleet:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._threads[1].join()
        self._server.close()
        for name in list(self._running):
            self._stop(name)

    def ports(self) -> list[int]:
        """Of each replica."""
        return [port for port, _stack in list(self._running.values())]

    # ---- kube-proxy

    def _accept(self) -> None:
        with suppress(OSError):  # closed at the end
            while True:
                asking, _address = self._server.accept()
                threading.Thread(target=self._carry, args=(asking,), daemon=True).start()

    def _carry(self, asking: socket.socket) -> None:
        """One request of one connection, which the service answers and closes."""
        with asking, suppress(OSError), socket.create_connection(("127.0.0.1", random.choice(self.ports()))) as service:
            service.sendall(asking.recv(65536))
            while answer := service.recv(65536):
                asking.sendall(answer)

    # ---- Deployment controller and kubelet

    def _follow(self) -> None:
        while not self._ended.wait(0.3):
            with suppress(ApiException):
                wanted = self._apps.read_namespaced_deployment("chat", self._namespace).spec.replicas
                for name in list(self._running)[wanted:]:
                    self._stop(name)
                for _replica in range(wanted - len(self._running)):
                    self._start()
                count = len(self._running)
                status = {"status": {"replicas": count, "readyReplicas": count}}
                self._apps.patch_namespaced_deployment_status("chat", self._namespace, status)
            self._exporter.gpus(self._namespace, {name: self._percent(name) for name in self._running})

    def _start(self) -> None:
        self._number += 1
        name, port, stack = f"chat-{self._number}", free_port(), ExitStack()
        place = self._folder / name
        place.mkdir(parents=True)
        stack.callback(shutil.rmtree, place)
        stack.enter_context(sample_server(place, port))
        container = {"name": "main", "image": "service", "ports": [{"containerPort": port}]}
        pod = {"metadata": {"name": name, "labels": {"app": "chat"}}, "spec": {"containers": [container]}}
        self._core.create_namespaced_pod(self._namespace, pod)
        address = {"podIP": self._address, "podIPs": [{"ip": self._address}]}
        status: dict[str, Any] = {"phase": "Running", "startTime": STARTED, "conditions": [READY], **address}
        self._core.patch_namespaced_pod_status(name, self._namespace, {"status": status})
        self._running[name] = port, stack

    def _stop(self, name: str) -> None:
        _port, stack = self._running.pop(name)
        with suppress(ApiException):
            self._core.delete_namespaced_pod(name, self._namespace, grace_period_seconds=0)
        stack.close()

    def _percent(self, name: str) -> int:
        """Of the last second or more."""
        now, port = time.monotonic(), self._running[name][0]
        since, had, percent = self._busy.get(name, (now, busy_s(port), 0))
        if now - since >= 1:
            has = busy_s(port)
            since, had, percent = now, has, round(min(100, 100 * (has - had) / (now - since)))
        self._busy[name] = since, had, percent
        return percent


def busy_s(port: int) -> float:
    """For how long a service's GPU was busy until now."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        [value] = re.findall(rb"^sample_gpu_busy_seconds_total (\S+)$", answer.read(), re.MULTILINE)
    return float(value)
