"""A proof is kept only while what it rests on is the same. The cases are the list itself, and what the reader reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, cast

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.prove import (
    Cluster,
    Request,
    proof_reader,
    prove,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import ADAPTER, KEDA
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PROMETHEUSES,
    RUNTIME_CLASSES,
    KubeClient,
    Resource,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import NAME_LABEL
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof import basis
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.manifests import Options
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.nodes import GpuServer
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.record import DENIED, NAME, Entry, Record
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.proof_reader import POLICIES, POLICY_BINDINGS
from gpu_fleet import node, plugin, server, workload

AT = "2026-11-28T06:00:00+00:00"
SERVER = server(uuids=("GPU-1", "GPU-2"), toolkit="1.19.0", toolkit_config="0f1e2d")


def deployment(name: str) -> dict[str, Any]:
    return workload(name, f"registry/{name}:v1", chart=f"{name}-1.0.0", labels={NAME_LABEL: name})


class FakeKube:
    """A cluster that a proof reads in check mode."""

    dry_run = True

    def __init__(self) -> None:
        self.version = "v1.36.3"
        prometheus = {"metadata": {"name": "k8s", "labels": {"chart": "kube-prometheus-stack-90.0.0"}}, "spec": {}}
        self.objects: dict[str, list[dict[str, Any]]] = {
            NODES.plural: [node()],
            DAEMON_SETS.plural: [plugin(), workload("dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4")],
            DEPLOYMENTS.plural: [deployment(name) for name in basis.DEPLOYMENTS],
            PROMETHEUSES.plural: [prometheus],
            POLICIES.plural: [{"metadata": {"name": "gpus-on-request"}, "spec": {"failurePolicy": "Fail"}}],
            POLICY_BINDINGS.plural: [{"metadata": {"name": "gpus"}, "spec": {"policyName": "gpus-on-request"}}],
            RUNTIME_CLASSES.plural: [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}],
        }
        self.record: Record = Record()

    def list(self, resource: Resource, **_selectors: Any) -> list[dict[str, Any]]:
        return deepcopy(self.objects.get(resource.plural, []))

    def get(self, resource: Resource, name: str, *_place: str | None) -> dict[str, Any] | None:
        is_record = (resource, name) == (CONFIG_MAPS, NAME) and self.record != Record()
        return dict(self.record.config_map("default")) if is_record else None

    def get_raw(self, _path: str, *_query: object, **_more: Any) -> dict[str, Any]:
        return {"gitVersion": self.version}

    def now(self) -> datetime:
        return datetime.fromisoformat(AT)


class Proof:
    """Runs of gpu_proof in check mode against one cluster."""

    def __init__(self, backend: str = ADAPTER) -> None:
        self.kube, self.servers = FakeKube(), [SERVER]
        self.options = Options("default", "proof", "python", {}, runtime_class="nvidia", backend=backend)
        self.nodes: tuple[str, ...] = ()

    def _run(self) -> tuple[Cluster, Request]:
        prometheus = PrometheusClient(lambda *_a, **_k: {}, namespace="monitoring", service="prometheus", port=9090)
        request = Request(self.options, servers=self.servers, nodes=self.nodes)
        return Cluster(cast(KubeClient, self.kube), prometheus, RuleOptions()), request

    def statuses(self) -> tuple[str, str]:
        """Of the node, and of the chain."""
        result = prove(*self._run()).result
        return result["nodes"][0]["status"], result["chain"]["status"]

    def errors(self) -> list[str]:
        return [str(error) for error in prove(*self._run()).errors]

    def known(self) -> tuple[dict[str, str], dict[str, str]]:
        """What a proof of the node and of the chain rests on now."""
        seen = proof_reader(*self._run()).seen((), with_pods=False)
        return dict(seen.nodes[0].versions), dict(seen.chain)

    def succeed(self) -> None:
        """Record what a successful proof would."""
        on_node, chain = self.known()
        self.kube.record = Record(
            {"machine-gpu1": Entry(AT, on_node, "gpu1", 8, unrequested=DENIED)}, Entry(AT, chain, gpus=2)
        )


@pytest.fixture(params=[ADAPTER, KEDA])
def proof(request: pytest.FixtureRequest) -> Proof:
    proof = Proof(request.param)
    proof.succeed()
    return proof


ENTRIES = [(table, name) for table in ("NODE", "CHAIN") for name in getattr(basis, table)]


def test_each_entry_is_known_with_one_of_the_backends() -> None:
    """So the cases below change something."""
    nodes, chains = zip(*(Proof(backend).known() for backend in (ADAPTER, KEDA)), strict=True)
    assert set(nodes[0]) == set(basis.NODE)
    assert {name for chain in chains for name in chain} == set(basis.CHAIN)


def test_a_second_run_keeps_both(proof: Proof) -> None:
    assert proof.statuses() == ("kept", "kept")
    assert proof.errors() == []


@pytest.mark.parametrize("now", ["another", ""], ids=["changed", "gone"])
@pytest.mark.parametrize(("table", "name"), ENTRIES)
def test_an_entry_that_is_not_the_same_is_proven_again(
    table: str, name: str, now: str, proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = proof.known()[table == "CHAIN"]
    if name not in before:
        pytest.skip("of the other backend")
    monkeypatch.setitem(cast(dict[str, Any], getattr(basis, table)), name, lambda _parts: now)
    on_node, chain = proof.statuses()
    assert (on_node if table == "NODE" else chain) != "kept"


@pytest.mark.parametrize(("table", "name"), ENTRIES)
def test_an_entry_that_was_unknown_then_is_proven_again(table: str, name: str, proof: Proof) -> None:
    before = proof.kube.record
    assert before.chain
    of_node, chain = (
        replace(entry, versions={key: value for key, value in entry.versions.items() if key != name})
        for entry in (before.machines["machine-gpu1"], before.chain)
    )
    proof.kube.record = Record({"machine-gpu1": of_node}, chain)
    if name not in proof.known()[table == "CHAIN"]:
        pytest.skip("of the other backend")
    assert proof.statuses()[table == "CHAIN"] != "kept"


def changes(proof: Proof) -> Iterator[tuple[str, Proof]]:
    """The proof with each value that it reads of the cluster, the servers and its options changed, and without it."""

    def copy() -> Proof:
        return deepcopy(proof)

    for plural, objects in proof.kube.objects.items():
        for number, found in enumerate(objects):
            if plural != NODES.plural:
                gone = copy()
                del gone.kube.objects[plural][number]
                yield f"{plural} {found['metadata']['name']} gone", gone
            if plural != NODES.plural:
                other = copy()
                its = other.kube.objects[plural][number]
                spec = its.get("spec", its)
                spec.get("template", {}).get("spec", spec)["other"] = "setting"
                yield f"{plural} {found['metadata']['name']} with another setting", other
    for field in proof.kube.objects[NODES.plural][0]["status"]["nodeInfo"]:
        other = copy()
        other.kube.objects[NODES.plural][0]["status"]["nodeInfo"][field] = "another"
        yield f"node {field}", other
    for field in fields(GpuServer):
        if getattr(SERVER, field.name) and isinstance(getattr(SERVER, field.name), (str, tuple)):
            for value in ("other", ""):
                other = copy()
                of_field: Any = tuple(filter(None, [value])) if field.name == "uuids" else value
                other.servers = [replace(SERVER, **{field.name: of_field})]
                yield f"server {field.name} {value or 'gone'}", other
    for name, value in {"runtime_class": "other", "backend": KEDA}.items():
        if getattr(proof.options, name) != value:
            other = copy()
            other.options = replace(other.options, **{name: value})
            yield f"option {name}", other
    other = copy()
    other.kube.version = "v1.37.0"
    yield "kubernetes", other


def test_no_part_that_is_read_may_change_or_go() -> None:
    """Each object, field and option in turn. Those of the other backend do not count."""
    kept = {ADAPTER: set(), KEDA: set()}
    for backend in kept:
        proof = Proof(backend)
        proof.succeed()
        kept[backend] = {name for name, changed in changes(proof) if changed.statuses() == ("kept", "kept")}
    of_other = {
        ADAPTER: {f"{DEPLOYMENTS.plural} {name}" for name in basis._KEDA},
        KEDA: {f"{DEPLOYMENTS.plural} {name}" for name in basis._ADAPTER},
    }
    for backend, names in kept.items():
        expected = {f"{name} {what}" for name in of_other[backend] for what in ("gone", "with another setting")}
        assert names == expected


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_node_that_offers_no_gpu_any_more_is_an_error(is_shared: bool) -> None:
    """Without servers in the inventory, as on a managed cluster whose device plugin is gone."""
    proof = Proof()
    proof.servers = []
    labels = {"nvidia.com/gpu.replicas": "4"} if is_shared else {}
    proof.kube.objects[NODES.plural] = [node(labels=labels)]
    proof.succeed()
    assert proof.statuses() == ("kept", "kept")
    proof.kube.objects[NODES.plural] = [node(gpus=0, labels=labels)]
    assert proof.statuses()[0] == "failed"
    assert "node gpu1 offers 0 of 8 GPUs (the last proof)" in proof.errors()[0]
    assert "kubectl -n kube-system delete configmap kubegpu-proof" in proof.errors()[0]


def test_gpus_that_were_taken_out_are_no_error_once_that_is_expected() -> None:
    proof = Proof()
    proof.succeed()
    proof.kube.objects[NODES.plural] = [node(gpus=0)]
    proof.servers = [server(gpus=0)]
    assert "0 of 8 GPUs (the last proof, 0 on the PCI bus)" in proof.errors()[0]
    proof.servers = [server(gpus=0, expected=0)]
    assert proof.errors() == []


@pytest.mark.parametrize("offered", range(9))
def test_a_gpu_that_does_not_work_is_missing_at_the_first_proof_too(offered: int) -> None:
    """The kubelet's capacity counts GPUs that the device plugin reports as unhealthy."""
    proof = Proof()
    proof.servers = []
    proof.kube.objects[NODES.plural] = [node(gpus=offered, capacity=8)]
    is_whole = offered == 8
    assert (proof.errors() == []) is is_whole
    assert is_whole or f"offers {offered} of 8 GPUs (its capacity)" in proof.errors()[0]


WAITING: dict[str, dict[str, Any]] = {
    "offers no GPU": node(gpus=0, labels={"nvidia.com/gpu.present": "true"}),
    "is not ready": node(ready=False),
    "has no machine ID": node(machine=""),
}


@pytest.mark.parametrize("name", WAITING)
def test_a_run_that_proves_nothing_fails(name: str) -> None:
    proof = Proof()
    proof.servers = []
    proof.kube.objects[NODES.plural] = [WAITING[name]]
    (error,) = proof.errors()
    assert error.startswith("node: nothing was proven on gpu1. gpu1: ")
    assert "kubegpu_proof: false" in error


def test_a_cluster_without_gpus_has_nothing_to_prove() -> None:
    proof = Proof()
    proof.servers = []
    proof.kube.objects[NODES.plural] = [node(gpus=0)]
    assert proof.errors() == []


def test_a_node_that_is_named_has_to_be_proven() -> None:
    proof = Proof()
    proof.nodes = ("gpu1", "gpu2")
    (error,) = proof.errors()
    assert "nothing was proven on gpu2: it is no node with GPUs" in error


def test_the_record_is_json_of_short_texts() -> None:
    """1,000 nodes fit into a ConfigMap of 1 MiB, with half of it free."""
    proof = Proof()
    proof.succeed()
    (text,) = (text for key, text in proof.kube.record.config_map("default")["data"].items() if key != "chain")
    assert len(text) < 512
    assert json.loads(text)["versions"]["boot"] == "1a2b3c4d-000"
