"""The part of a kubelet and of containerd that pods of the pause image need: an address in a network namespace."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from control_plane import eventually
from kubernetes import client
from kubernetes.client.exceptions import NotFoundException

BRIDGE = f"kubegpu{os.getpid()}"  # several runs may be side by side
# systemd, as far as systemd-run is asked for something: it starts what it is told to, and forgets it.
SYSTEMD_RUN = '#!/bin/sh\nshift 3\nsetsid "$@" </dev/null >/dev/null 2>&1 &\n'


class PodNetworks:
    """Servers, each with the first three numbers of its pods' addresses. A namespace comes and goes with its pod.

    containerd: where it keeps what it runs. programs: to be in the PATH of a playbook.
    """

    def __init__(self, kube: client.ApiClient, folder: Path, ranges: dict[str, str]) -> None:
        self.containerd, self.programs = folder / "containerd", folder / "programs"
        self.ranges = ranges
        self.without: set[str] = set()  # servers whose pods get no address
        self.apart: set[str] = set()  # servers whose pods reach no others
        self._core = client.CoreV1Api(kube)
        self._namespaces: set[str] = set()
        self._number = itertools.count(1)
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch)

    @contextmanager
    def running(self) -> Iterator[None]:
        self.programs.mkdir()
        for name, text in {"systemd-run": SYSTEMD_RUN, "systemctl": "#!/bin/sh\n"}.items():
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)
        for name in self.ranges:
            self._core.create_node({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        try:
            _ip("link", "add", BRIDGE, "type", "bridge")
            _ip("link", "set", BRIDGE, "up")
            self._watcher.start()
            yield
        finally:
            self._over.set()
            self._watcher.join()
            self._clear(self._namespaces)
            _ip("link", "delete", BRIDGE)

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            pods = self._core.list_namespaced_pod("kube-system").items
            self._clear(self._namespaces - {_namespace(pod) for pod in pods})
            for pod in pods:
                if pod.status.pod_ip or not pod.spec.affinity:
                    continue
                terms = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
                server = terms.node_selector_terms[0].match_fields[0].values[0]
                if server not in self.without:
                    self._start(pod, server)

    def _start(self, pod: client.V1Pod, server: str) -> None:
        name, address = _namespace(pod), f"{self.ranges[server]}.{next(self._number)}"
        self._namespaces.add(name)
        _ip("netns", "add", name)
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        if server not in self.apart:
            _ip("link", "set", name, "master", BRIDGE, "up")
        _ip("-n", name, "address", "add", f"{address}/16", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        spaces = [{"type": "ipc"}, {"type": "network", "path": f"/run/netns/{name}"}]
        annotations = {"io.kubernetes.cri.sandbox-uid": pod.metadata.uid}
        sandbox = self.containerd / pod.metadata.uid
        sandbox.mkdir(parents=True)
        (sandbox / "config.json").write_text(json.dumps({"annotations": annotations, "linux": {"namespaces": spaces}}))
        target = client.V1ObjectReference(kind="Node", name=server)
        binding = client.V1Binding(metadata={"name": pod.metadata.name}, target=target)
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        with suppress(NotFoundException):  # the run has taken it away meanwhile
            self._core.create_namespaced_pod_binding(pod.metadata.name, "kube-system", binding, _preload_content=False)
            self._core.patch_namespaced_pod_status(pod.metadata.name, "kube-system", {"status": status})

    def _clear(self, names: set[str]) -> None:
        for name in names:
            _ip("link", "delete", name)
            _ip("netns", "delete", name)
        self._namespaces -= names


def _namespace(pod: client.V1Pod) -> str:
    return f"kubegpu{pod.metadata.uid[:8]}"


def gone(kube: client.ApiClient) -> None:
    """Wait until no pod of a DaemonSet is left."""
    core = client.CoreV1Api(kube)

    def none() -> bool:
        return not any(pod.metadata.owner_references for pod in core.list_namespaced_pod("kube-system").items)

    eventually(none, "pods go with their DaemonSet", 120)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
