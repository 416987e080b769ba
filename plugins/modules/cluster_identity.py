#!/usr/bin/python
# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_identity
short_description: Check that servers belong to the cluster that a kubeconfig reaches
description:
  - Compares a cluster with servers before either is changed. Names are not sufficient, because two clusters can have
    nodes of the same name.
  - A cluster is identified by the UID of its namespace C(kube-system) and by the SHA-256 of its CA.
  - A node is identified by the machine ID that its kubelet reports.
  - Fails with both identities if a server is a node of another cluster, or a copy of another server.
  - Also fails if the node of that name is another machine.
  - Changes nothing.
author: kubegpu (@kubegpu)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - kubegpu.autoscale.private
  - kubegpu.autoscale.reads
options:
  servers:
    description: The servers to compare, with the result of M(kubegpu.autoscale.server_info) for each.
    type: list
    elements: dict
    default: []
    suboptions:
      host:
        description: Name in the inventory.
        type: str
        required: true
      node:
        description: Name of the server's node. If empty, only the cluster is compared.
        type: str
        default: ""
      machine_id:
        description: Machine ID of the server.
        type: str
        default: ""
      authorities:
        description: SHA-256 of the CA certificates of its cluster. Empty if they are not known.
        type: list
        elements: str
        default: []
      is_member:
        description: Whether the server is part of a cluster, even one whose CA is not known.
        type: bool
        default: false
      record:
        description: Record of the role C(kubernetes) on the server.
        type: dict
        default: {}
  objects:
    description:
      - Objects of the cluster, as C(kubectl get --output json) lists them on one of its control planes. Namespace
        C(kube-system), its ConfigMaps C(kube-root-ca.crt) and C(kubegpu-cluster), and nodes are used.
      - The default is to read them with the kubeconfig.
    type: list
    elements: dict
  machines:
    description: Machine IDs by node, if O(objects) has no nodes.
    type: dict
    default: {}
  name:
    description:
      - Name of the cluster in the inventory, or empty. Another name in the cluster's record is a mismatch.
    type: str
    default: ""
  candidates:
    description:
      - Candidate names for a cluster without a record. The first usable one is used. For the path of an inventory it is
        the name of the file or folder. The default context of kubeadm is skipped, because it does not identify a
        cluster.
    type: list
    elements: str
    default: []
requirements:
  - kubernetes >= 30.1 (Python)
"""

EXAMPLES = r"""
- name: Read the identity of the server
  kubegpu.autoscale.server_info:
  register: server

- name: Fail if the node of that name is another machine
  kubegpu.autoscale.cluster_identity:
    kubeconfig: "{{ kubegpu_kubeconfig }}"
    servers:
      - host: gpu1
        node: gpu1
        machine_id: "{{ server.result.identity.machine_id }}"
        authorities: "{{ server.result.identity.authorities }}"
  delegate_to: localhost
"""

RETURN = r"""
result:
  description: The cluster and its records.
  returned: success
  type: dict
  contains:
    name: {description: "Name of the cluster: as recorded, or the first candidate.", type: str, sample: prod}
    uid: {description: UID of its namespace kube-system. Empty if it was not read., type: str}
    authorities: {description: SHA-256 of its CA certificates., type: list, elements: str}
    config_map:
      description: The ConfigMap to create as the cluster's record. Empty if it exists.
      type: dict
    records:
      description:
        - Content of the file that records cluster and machine, for each host.
        - Empty if the file is up to date, or if the server is not part of a cluster.
      type: dict
  sample:
    name: prod
    uid: 0c7f6a5e-8f3b-4c55-9d4e-3f2f6f1f2a3b
    authorities: ["sha256:5f0c1d9be4d1f6d2b6d3a4b5c6d7e8f90112233445566778899aabbccddeeff0"]
    config_map: {}
    records: {}
duration_s:
  description: Run time of the module in seconds.
  returned: always
  type: float
"""

from collections.abc import Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.identity import (
    ClusterIdentity,
    ServerIdentity,
    cluster_name,
    cluster_of,
    config_map,
    mismatches,
    read_cluster,
    read_name,
    server_record,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError, first_of_all
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import Hop
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule

ARGUMENTS: dict[str, Any] = {
    "servers": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "host": {"type": "str", "required": True},
            "node": {"type": "str", "default": ""},
            "machine_id": {"type": "str", "default": ""},
            "authorities": {"type": "list", "elements": "str", "default": []},
            "is_member": {"type": "bool", "default": False},
            "record": {"type": "dict", "default": {}},
        },
    },
    "objects": {"type": "list", "elements": "dict"},
    "machines": {"type": "dict", "default": {}},
    "name": {"type": "str", "default": ""},
    "candidates": {"type": "list", "elements": "str", "default": []},
}


def _objects(module: GpuModule, servers: Sequence[ServerIdentity]) -> list[Manifest]:
    given = module.params["objects"]
    if given is not None:
        if any("name" not in (manifest.get("metadata") or {}) for manifest in given):
            raise HopError(
                Hop.API_SERVER,
                seen="an entry of `objects` has no name in its metadata",
                fix="pass the items of `kubectl get --output json`",
            )
        return given
    kube = module.kube_client()
    if not servers:
        return read_name(kube)
    return read_cluster(kube, [server.node for server in servers if server.node])


def _result(cluster: ClusterIdentity, servers: Sequence[ServerIdentity], candidates: Sequence[str]) -> dict[str, Any]:
    name = cluster_name(cluster, servers, candidates)
    return {
        "name": name,
        "uid": cluster.uid,
        "authorities": sorted(cluster.authorities),
        "config_map": config_map(cluster, name) or {},
        "records": {server.host: server_record(cluster, server, name) for server in servers},
    }


def main() -> None:
    module = GpuModule(ARGUMENTS)
    with module.boundary():
        options = module.params
        servers = [ServerIdentity.of(server) for server in options["servers"]]
        cluster = cluster_of(_objects(module, servers), options["machines"])
        errors = mismatches(cluster, servers, options["name"])
        if errors:
            raise first_of_all(errors)
        module.outcome.result = _result(cluster, servers, [options["name"], *options["candidates"]])


if __name__ == "__main__":
    main()
