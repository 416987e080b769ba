"""When the run believes the GPU operator's verdict."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from collection import ROOT
from role_values import RoleValues

(WAIT,) = yaml.safe_load((ROOT / "roles/gpu_operator/tasks/verify.yml").read_text())[0]["block"]
PRESENT = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def is_believed(policy: dict[str, Any], validators: int, nodes: int) -> bool:
    """Whether the run goes on, after one look at the cluster."""
    validator = {"status": {"numberReady": validators}}
    seen = {"result": {"objects": [[{"status": policy}], [validator] if validators else [], [PRESENT] * nodes]}}
    return bool(RoleValues("gpu_operator", {}, {"__gpu_operator_seen": seen})[WAIT["until"]])


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
def test_a_verdict_counts_once_nodes_were_looked_at(
    policy: dict[str, Any], validators: int, nodes: int, expected: bool
) -> None:
    """Before its node-feature-discovery has labelled any, the operator has no node to make ready, and says ready."""
    assert is_believed(policy, validators, nodes) is expected
