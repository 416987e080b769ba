# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Creates DaemonSets that pull the images of workloads, so that new pods do not wait for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..kube.labels import IMAGES_OF_LABEL
from ..kube.objects import Manifest
from .kube_names import short_name

GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
_NOBODY = 65534


def image_pullers(
    targets: Sequence[Manifest], pause_image: str, affinity: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """One DaemonSet for each target with a pod template. affinity: affinity to nodes with GPUs."""
    seen: list[Manifest] = []
    for target in targets:
        if target not in seen and "template" in (target.get("spec") or {}):
            seen.append(target)
            yield _daemon_set(target, pause_image, affinity)


def _daemon_set(target: Manifest, pause_image: str, affinity: Mapping[str, Any]) -> dict[str, Any]:
    metadata = target["metadata"]
    # The name includes the kind, because selectors are immutable: a Deployment may become a Rollout with the same name.
    title = f"{target['kind']}-{metadata['name']}".lower()
    labels = {IMAGES_OF_LABEL: short_name(title)}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": short_name(f"kubegpu-images-{title}"), "namespace": metadata["namespace"]},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {
                "metadata": {"labels": labels},
                "spec": _pod(target["spec"]["template"]["spec"], pause_image, affinity),
            },
        },
    }


def _pod(workload: Mapping[str, Any], pause_image: str, affinity: Mapping[str, Any]) -> dict[str, Any]:
    """A pause container with the workload's images as volumes, on the nodes on which its pods may run."""
    images = enumerate(_images(workload), start=1)
    names = {f"image-{number}": (number, image) for number, image in images}
    account = workload.get("serviceAccountName")
    return {
        "affinity": affinity,
        "tolerations": [*(workload.get("tolerations") or ()), GPU_TAINT],
        "nodeSelector": workload.get("nodeSelector") or {},
        "imagePullSecrets": workload.get("imagePullSecrets") or [],
        # Pods without pull secrets get those of their ServiceAccount from the API server.
        **({"serviceAccountName": account} if account else {}),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [
            {"name": name, "image": {"reference": image, "pullPolicy": "IfNotPresent"}}
            for name, (_number, image) in names.items()
        ],
        "containers": [
            {
                "name": "pause",
                "image": pause_image,
                "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": name, "mountPath": f"/images/{number}", "readOnly": True}
                    for name, (number, _image) in names.items()
                ],
            }
        ],
    }


def _images(workload: Mapping[str, Any]) -> list[str]:
    """Each image once, images of init containers first."""
    containers = [*(workload.get("initContainers") or ()), *(workload.get("containers") or ())]
    return list(dict.fromkeys(str(container["image"]) for container in containers))
