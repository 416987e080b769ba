"""What an HPA wants, by its own status: of prometheus-adapter and of KEDA."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.decision import pods_value, wanted_replicas


def hpa(type_: str, current: str | None, target: str, *, desired: int, limited: bool = True) -> dict[str, Any]:
    part = {"metric": {"name": "m"}}
    average = {"type": "AverageValue", "averageValue": target}
    limit = {"type": "ScalingLimited", "status": str(limited), "reason": "TooManyReplicas"}
    value = {type_: {**part, "current": {"averageValue": current}}} if current else {"type": ""}
    return {
        "spec": {"metrics": [{type_: {**part, "target": average}}]},
        "status": {
            "currentReplicas": 1,
            "desiredReplicas": desired,
            "currentMetrics": [value],
            "conditions": [limit],
        },
    }


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (hpa("pods", "95", "60", desired=1), 2),
        (hpa("pods", "45", "60", desired=1), 1),
        (hpa("external", "2", "1", desired=1), 2),
        (hpa("external", "2", "1", desired=1, limited=False), 1),
        (hpa("external", None, "1", desired=1), 1),
        ({}, 0),
    ],
    ids=["load", "less load", "KEDA's number", "not limited", "no value", "no HPA"],
)
def test_at_its_maximum_the_values_tell_what_it_would_want(found: dict[str, Any], wanted: int) -> None:
    assert wanted_replicas(found) == wanted


def test_keda_s_hpa_shows_no_load() -> None:
    """`stays` has target type Value."""
    by_keda = hpa("external", "2", "1", desired=1)
    by_keda["spec"]["metrics"].append(
        {"external": {"metric": {"name": "s1"}, "target": {"type": "Value", "value": "1"}}}
    )
    by_keda["status"]["currentMetrics"].append({"external": {"metric": {"name": "s1"}, "current": {"value": "0"}}})
    assert pods_value(by_keda) is None
    assert wanted_replicas(by_keda) == 2
    assert pods_value(hpa("pods", "41500m", "60", desired=1)) == 41.5
