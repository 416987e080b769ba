"""Which cluster and which machine: names prove nothing, a UID, a CA and a machine ID do."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.identity import (
    ClusterIdentity,
    ServerIdentity,
    cluster_name,
    cluster_of,
    config_map,
    mismatch,
    mismatches,
    read_cluster,
    read_name,
    server_record,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.x509 import digests
from fake_cluster import FakeTransport, refusal


def pem(content: str) -> str:
    body = base64.b64encode(content.encode()).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"


PROD_CA, STAGING_CA = digests(pem("prod")), digests(pem("staging"))
RECORD = {"name": "prod", "uid": "uid-prod", "machine_id": "machine-1", "authorities": sorted(PROD_CA)}
GPU1 = ServerIdentity("gpu1", "gpu1", "machine-1", PROD_CA, RECORD)
PROD = ClusterIdentity("uid-prod", PROD_CA, "prod", "uid-prod", {"gpu1": "machine-1"})
STAGING = ClusterIdentity("uid-staging", STAGING_CA, "staging", "uid-staging", {"gpu1": "machine-9"})
UNRECORDED = ServerIdentity("gpu1", "gpu1", "machine-1", PROD_CA)
BARE = ServerIdentity("gpu1", "gpu1", "machine-1")


@pytest.mark.parametrize(
    ("cluster", "server"),
    [
        (PROD, GPU1),
        (PROD, UNRECORDED),
        (ClusterIdentity("uid-prod", PROD_CA, machines={"gpu1": "machine-1"}), GPU1),
        (ClusterIdentity("uid-prod", PROD_CA | STAGING_CA, "prod", "uid-prod"), GPU1),
        (ClusterIdentity("uid-prod"), GPU1),
        (STAGING, ServerIdentity("gpu7", "gpu7", "machine-7")),
    ],
    ids=["recorded", "server without a record", "cluster without a record", "CA rotates", "CA unknown", "no node yet"],
)
def test_nothing_contradicts_the_same_cluster_and_machine(cluster: ClusterIdentity, server: ServerIdentity) -> None:
    assert mismatch(cluster, server) is None


@pytest.mark.parametrize(
    ("cluster", "server", "cause"),
    [
        (STAGING, GPU1, "two clusters"),
        (ClusterIdentity("uid-staging", PROD_CA), GPU1, "two clusters"),
        (STAGING, UNRECORDED, "two clusters"),
        (STAGING, BARE, "two machines"),
        (ClusterIdentity("uid-prod", PROD_CA, machines={"gpu1": "machine-9"}), UNRECORDED, "two machines"),
        (ClusterIdentity("uid-prod", PROD_CA, machines={"gpu1": ""}), UNRECORDED, "two machines"),
        (
            ClusterIdentity("uid-prod", PROD_CA, machines={"gpu1": ""}),
            ServerIdentity("gpu1", "gpu1", ""),
            "two machines",
        ),
        (PROD, ServerIdentity("gpu1", "gpu5", "machine-5", PROD_CA, RECORD), "a copy"),
        (ClusterIdentity("uid-staging", STAGING_CA, "prod", "uid-prod"), BARE, "was copied from"),
    ],
    ids=[
        "all",
        "UID",
        "CA",
        "bare server",
        "machine",
        "no machine ID",
        "none at all",
        "copied disk",
        "copied ConfigMap",
    ],
)
def test_a_mismatch_names_both_identities(cluster: ClusterIdentity, server: ServerIdentity, cause: str) -> None:
    error = mismatch(cluster, server)

    assert error is not None
    assert cause in error.cause
    assert "Nothing was changed" in error.cause
    assert f"{server.host} is machine {server.machine_id or '(unknown)'}" in error.seen
    assert f"UID {cluster.uid}" in error.seen
    if server.node in cluster.machines:
        assert f"node gpu1 is machine {cluster.machines['gpu1'] or '(none reported)'}" in error.seen


def test_another_name_than_the_inventorys_is_a_mismatch() -> None:
    error = mismatch(PROD, GPU1, "lab")

    assert error is not None
    assert "kubegpu_cluster_name is lab" in error.cause
    assert [str(error) for error in mismatches(PROD, [], "lab")] != []
    assert mismatches(PROD, [], "prod") == []


def test_a_node_of_another_name_is_found_by_its_machine() -> None:
    nodes = ClusterIdentity("uid-prod", PROD_CA, machines={"gpu1": "machine-9", "ip-10-0-0-1": "machine-1"})
    error = mismatch(nodes, UNRECORDED)

    assert error is not None
    assert "the node of gpu1 is ip-10-0-0-1: set kubernetes_node_name" in error.fix


def test_a_server_that_replaces_another_is_told_how() -> None:
    error = mismatch(ClusterIdentity("uid-prod", PROD_CA, machines={"gpu1": "machine-9"}), BARE)

    assert error is not None
    assert "if gpu1 replaces that machine: `kubectl delete node gpu1`" in error.fix


def test_a_server_without_a_machine_id_is_told_how_to_get_one() -> None:
    error = mismatch(
        ClusterIdentity("uid-prod", PROD_CA, machines={"gpu1": "machine-9"}), ServerIdentity("gpu1", "gpu1", "")
    )

    assert error is not None
    assert "gpu1 has no ID in /etc/machine-id: `systemd-machine-id-setup; systemctl restart kubelet` on it" in error.fix


def test_a_server_that_has_just_joined_is_compared_by_its_cluster_alone() -> None:
    """Without the name of its node, which may still report the machine that had the name before."""
    joined = ServerIdentity("gpu1", "", "machine-1", PROD_CA)

    assert mismatch(ClusterIdentity("uid-prod", PROD_CA, machines={"gpu1": "machine-9"}), joined) is None
    assert mismatch(STAGING, joined) is not None


def objects(**machines: str) -> list[dict[str, Any]]:
    authority = {"kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": pem("prod")}}
    record = {"kind": "ConfigMap", "metadata": {"name": "kubegpu-cluster"}, "data": {"name": "prod", "uid": "uid-prod"}}
    nodes = [
        {"kind": "Node", "metadata": {"name": name}, "status": {"nodeInfo": {"machineID": machine}}}
        for name, machine in machines.items()
    ]
    return [{"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "uid-prod"}}, authority, record, *nodes]


SYSTEM = "GET /api/v1/namespaces/kube-system"


def served(*nodes: dict[str, Any]) -> FakeTransport:
    namespace, authority, record = objects()
    return FakeTransport(
        {
            SYSTEM: namespace,
            f"{SYSTEM}/configmaps/kube-root-ca.crt": authority,
            f"{SYSTEM}/configmaps/kubegpu-cluster": record,
            "GET /api/v1/nodes": {"items": [{part: node[part] for part in ("metadata", "status")} for node in nodes]},
            **{f"GET /api/v1/nodes/{node['metadata']['name']}": node for node in nodes},
        }
    )


@pytest.mark.parametrize("names", [["gpu1"], ["gpu1", "gpu2"]])
def test_a_cluster_is_read_without_a_write(names: Sequence[str]) -> None:
    api = served(*objects(gpu1="machine-1", gpu2="machine-2")[3:])
    cluster = cluster_of(read_cluster(KubeClient(api), names))

    assert (cluster.uid, cluster.authorities, cluster.name) == ("uid-prod", PROD_CA, "prod")
    assert cluster.machines["gpu1"] == "machine-1"
    assert {request.method for request in api.requests} == {"GET"}


def test_who_may_not_read_the_cluster_changes_nothing_in_it() -> None:
    api = FakeTransport({SYSTEM: refusal(403, "forbidden")})

    with pytest.raises(ApiError):
        read_cluster(KubeClient(api), ["gpu1"])


def test_the_name_alone_is_read_as_far_as_one_may() -> None:
    forbidden = FakeTransport({f"{SYSTEM}/configmaps/kubegpu-cluster": refusal(403, "forbidden")})

    assert cluster_of(read_name(KubeClient(forbidden))).name == ""
    assert cluster_of(read_name(KubeClient(served()))).name == "prod"


def test_what_kubectl_lists_is_the_same_cluster() -> None:
    assert cluster_of(objects(), {"gpu1": "machine-1"}) == PROD


def test_a_cluster_and_a_server_are_recorded_once() -> None:
    new = ClusterIdentity("uid-prod", PROD_CA)
    written = config_map(new, "prod")

    assert written is not None
    assert written["data"] == {"name": "prod", "uid": "uid-prod"}
    assert config_map(cluster_of([*objects()[:2], written]), "other") is None
    assert json.loads(server_record(new, UNRECORDED, "prod")) == RECORD
    assert server_record(PROD, GPU1, "prod") == ""
    assert server_record(PROD, BARE, "prod") == ""


@pytest.mark.parametrize(
    ("cluster", "servers", "candidates", "name"),
    [
        (PROD, [], ["lab"], "prod"),
        (ClusterIdentity(), [GPU1], ["lab"], "prod"),
        (ClusterIdentity(), [], ["lab", "ctx", "/srv/inventory"], "lab"),
        (ClusterIdentity(), [], ["", "kubernetes-admin@kubernetes", "/srv/prod/hosts.yml"], "prod"),
        (ClusterIdentity(), [], ["", "", "/srv/prod.yml"], "prod"),
        (
            ClusterIdentity(),
            [],
            ["", "arn:aws:eks:eu-central-1:1:cluster/prod", "/srv"],
            "arn:aws:eks:eu-central-1:1:cluster/prod",
        ),
    ],
)
def test_a_cluster_has_a_name(
    cluster: ClusterIdentity, servers: list[ServerIdentity], candidates: list[str], name: str
) -> None:
    assert cluster_name(cluster, servers, candidates) == name
