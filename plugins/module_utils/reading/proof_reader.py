# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads what the proof depends on: nodes with GPUs, the parts that it rests on, and the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..cluster.errors import ApiError
from ..cluster.kube import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    PROMETHEUSES,
    RESOURCE_SLICES,
    RUNTIME_CLASSES,
    KubeClient,
    Resource,
)
from ..kube.label_selectors import labels_match
from ..kube.objects import Manifest, labels_of
from ..kube.resource_claims import devices_of, whole_gpus
from ..proof import basis
from ..proof.nodes import GpuServer, ProofNode, proof_nodes
from ..proof.record import NAME, NAMESPACE, Record, record_of

_DEPLOYED = f"{basis.NAME_LABEL} in ({','.join(basis.DEPLOYMENTS)})"
_ADMISSION = "admissionregistration.k8s.io/v1"
POLICIES = Resource(_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
POLICY_BINDINGS = Resource(_ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
_LIVE = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True)
class Seen:
    """nodes:    nodes with GPUs. chain: known values of what a proof of the chain rests on.
    record:   earlier proofs.
    machines: all nodes by machine ID.
    """

    nodes: Sequence[ProofNode]
    chain: Mapping[str, str]
    record: Record
    machines: frozenset[str]


class Reader:
    """Reads a cluster. Lists the pods of all namespaces only if something must be proven."""

    def __init__(
        self, kube: KubeClient, servers: Sequence[GpuServer], selector: Mapping[str, str], given: basis.ClusterParts
    ) -> None:
        """selector: labels of the inventory's nodes; empty for all. given: what the options of the run determine."""
        self._kube, self._servers, self._selector, self._given = kube, servers, selector, given

    def look(self, *, with_pods: bool) -> Seen:
        """Without the pods, every GPU would appear free."""
        kube = self._kube
        listed = kube.list(NODES) or ()
        nodes = [node for node in listed if labels_match({"matchLabels": self._selector}, labels_of(node))]
        parts = replace(
            self._given,
            daemon_sets=kube.list(DAEMON_SETS) or (),
            deployments=_readable(kube, DEPLOYMENTS, _DEPLOYED),
            prometheuses=_readable(kube, PROMETHEUSES),
            claimable={
                node: whole_gpus(devices) for node, devices in devices_of(_readable(kube, RESOURCE_SLICES)).items()
            },
            admission=[
                found for kind in (POLICIES, POLICY_BINDINGS, RUNTIME_CLASSES) for found in _readable(kube, kind)
            ],
            kubernetes=str(kube.get_raw("/version", retry=True).get("gitVersion", "")),
        )
        pods = (kube.list(PODS, field_selector=_LIVE) or ()) if with_pods else ()
        record = record_of(kube.get(CONFIG_MAPS, NAME, NAMESPACE))
        return Seen(
            proof_nodes(nodes, pods, self._servers, parts, record.machines.keys()),
            basis.known(basis.CHAIN, parts),
            record,
            frozenset((node.get("status") or {}).get("nodeInfo", {}).get("machineID", "") for node in listed),
        )


def _readable(kube: KubeClient, resource: Any, selector: str | None = None) -> Sequence[Manifest]:
    """Empty without the permission or the kind: then the value is unknown."""
    try:
        return kube.list(resource, label_selector=selector) or ()
    except ApiError as err:
        if err.status != 403:
            raise
        return ()
