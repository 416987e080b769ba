"""Two API servers of a dictionary, and a kubeconfig that leads to the other one after each task of a run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# Replaces the kubeconfig by the other one once the first server was asked: from then on the run has its cluster.
CALLBACK = """
import os, shutil
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "flip"
    CALLBACK_NEEDS_ENABLED = True

    def flip(self, *args, **kwargs):
        folder = os.environ["FLIP"]
        if os.path.exists(f"{folder}/asked"):
            shutil.copy(f"{folder}/other", f"{folder}/next")
            os.replace(f"{folder}/next", f"{folder}/kubeconfig")

    v2_playbook_on_task_start = v2_runner_on_ok = v2_runner_on_failed = v2_runner_on_unreachable = flip
    v2_runner_on_skipped = v2_runner_retry = v2_runner_item_on_ok = v2_runner_item_on_failed = flip
"""
KINDS = {
    "/api/v1": {
        "nodes": "Node",
        "namespaces": "Namespace",
        "pods": "Pod",
        "configmaps": "ConfigMap",
        "secrets": "Secret",
    },
    "/apis/apps/v1": {"deployments": "Deployment", "daemonsets": "DaemonSet"},
    "/apis/autoscaling/v2": {"horizontalpodautoscalers": "HorizontalPodAutoscaler"},
}
CLUSTER_WIDE = ("nodes", "namespaces")
NODE = "gpu1"
MACHINE = "0123456789abcdef0123456789abcdef"
# A Pod Disruption Budget allows the eviction at the third try.
PROTECTED_TRIES = 2


class ApiServer(ThreadingHTTPServer):
    """Two nodes, and a pod that a disruption budget protects for two tries. It remembers its requests."""

    daemon_threads = True

    def __init__(self, asked: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked = asked
        self.requests: list[str] = []
        self.evictions = 0
        meta = {"name": NODE, "uid": "1", "resourceVersion": "1", "annotations": {}, "labels": {}}
        conditions = [{"type": "Ready", "status": "True"}]
        names = ("architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "operatingSystem")
        info = {**dict.fromkeys((*names, "osImage", "systemUUID", "bootID"), "1"), "machineID": MACHINE}
        info["kubeletVersion"] = "v1.34.0"
        node = {"metadata": meta, "spec": {}, "status": {"conditions": conditions, "nodeInfo": info}}
        pod_meta = {"name": "chat-0", "namespace": "ml", "uid": "2"}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat", "uid": "3", "controller": True}
        pod = {
            "metadata": {**pod_meta, "ownerReferences": [owner]},
            "spec": {"nodeName": NODE, "containers": [{"name": "chat"}]},
            "status": {"phase": "Running"},
        }
        self.objects: dict[str, dict[str, Any]] = {
            f"/api/v1/nodes/{NODE}": {"apiVersion": "v1", "kind": "Node", **node},
            "/api/v1/nodes/gpu2": {"apiVersion": "v1", "kind": "Node", **node, "metadata": {**meta, "name": "gpu2"}},
            "/api/v1/namespaces/kube-system": _named("Namespace", "kube-system"),
            "/api/v1/namespaces/ml/pods/chat-0": {"apiVersion": "v1", "kind": "Pod", **pod},
            "/api/v1/namespaces/kube-system/configmaps/kubeadm-config": {
                **_named("ConfigMap", "kubeadm-config"),
                "data": {"ClusterConfiguration": "kubernetesVersion: v1.34.0"},
            },
        }

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        if path.endswith("/eviction"):
            self.evictions += 1
            if self.evictions <= PROTECTED_TRIES:
                message = "Cannot evict pod as it would violate the pod's disruption budget."
                return 429, {"kind": "Status", "status": "Failure", "message": message, "code": 429}
            self.objects.pop(path.removesuffix("/eviction"), None)
            return 201, {"kind": "Status", "status": "Success"}
        if method == "PATCH" and path in self.objects:
            found = self.objects[path]
            found["spec"] = {**found.get("spec", {}), **body.get("spec", {})}
            return 200, found
        if path in (found := self._discovery()):
            return 200, found[path]
        if path in self.objects:
            return 200, self.objects[path]
        group, _, plural = path.rpartition("/")
        if method == "GET" and plural in KINDS.get(group, {}):
            items = [item for key, item in self.objects.items() if f"/{plural}/" in key and key.startswith(group)]
            return 200, {"kind": f"{KINDS[group][plural]}List", "apiVersion": "v1", "metadata": {}, "items": items}
        return 404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404}

    def _discovery(self) -> dict[str, Any]:
        groups = [path.split("/")[2:] for path in KINDS if path.startswith("/apis/")]
        versions = {name: {"groupVersion": f"{name}/{version}", "version": version} for name, version in groups}
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        return {
            "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {
                "kind": "APIGroupList",
                "groups": [
                    {"name": name, "versions": [version], "preferredVersion": version}
                    for name, version in versions.items()
                ],
            },
            **{
                path: {
                    "kind": "APIResourceList",
                    "groupVersion": path.removeprefix("/apis/").removeprefix("/api/"),
                    "resources": [
                        {"name": plural, "kind": kind, "namespaced": plural not in CLUSTER_WIDE, "verbs": verbs}
                        for plural, kind in kinds.items()
                    ],
                }
                for path, kinds in KINDS.items()
            },
        }


def _named(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "uid": f"uid-of-{name}"}}


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_words: Any) -> None:
        pass

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(f"{self.command} {path}")
        self.server.asked.touch()
        status, body = self.server.answer(self.command, path, json.loads(text or b"{}"))
        sent = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _answer


class TwoClusters:
    """The servers, and the folder with the kubeconfig that is replaced."""

    def __init__(self, folder: Path, contexts: tuple[str, ...]) -> None:
        self.folder = folder
        self.mine, self.other = ApiServer(folder / "asked"), ApiServer(folder / "asked-other")
        (folder / "kubeconfig").write_text(json.dumps(self._config(contexts, self.mine, self.other)))
        (folder / "other").write_text(json.dumps(self._config(contexts, self.other, self.mine)))
        plugins = folder.parent / "callbacks"
        plugins.mkdir(exist_ok=True)
        (plugins / "flip.py").write_text(CALLBACK)
        self.environment = {
            "ANSIBLE_CALLBACK_PLUGINS": str(plugins),
            "ANSIBLE_CALLBACKS_ENABLED": "flip",
            "FLIP": str(folder),
        }

    @staticmethod
    def _config(contexts: tuple[str, ...], *servers: ApiServer) -> dict[str, Any]:
        """The first context leads to the first server, and is the current one."""
        pairs = list(zip(contexts, servers, strict=False))
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": contexts[0],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name, _server in pairs],
            "clusters": [{"name": name, "cluster": {"server": server.address}} for name, server in pairs],
            "users": [{"name": "me", "user": {"token": "of-the-test"}}],
        }


@contextmanager
def two_clusters(folder: Path, *contexts: str) -> Iterator[TwoClusters]:
    """contexts: one, whose cluster is another after each task, or two."""
    clusters = TwoClusters(folder, contexts)
    servers = (clusters.mine, clusters.other)
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield clusters
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
