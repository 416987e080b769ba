"""When the GPU operator counts as ready."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import gpu_operator_status

PRESENT = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def ready(reason: str) -> dict[str, Any]:
    return {"state": "ready", "conditions": [{"type": "Ready", "status": "True", "reason": reason}]}


@pytest.mark.parametrize(
    ("policy", "validators", "nodes", "expected"),
    [
        (ready("NFDLabelsMissing"), 0, 0, False),
        (ready("NoGPUNodes"), 0, 0, True),
        (ready("Reconciled"), 1, 2, False),
        (ready("Reconciled"), 2, 2, True),
        ({"state": "ready"}, 2, 2, True),
        ({"state": "notReady"}, 2, 2, False),
    ],
    ids=["no labels yet", "a pool at zero", "one of two", "both", "an operator without conditions", "not ready"],
)
def test_a_verdict_counts_once_nodes_are_labelled(
    policy: dict[str, Any], validators: int, nodes: int, expected: bool
) -> None:
    """Before its node-feature-discovery has labelled any, the operator has no node to set up, and reports ready."""
    validator = {"status": {"numberReady": validators}}
    status = gpu_operator_status([[{"status": policy}], [validator] if validators else [], [PRESENT] * nodes])
    assert status["ready"] is expected
    assert (status["valid"], status["nodes"]) == (validators, nodes)


def test_what_is_missing_is_named() -> None:
    assert gpu_operator_status([[], [], []])["verdict"] == "no ClusterPolicy"
    assert gpu_operator_status([[{"status": None}], [{"status": {}}], [{}]]) == {
        "verdict": "none yet",
        "valid": 0,
        "nodes": 0,
        "ready": False,
    }
    unlabelled = gpu_operator_status([[{"status": ready("NFDLabelsMissing")}], [], []])
    assert unlabelled["verdict"] == "ready, without a label of node-feature-discovery"
    error = {"type": "Error", "status": "True", "reason": "OperandNotReady", "message": "nvidia-driver-daemonset"}
    failing = gpu_operator_status([[{"status": {"state": "notReady", "conditions": [error]}}], [], []])
    assert failing["verdict"] == "notReady (OperandNotReady: nvidia-driver-daemonset)"
    over = gpu_operator_status(
        [[{"status": {"state": "notReady", "conditions": [{**error, "status": "False"}]}}], [], []]
    )
    assert over["verdict"] == "notReady"
