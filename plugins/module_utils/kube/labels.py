# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Labels and annotations of this collection's objects: their names, and to which inventory an object belongs.

Called where objects are created, compared and removed. The names of all labels and annotations of autoscalers are
here, so that no two writers disagree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .objects import labels_of

NAME_LABEL = "app.kubernetes.io/name"
MANAGER = "kubegpu.autoscale"
MANAGED_BY = "app.kubernetes.io/managed-by"
# The part of the collection to which an object belongs.
PART_OF = "app.kubernetes.io/part-of"
# On Helm's record of a managed release, and on each of its objects: the name of the release.
RELEASE = "kubegpu.autoscale/release"
# The inventory of an object. Several inventories may share a cluster.
INVENTORY = "kubegpu.autoscale/inventory"
# On rules that serve one namespace: its name.
NAMESPACE = "kubegpu.autoscale/namespace"
# Begins the annotations of nodes that a run takes out of service, until it returns them.
CORDONED = "kubegpu.autoscale/cordoned-for-"
# Distinguishes the cordon of gpu_mig from an existing one, which stays.
CORDONED_FOR_MIG = "kubegpu.autoscale/cordoned-for-mig"
CORDONED_FOR_UPGRADE = "kubegpu.autoscale/cordoned-for-upgrade"
# On the objects of an autoscaler: its profile.
METRIC_LABEL = "kubegpu.autoscale/metric"
# Annotation on the rule of one workload: its autoscaler.
AUTOSCALER_ANNOTATION = "kubegpu.autoscale/autoscaler"
# Annotation on a rule: labels of the scrape targets that it uses, by input.
SELECTORS_ANNOTATION = "kubegpu.autoscale/selectors"
# Annotation on KEDA's HPAs: target values and tolerances that the recording rules apply instead of the HPA.
DECISION_ANNOTATION = "kubegpu.autoscale/decision"
# Annotation on the rule of a recorded metric: its PodMonitor.
MONITOR_ANNOTATION = "kubegpu.autoscale/pod-monitor"
# Annotation on an HPA: its dead time in seconds, followed by " given" if the user sets it. Otherwise it was measured.
DEAD_TIME_ANNOTATION = "kubegpu.autoscale/dead-time-seconds"
# Annotations of nodes: the inventory whose run set the label beside it, unlike users and node-feature-discovery.
GPU_PRESENT = "kubegpu.autoscale/gpu-present"
DEVICE_PLUGIN_CONFIG = "kubegpu.autoscale/device-plugin-config"
# The node's MIG profile before the role gpu_mig, and the inventory whose run changed it.
MIG_BEFORE = "kubegpu.autoscale/mig-before"
MIG_INVENTORY = "kubegpu.autoscale/mig-inventory"
# On a DaemonSet that pulls images ahead: their workload.
IMAGES_OF_LABEL = "kubegpu.autoscale/images-of"

# The ID without an inventory.
DEFAULT_INVENTORY = "default"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LONGEST = 63


def is_managed(manifest: Mapping[str, Any]) -> bool:
    """Whether this collection created the object, for any inventory."""
    return labels_of(manifest).get(MANAGED_BY) == MANAGER


def is_of(manifest: Mapping[str, Any], inventory: str) -> bool:
    """Whether this collection created the object for this inventory."""
    return is_managed(manifest) and inventory_of(manifest) == inventory


def is_installed_by(manifest: Mapping[str, Any], inventory: str) -> bool:
    """Whether a run for this inventory created the object, itself or by a release. Older releases name no inventory."""
    is_released = RELEASE in labels_of(manifest) and inventory_of(manifest) in ("", inventory)
    return is_released or is_of(manifest, inventory)


def inventory_of(manifest: Mapping[str, Any]) -> str:
    """The ID of the object's inventory; can be empty."""
    return str(labels_of(manifest).get(INVENTORY) or "")


def is_annotated_by(node: Mapping[str, Any], annotation: str, inventory: str) -> bool:
    """Whether a run for this inventory set what the annotation stands for."""
    return bool((node["metadata"].get("annotations") or {}).get(annotation) == inventory)


def namespace_of(manifest: Mapping[str, Any]) -> str:
    """The one namespace that a rule serves; empty if it serves all."""
    return str(labels_of(manifest).get(NAMESPACE) or "")


def maker(manifest: Mapping[str, Any]) -> str:
    """The manager of the object, for an error."""
    if not is_managed(manifest):
        return "is not managed by this collection"
    inventory = inventory_of(manifest)
    return f"belongs to inventory {inventory}" if inventory else f"has no label {INVENTORY}"


def hand_over(kind: str, namespace: str, name: str, inventory: str) -> str:
    """The command that gives an object to an inventory."""
    place = f" -n {namespace}" if namespace else ""
    return f"kubectl{place} label --overwrite {kind.lower()} {name} {INVENTORY}={inventory}"


def labels(inventory: str) -> dict[str, str]:
    """Labels of each object of an inventory."""
    return {MANAGED_BY: MANAGER, INVENTORY: inventory}


def marked(manifest: Mapping[str, Any], inventory: str, part_of: str | None = None) -> dict[str, Any]:
    """The object with the labels of its inventory, and of its part of the collection if it has one."""
    metadata = manifest["metadata"]
    part = {PART_OF: part_of} if part_of else {}
    return {**manifest, "metadata": {**metadata, "labels": {**labels_of(manifest), **labels(inventory), **part}}}


def is_inventory_id(text: str) -> bool:
    """Whether the text is a valid label value."""
    return bool(_LABEL_VALUE.fullmatch(text))


def inventory_id(name: str) -> str:
    """The ID for a name: the name itself if it is a valid label value."""
    text = re.sub("[^A-Za-z0-9._-]+", "-", name)[:_LONGEST].strip("._-")
    return text or DEFAULT_INVENTORY
