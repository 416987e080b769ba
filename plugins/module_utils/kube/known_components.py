# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Known components, independent of the installer: by which image, label or argument each is recognized.

A mirror may rename the image, and a digest has no name. The only table of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .labels import NAME_LABEL
from .objects import Manifest, arguments, containers_of, environment, labels_of

Container = Mapping[str, Any]

# An HPA or ScaledObject not managed by this collection is checked if it is about GPUs.
ABOUT_GPUS = re.compile(r"gpu|dcgm|nvidia|(^|_)mig(_|$)|^llm_|vllm", re.IGNORECASE)

_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True)
class Sign:
    """Signs of a component, the most reliable first.

    image:     of its container.
    argument:  argument that only this component has.
    variable:  prefix of an environment variable.
    labels:    labels of the workload or its pods. One is enough, and selects the first container.
    """

    image: re.Pattern[str]
    argument: re.Pattern[str] = _NEVER
    variable: str = ""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def container(self, workload: Manifest) -> Container | None:
        """The container that runs it, or None."""
        containers = containers_of(workload)
        for is_it in (self._has_image, self._is_started_so):
            if found := next(filter(is_it, containers), None):
                return found
        pod_labels = ((workload.get("spec") or {}).get("template") or {}).get("metadata", {}).get("labels") or {}
        for labels in (labels_of(workload), pod_labels):
            if any(labels.get(key) in values for key, values in self.labels.items()):
                return next(iter(containers), None)
        return None

    def _has_image(self, container: Container) -> bool:
        return bool(self.image.search(str(container.get("image", ""))))

    def _is_started_so(self, container: Container) -> bool:
        return any(map(self.argument.search, arguments(container))) or (
            bool(self.variable) and any(name.startswith(self.variable) for name in environment(container))
        )


OPERATOR = Sign(
    re.compile(r"(^|/)prometheus-operator([:@]|$)"),
    argument=re.compile(r"^--prometheus-config-reloader(=|$)"),
    labels={NAME_LABEL: ("prometheus-operator",)},
)
PROMETHEUS = Sign(
    re.compile(r"(^|/)(prometheus|prometheus-rhel\d+)([:@]|$)"),
    argument=re.compile(r"^--storage\.tsdb\.(path|retention)"),
)
EXPORTER = Sign(
    re.compile(r"dcgm-exporter"),
    variable="DCGM_EXPORTER_",
    labels={
        NAME_LABEL: ("dcgm-exporter",),
        "app": ("dcgm-exporter", "nvidia-dcgm-exporter", "nvidia-dcgm-exporter-dra"),
    },
)
# It creates neither plugin nor exporter before a node has a GPU.
GPU_OPERATOR = Sign(
    re.compile(r"(^|/)gpu-operator([:@]|$)"),
    argument=re.compile(r"(^|/)gpu-operator$"),
    labels={"app": ("gpu-operator",), "app.kubernetes.io/component": ("gpu-operator",)},
)
# The DaemonSet by which the GPU operator installs the container toolkit.
OPERATOR_TOOLKIT = Sign(
    re.compile(r"(^|/)container-toolkit([:@]|$)"), labels={"app": ("nvidia-container-toolkit-daemonset",)}
)
# The DCGM for exporters that do not start one.
HOST_ENGINE = Sign(
    re.compile(r"(^|/)dcgm([:@]|$)"), argument=re.compile(r"(^|/)nv-hostengine$"), labels={"app": ("nvidia-dcgm",)}
)
DRA = Sign(
    re.compile(r"dra-driver.*gpu|dra-driver-nvidia|nvidia-dra-driver|k8s-dra-driver"),
    argument=re.compile(r"(^|/)gpu-kubelet-plugin$"),
)
NODE_FEATURE_DISCOVERY = Sign(
    re.compile(r"node-feature-discovery"),
    argument=re.compile(r"(^|/)nfd-(master|worker)$"),
    labels={NAME_LABEL: ("node-feature-discovery",)},
)

_PLUGIN = re.compile(r"nvidia.*device-plugin|k8s-device-plugin|nvidia-gpu-device-plugin")
# The plugin's feature discovery, and the sidecar that switches its configuration, have the same image and offer no GPU.
_NO_PLUGIN = re.compile(r"feature-discovery|mps-control|config-manager|mig-manager")
_SOCKETS = "/device-plugins"
# The component for NVLink domains has the DRA driver's image, and offers no GPU.
_NO_DRA = "compute-domain"


def plugin_container(daemon_set: Manifest) -> Container | None:
    """The container of NVIDIA's device plugin: by its image, or by the kubelet's sockets and the word nvidia."""
    candidates = [
        container for container in containers_of(daemon_set) if not any(map(_NO_PLUGIN.search, _words_of(container)))
    ]
    found = (container for container in candidates if _PLUGIN.search(str(container.get("image", ""))))
    return next(found, None) or next(
        (container for container in candidates if _registers_gpus(daemon_set, container)), None
    )


def _words_of(container: Container) -> tuple[str, ...]:
    return (container["name"], str(container.get("image", "")), *(container.get("command") or ()))


def gives_gpus_by_dra(daemon_set: Manifest) -> bool:
    containers = [container for container in containers_of(daemon_set) if not container["name"].startswith(_NO_DRA)]
    return DRA.container({"metadata": {}, "spec": {"containers": containers}}) is not None


def _registers_gpus(daemon_set: Manifest, container: Container) -> bool:
    pod = ((daemon_set.get("spec") or {}).get("template") or {}).get("spec") or {}
    sockets = {
        volume["name"]
        for volume in pod.get("volumes") or ()
        if (volume.get("hostPath") or {}).get("path", "").rstrip("/").endswith(_SOCKETS)
    }
    mounted = {mount["name"] for mount in container.get("volumeMounts") or ()}
    words = (
        daemon_set["metadata"]["name"],
        container["name"],
        *labels_of(daemon_set).values(),
        *environment(container),
        *arguments(container),
    )
    return bool(sockets & mounted) and any("nvidia" in word.lower() for word in words)
