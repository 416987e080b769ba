"""A stand-in for the GPU operator's MIG manager, and for the kubelets of its nodes."""

from __future__ import annotations

import threading
from contextlib import suppress

from chart_site import Site
from kubernetes.client.exceptions import NotFoundException

CAPABLE = {"nvidia.com/mig.capable": "true", "nvidia.com/gpu.deploy.mig-manager": "true"}
CONFIG, TOLD = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
# What each profile makes of an H100, by its resources with the strategy `single`.
OFFERED = {"all-1g.10gb": "7", "all-disabled": "1", "all-3g.40gb": "2"}


class Manager:
    """Per node: a profile is applied once its label says so, and fails where there is none of that name.

    seen: what was on the node when it was told, by node: pods of users, and whether it was cordoned.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self.seen: list[tuple[str, str, list[str], bool]] = []
        self._applied: dict[str, str] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stopped.wait(0.2):
            with suppress(NotFoundException):  # a test has taken it away meanwhile
                self._end_pods()
                self._apply_profiles()

    def _end_pods(self) -> None:
        """A kubelet's part."""
        for pod in self._site.core.list_namespaced_pod("default").items:
            if pod.metadata.deletion_timestamp:
                self._site.core.delete_namespaced_pod(pod.metadata.name, "default", grace_period_seconds=0)

    def _apply_profiles(self) -> None:
        for node in self._site.core.list_node().items:
            name, labels = node.metadata.name, node.metadata.labels or {}
            profile = labels.get(CONFIG)
            if not profile or labels.get(TOLD) in ("success", "failed"):
                continue
            pods = self._site.core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={name}").items
            self.seen.append((name, profile, [pod.metadata.name for pod in pods], bool(node.spec.unschedulable)))
            told = "success" if profile in OFFERED else "failed"
            if told == "success":
                status = {"allocatable": {"nvidia.com/gpu": OFFERED[profile]}}
                self._site.core.patch_node_status(name, {"status": status})
            self._site.core.patch_node(name, {"metadata": {"labels": {TOLD: told}}})
