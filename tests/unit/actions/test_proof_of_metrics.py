"""Evidence of metrics: of this cluster's GPUs alone, and what cannot be read is no failure of the proof."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.proof_of_chain import ChainProof
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.proof_of_metrics import gpu_series
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError, QueryError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import Hop

NODE = {"__name__": "DCGM_FI_DEV_GPU_UTIL"}


def prometheus(*rows: dict[str, str], gpus: tuple[float, ...] = (), error: Exception | None = None) -> Any:
    """Answers each query with the rows, and keeps the queries."""
    asked: list[str] = []

    def query(promql: str) -> list[Any]:
        asked.append(promql)
        if error:
            raise error
        return [SimpleNamespace(labels={**NODE, **row}, values=[of]) for row, of in zip(rows, gpus, strict=True)]

    return SimpleNamespace(query=query, asked=asked)


def test_rows_of_another_cluster_do_not_count() -> None:
    found = prometheus()
    gpu_series(found, {"gpu1"}, {"exporter": {"cluster": "ours"}})
    assert 'UUID!="",cluster="ours"}' in found.asked[0]


@pytest.mark.parametrize("gpus", [(8.0, 1.0), (1.0, 8.0)])
def test_of_two_labels_with_the_name_of_a_node_the_one_of_more_gpus_counts(gpus: tuple[float, float]) -> None:
    found = prometheus({"Hostname": "gpu1"}, {"hostname": "gpu1"}, gpus=gpus)
    assert gpu_series(found, {"gpu1"}, {}) == {"DCGM_FI_DEV_GPU_UTIL": {"gpu1": 8}}


@pytest.mark.parametrize(
    "error",
    [ApiError(503, "busy", "GET /api"), QueryError("bad"), HopError(Hop.SCRAPE, seen="gone", fix="wait")],
    ids=type,
)
def test_what_prometheus_does_not_answer_is_unread(error: Exception) -> None:
    options: Any = SimpleNamespace(namespace="proof")
    proof = ChainProof(SimpleNamespace(), prometheus(error=error), RuleOptions(), options)  # type: ignore[arg-type]
    read = proof._read_metrics({"gpu1"}, "")
    assert list(read) == ["unread"]
