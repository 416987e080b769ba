# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads what the proof depends on: nodes with GPUs, the parts that it rests on, and the record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from ..cluster.kube import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    KubeClient,
    Resource,
)
from ..kube.label_selectors import labels_match
from ..kube.labels import NAME_LABEL
from ..kube.node_pools import have_provider_ids, nodes_are_added
from ..kube.objects import Manifest, labels_of
from ..kube.resource_claims import devices_of, whole_gpus
from ..proof import basis
from ..proof.nodes import GpuServer, ProofNode, proof_nodes
from ..proof.record import NAME, NAMESPACE, Record, record_of
from .reader import Listed, Reader

_DEPLOYED = f"{NAME_LABEL} in ({','.join(basis.DEPLOYMENTS)})"
_ADMISSION = "admissionregistration.k8s.io/v1"
POLICIES = Resource(_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
POLICY_BINDINGS = Resource(_ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
_LIVE = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True)
class Seen:
    """nodes:    nodes with GPUs. chain: known values of what a proof of the chain rests on.
    record:   earlier proofs.
    machines: all nodes by machine ID.
    gpu_nodes: names of all nodes with GPUs, also of those that are not to be proven.
    adds_nodes: whether nodes are, or may be, added on demand.
    """

    nodes: Sequence[ProofNode]
    chain: Mapping[str, str]
    record: Record
    machines: frozenset[str]
    gpu_nodes: Sequence[str]
    adds_nodes: bool


class ProofReader(Reader):
    """What a proof rests on. Pods of all namespaces are listed only if something must be proven."""

    policies = Listed(POLICIES)
    policy_bindings = Listed(POLICY_BINDINGS)
    runtime_classes = Listed(RUNTIME_CLASSES)

    def __init__(
        self, kube: KubeClient, servers: Sequence[GpuServer], selector: Mapping[str, str], given: basis.ClusterParts
    ) -> None:
        """selector: labels of the inventory's nodes; empty for all. given: what the options of the run determine."""
        super().__init__(kube, is_strict=True)
        self._servers, self._selector, self._given = servers, selector, given

    def seen(self, names: Collection[str], *, with_pods: bool) -> Seen:
        """names: nodes to prove; empty for all. Without the pods, every GPU would appear free.

        Raises: ApiError without the permission to list nodes, DaemonSets or pods.
        """
        listed = self.kube.list(NODES) or ()
        selector = {"matchLabels": self._selector}
        selected = {node["metadata"]["name"] for node in listed if labels_match(selector, labels_of(node))}
        pods = (self.kube.list(PODS, field_selector=_LIVE) or ()) if with_pods else ()
        found = proof_nodes(listed, pods, self._servers, self._parts, self.record.machines.keys())
        return Seen(
            [node for node in found if node.name in selected and (not names or node.name in names)],
            basis.known(basis.CHAIN, self._parts),
            self.record,
            frozenset((node.get("status") or {}).get("nodeInfo", {}).get("machineID", "") for node in listed),
            [node.name for node in found],
            nodes_are_added(listed) or have_provider_ids(listed),
        )

    @cached_property
    def record_object(self) -> Manifest | None:
        return self.kube.get(CONFIG_MAPS, NAME, NAMESPACE)

    @cached_property
    def record(self) -> Record:
        return record_of(self.record_object)

    @cached_property
    def _parts(self) -> basis.ClusterParts:
        """A part that this user may not read is empty, so its value is unknown."""
        deployments = partial(self.kube.list, DEPLOYMENTS, label_selector=_DEPLOYED)
        return replace(
            self._given,
            daemon_sets=self.kube.list(DAEMON_SETS) or (),
            deployments=self.take("deployments", deployments),
            prometheuses=self.prometheuses,
            claimable={node: whole_gpus(devices) for node, devices in devices_of(self.resource_slices).items()},
            admission=[*self.policies, *self.policy_bindings, *self.runtime_classes],
            kubernetes=str(self.kube.get_raw("/version", retry=True).get("gitVersion", "")),
        )
