# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Finds nodes that need another MIG profile, and reasons why a profile cannot be applied.

The GPU operator's MIG manager partitions the GPUs of a node by a label, and reports the result in another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..kube.labels import CORDONED_FOR_MIG, MIG_BEFORE, MIG_INVENTORY, is_annotated_by
from ..kube.objects import Manifest, labels_of, name_of

CONFIG_LABEL = "nvidia.com/mig.config"
STATE_LABEL = "nvidia.com/mig.config.state"
WHOLE = "all-disabled"

_MANAGER_LABEL = "nvidia.com/gpu.deploy.mig-manager"
_STRATEGY_LABEL = "nvidia.com/mig.strategy"


@dataclass(frozen=True)
class MigOptions:
    """Options of the role gpu_mig. gpu_node_selector: labels of the inventory's nodes. inventory_id: its ID."""

    state: str
    profile: str
    gpu_node_selector: Mapping[str, Any]
    inventory_id: str

    @property
    def is_present(self) -> bool:
        return self.state == "present"


@dataclass(frozen=True)
class Change:
    """A node that needs another profile, or whose change was interrupted.

    has, wanted: profiles; empty for none. applied: the manager has reported the wanted profile.
    cordoned:    the node was cordoned before this role.
    cordon, start, end: labels and annotations for the cordon, for the manager, and for the end of the
                 change; None removes one.
    """

    name: str
    has: str
    wanted: str
    applied: bool
    cordoned: bool
    cordon: Mapping[str, Any]
    start: Mapping[str, Any]
    end: Mapping[str, Any]


def mig_plan(options: MigOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """`changes`, `stale`, and `refused`, the errors that stop the role before a node is drained.

    stale: nodes whose annotation has outlived the cordon, because someone has uncordoned them.

    survey: `nodes` that can be partitioned, and `strategy`, the MIG strategy of the collection's operator; empty for
    another one, whose nodes have it as a label.
    """
    nodes: Sequence[Manifest] = survey["nodes"]
    return {
        "changes": [asdict(change) for node in nodes if (change := _change(options, node))],
        "stale": [name_of(node) for node in nodes if _is_annotated(options, node) and not _is_cordoned(node)],
        "mark": CORDONED_FOR_MIG,
        "refused": list(_refusals(options, survey["strategy"], nodes)) if options.is_present else [],
    }


def _is_annotated(request: MigOptions, node: Manifest) -> bool:
    return is_annotated_by(node, CORDONED_FOR_MIG, request.inventory_id)


def _is_cordoned(node: Manifest) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def _change(request: MigOptions, node: Manifest) -> Change | None:
    labels, annotations = labels_of(node), node["metadata"].get("annotations") or {}
    has = labels.get(CONFIG_LABEL, "")
    is_ours = is_annotated_by(node, MIG_INVENTORY, request.inventory_id)
    is_marked = _is_annotated(request, node) and _is_cordoned(node)
    before = annotations.get(MIG_BEFORE, has)
    wanted = request.profile if request.is_present else before or WHOLE
    applied = has == wanted and labels.get(STATE_LABEL) == "success"
    if request.is_present and applied and not is_marked:
        return None
    if not request.is_present and not is_ours and not is_marked:
        return None
    return Change(
        name=name_of(node),
        has=has,
        wanted=wanted,
        applied=applied,
        cordoned=_is_cordoned(node) and not is_marked,
        cordon={CORDONED_FOR_MIG: request.inventory_id},
        # The manager's report of the previous profile would count for this one. It acts on changes of the label, and
        # does not report an applied profile again.
        start={
            "labels": {CONFIG_LABEL: wanted, STATE_LABEL: None},
            "annotations": {MIG_BEFORE: before, MIG_INVENTORY: request.inventory_id},
        },
        end=_end(request, before),
    )


def _end(request: MigOptions, before: str) -> dict[str, Any]:
    """A removal also deletes this annotation, and the profile if the node had none before."""
    if request.is_present:
        return {"labels": {}, "annotations": {CORDONED_FOR_MIG: None}}
    return {
        "labels": {} if before else {CONFIG_LABEL: None, STATE_LABEL: None},
        "annotations": {CORDONED_FOR_MIG: None, MIG_BEFORE: None, MIG_INVENTORY: None},
    }


def _owner(node: Manifest) -> str:
    """The inventory whose run partitioned the node; can be empty."""
    return str((node["metadata"].get("annotations") or {}).get(MIG_INVENTORY) or "")


def _differs(request: MigOptions, node: Manifest) -> bool:
    return labels_of(node).get(CONFIG_LABEL) != request.profile


def _refusals(request: MigOptions, strategy: str, nodes: Sequence[Manifest]) -> Iterator[str]:
    if not request.profile:
        yield (
            "MIG: gpu_mig_state is present, and gpu_mig_profile is empty. Nothing was changed."
            " Next: set gpu_mig_profile, all-1g.10gb for instance;"
            " the ConfigMap default-mig-parted-config of the GPU operator lists them."
        )
    if not nodes:
        pool = f", of the pool {json.dumps(dict(request.gpu_node_selector))}" if request.gpu_node_selector else ""
        yield (
            f"MIG: no node has the label nvidia.com/mig.capable=true{pool}. Nothing was changed."
            " GPU feature discovery, a part of the GPU operator, sets it."
            " Next: `kubectl get nodes -L nvidia.com/gpu.product`."
        )
    theirs = [node for node in nodes if _owner(node) not in ("", request.inventory_id) and _differs(request, node)]
    if theirs:
        named = ", ".join(f"{name_of(node)} ({_owner(node)})" for node in theirs)
        yield (
            f"MIG: the profile of {named} was set for another inventory, and this one is {request.inventory_id}."
            " Nothing was changed. Next: limit kubegpu_gpu_node_selector to nodes of this inventory, or remove the"
            f" profile with the other one: gpu_mig_state: absent. The annotation {MIG_INVENTORY} names it."
        )
    if unmanaged := [name_of(node) for node in nodes if labels_of(node).get(_MANAGER_LABEL) != "true"]:
        yield (
            f"MIG: {', '.join(unmanaged)} has no MIG manager. Nothing was changed."
            " Next: `kubectl -n gpu-operator get pods -l app=nvidia-mig-manager`;"
            " gpu_operator_state: present installs the GPU operator, which includes the MIG manager."
        )
    strategies = {strategy or labels_of(node).get(_STRATEGY_LABEL) for node in nodes}
    if "balanced" in request.profile and "single" in strategies:
        yield (
            f"MIG: {request.profile} creates instances of several sizes, and with the strategy `single` a node offers"
            " none of them. Nothing was changed."
            " Next: gpu_operator_values: {mig: {strategy: mixed}} and nvidia.com/mig-* in the workloads;"
            " or a profile of one size, all-1g.10gb for instance."
        )
