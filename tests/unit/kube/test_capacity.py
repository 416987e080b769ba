"""Replicas that fit, node by node, as the scheduler's filters would have it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.capacity import (
    gpus_of,
    gpus_per_pod,
    replicas_that_fit,
)
from hypothesis import given
from hypothesis import strategies as st


def node(gpus: int = 4, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": "8", "nvidia.com/gpu": str(gpus)}
    metadata = {"name": "gpu1", "labels": labels or {}}
    return {"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable}}


def pod(gpus: int = 1, **spec: Any) -> dict[str, Any]:
    return {"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}], **spec}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
A100 = {"gpu": "a100", "count": "8"}


@pytest.mark.parametrize(
    ("demand", "nodes", "expected"),
    [
        (pod(), [node(), node()], 8),
        (pod(gpus=3), [node(), node()], 2),
        (pod(gpus=8), [node(), node()], 0),
        (pod(gpus=0), [node()], 0),
        ({"containers": [{}]}, [node()], 0),
        (pod(), [], 0),
        (pod(), [node(unschedulable=True), node()], 4),
        (pod(), [node(taints=[TAINT])], 0),
        (pod(), [node(taints=[{**TAINT, "effect": "PreferNoSchedule"}])], 4),
        (pod(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]), [node(taints=[TAINT])], 4),
        (pod(tolerations=[{"operator": "Exists"}]), [node(taints=[TAINT])], 4),
        (pod(tolerations=[{"key": "nvidia.com/gpu", "value": "present"}]), [node(taints=[TAINT])], 4),
        (pod(tolerations=[{"key": "nvidia.com/gpu", "value": "no"}]), [node(taints=[TAINT])], 0),
        (pod(tolerations=[{"operator": "Exists", "effect": "NoExecute"}]), [node(taints=[TAINT])], 0),
        (pod(nodeSelector={"gpu": "a100"}), [node(labels=A100), node()], 4),
        (pod(**affinity(term("gpu", "In", "a100", "h100"))), [node(labels=A100), node()], 4),
        (pod(**affinity(term("gpu", "NotIn", "a100"))), [node(labels=A100), node()], 4),
        (pod(**affinity(term("gpu", "Exists"))), [node(labels=A100), node()], 4),
        (pod(**affinity(term("gpu", "DoesNotExist"))), [node(labels=A100), node(2)], 2),
        (pod(**affinity(term("count", "Gt", "7"))), [node(labels=A100), node()], 4),
        (pod(**affinity(term("count", "Lt", "8"))), [node(labels=A100), node()], 0),
        (pod(**affinity(term("x", "Exists"), term("gpu", "Exists"))), [node(labels=A100)], 4),
        (pod(**affinity({})), [node()], 0),
        (
            pod(**affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu1"]}]})),
            [node()],
            4,
        ),
    ],
)
def test_replicas_that_fit(demand: dict[str, Any], nodes: list[dict[str, Any]], expected: int) -> None:
    assert replicas_that_fit(demand, nodes) == expected


def test_the_scarcer_resource_decides() -> None:
    mixed = node()
    mixed["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] = "2"
    limits = {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1", "cpu": "4"}
    assert replicas_that_fit({"containers": [{"resources": {"limits": limits}}]}, [mixed]) == 2


def test_limits_of_all_containers_count() -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "2", "memory": "1Gi"}}}
    assert gpus_per_pod({"containers": [limits, limits, {}]}) == {"nvidia.com/gpu": 4}


LIMITS = st.dictionaries(st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "cpu"]), st.integers(0, 3))
CONTAINERS = st.lists(LIMITS.map(lambda limits: {"resources": {"limits": limits}}), max_size=3)
INIT_CONTAINERS = st.lists(
    st.tuples(LIMITS, st.sampled_from(["Always", None])).map(
        lambda its: {"resources": {"limits": its[0]}, "restartPolicy": its[1]}
    ),
    max_size=4,
)


@given(CONTAINERS, INIT_CONTAINERS)
def test_a_pod_needs_the_most_that_runs_at_any_time(containers: Any, init_containers: Any) -> None:
    """The pod is run step by step."""
    running: list[Any] = []
    moments = [[]]
    for container in init_containers:
        running.append(container)
        moments.append(list(running))
        if container["restartPolicy"] is None:
            running.remove(container)
    moments.append([*running, *containers])
    found = gpus_per_pod({"containers": containers, "initContainers": init_containers})
    for resource in ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "cpu"):
        held = [sum(its["resources"]["limits"].get(resource, 0) for its in moment) for moment in moments]
        assert found.get(resource, 0) == (max(held) if resource != "cpu" else 0)
    assert all(found.values())


def test_gpus_of_all_nodes() -> None:
    assert gpus_of([node(4), node(2), {"metadata": {}}]) == {"nvidia.com/gpu": 6}


def test_a_label_that_is_no_number_is_neither_more_nor_less() -> None:
    term = {"matchExpressions": [{"key": "gpus", "operator": "Gt", "values": ["4"]}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}},
    }
    pod = {"affinity": affinity, "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    nodes = [
        {"metadata": {"name": count, "labels": {"gpus": count}}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
        for count in ("many", "4", "8")
    ]
    assert replicas_that_fit(pod, nodes) == 8
