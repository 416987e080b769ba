"""Which nodes can take the pods of a node that is drained."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.nodes_beside import RESERVED, nodes_beside


def node(name: str, *taints: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"taints": [{"key": key} for key in taints], **spec}}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], []),
        ([node("cp1", RESERVED)], []),
        ([node("cp1")], ["cp1"]),
        ([node("cp1", RESERVED), node("gpu2", "nvidia.com/gpu")], ["gpu2"]),
        ([node("gpu2", "node.kubernetes.io/unschedulable", unschedulable=True)], ["gpu2"]),
        ([{"metadata": {"name": "bare"}, "spec": {}}], ["bare"]),
    ],
    ids=["none", "a control plane", "one that takes pods", "a worker", "a cordoned worker", "without a taint"],
)
def test_pods_move_to_workers(others: list[dict[str, Any]], expected: list[str]) -> None:
    assert nodes_beside([node("gpu1"), *others], "gpu1") == expected
