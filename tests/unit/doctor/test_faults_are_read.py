"""A fault that objects of the cluster show is also found by what the readers request, not only in a complete state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.preflight import _CHECKS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.registry import CHECKS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import Scope, State
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.check import Check
from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.findings import results_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.change_reader import ChangeReader
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.doctor_reader import DoctorReader
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.reader import Listed, Reader
from clusters import Cluster
from test_doctor_capture import SERVICE, LiveCluster
from test_doctor_checks import FAULTS

# What is a list of objects, by the name of the field.
PARTS = {name: part.resource for name, part in vars(Reader).items() if isinstance(part, Listed)}
Seen = set[tuple[str, str, str]]


def read_only_from(parts: set[str], checks: tuple[Check[State], ...]) -> tuple[Check[State], ...]:
    return tuple(check for check in checks if check.needs and set(check.needs) <= parts)


OF_OBJECTS = read_only_from(set(PARTS), CHECKS)
BEFORE = read_only_from({*PARTS, "hpas", "targets"}, _CHECKS)


def seen_in(state: State, checks: tuple[Check[State], ...]) -> Seen:
    return {(result.type.id, result.object, result.seen) for result in results_of(checks, state)}


def cases(checks: tuple[Check[State], ...], *, before: bool = False) -> list[Any]:
    types = {kind.id for check in checks for kind in check.types if kind.before or not before}
    return [pytest.param(name, id=name) for name in FAULTS if name.split()[0] in types]


def broken(name: str) -> tuple[Cluster, LiveCluster]:
    """The cluster, and the API server that has its objects."""
    cluster, live = Cluster(), LiveCluster()
    FAULTS[name](cluster)
    for part, resource in PARTS.items():
        live.answers[f"GET {resource.path()}"] = {"items": list(getattr(cluster, part) or ())}
    live.answers["GET /apis/apps/v1/namespaces/ml/deployments"] = {"items": [cluster.target] if cluster.target else []}
    for namespace in cluster.namespaces:
        path = f"GET /api/v1/namespaces/{namespace['metadata']['name']}/events"
        live.answers[path] = {"items": [{"metadata": {}, **event} for event in cluster.events]}
    live.answers["GET /api/v1/pods"] = {"items": list(cluster.pods.values())}
    hpas = live.answers["GET /apis/autoscaling/v2/horizontalpodautoscalers"]["items"]
    hpas[0] = {**cluster.state().hpas[0]}
    hpas += cluster.other_hpas
    return cluster, live


def clients(live: LiveCluster) -> tuple[KubeClient, PrometheusClient]:
    kube = KubeClient(live)
    return kube, PrometheusClient(kube.get_raw, namespace="monitoring", service=SERVICE, port=9090)


@pytest.mark.parametrize("name", cases(OF_OBJECTS))
def test_the_doctor_reads_what_its_checks_of_objects_need(name: str) -> None:
    cluster, live = broken(name)
    state = DoctorReader(*clients(live), scope=Scope(), facts=cluster.facts, history_s=0).state()
    found = seen_in(replace(state, autoscalers=cluster.state().autoscalers), OF_OBJECTS)
    assert name.split()[0] in {finding for finding, *_seen in found}
    assert found == seen_in(cluster.state(), OF_OBJECTS)


@pytest.mark.parametrize("name", cases(BEFORE, before=True))
def test_a_change_reads_what_its_checks_of_objects_need(name: str) -> None:
    cluster, live = broken(name)
    spec = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": cluster.hpa["spec"]["maxReplicas"]}
    reader = ChangeReader(*clients(live), [Autoscaler.from_params(spec)], "monitoring")
    assert name.split()[0] in {finding for finding, *_seen in seen_in(reader.state(RuleOptions()), BEFORE)}
