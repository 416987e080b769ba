from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.domain import HopError, desired_replicas
from hypothesis import given
from hypothesis import strategies as st

# The expectation of each row follows from the controller's algorithm, percent at a target of 60 if not said otherwise.
CASES = {
    "on target": ([60, 60], {"current": 2}, 2),
    "inside the band above": ([65], {"current": 1}, 1),
    "just outside the band above": ([66.7], {"current": 1}, 2),
    "inside the band below": ([55] * 20, {"current": 20}, 20),
    "load of five GPUs on one": ([100], {"current": 1}, 2),
    "half the load": ([30, 30, 30, 30], {"current": 4}, 2),
    "idle": ([0, 0, 0], {"current": 3}, 0),
    "uneven pods count by their mean": ([100, 20], {"current": 2}, 2),
    "wider band": ([75], {"current": 1, "tolerance": 0.3}, 1),
    "missing pod damps scaling up to nothing": ([100], {"current": 2, "missing": 1}, 2),
    "missing pods count as idle when scaling up": ([100, 100, 100], {"current": 4, "missing": 1}, 5),
    "missing pod counts as on target when scaling down": ([30, 30], {"current": 3, "missing": 1}, 2),
    "pending pods damp scaling up": ([100, 100, 100], {"current": 4, "unready": 1}, 5),
    "pending pods do not count when not scaling up": ([58, 58], {"current": 3, "unready": 1}, 3),
    "replicas without a pod do not count": ([90], {"current": 5}, 2),
    "exactly on target missing pods change nothing": ([60], {"current": 3, "missing": 2}, 3),
    "up turns into down once the silent count": ([70], {"current": 4, "missing": 3}, 4),
    "damped up below what there is": ([100, 100], {"current": 6, "unready": 1}, 6),
}


@pytest.mark.parametrize(("usage", "pods", "expected"), CASES.values(), ids=CASES)
def test_desired_replicas(usage: list[float], pods: dict[str, int], expected: int) -> None:
    assert desired_replicas(usage, 60, **pods) == expected


VECTORS = json.loads((Path(__file__).parent / "vectors" / "replica_calculator.json").read_text())["cases"]


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_the_controllers_own_cases(vector: dict[str, Any]) -> None:
    given = dict(vector)
    expected = given.pop("expected")
    assert desired_replicas(given.pop("usage"), given.pop("target"), **given) == expected


def test_without_a_value_there_is_no_answer() -> None:
    with pytest.raises(HopError) as caught:
        desired_replicas([], 60, current=2)
    assert caught.value.hop == "adapter -> custom.metrics.k8s.io"


utilisations = st.lists(st.floats(0, 100), min_size=1, max_size=20)
pods = st.integers(0, 5)


@given(utilisations, st.floats(1, 100), st.floats(0, 50), pods, pods)
def test_more_load_never_means_fewer_replicas(
    usage: list[float], target: float, more: float, missing: int, unready: int
) -> None:
    current = len(usage) + missing + unready
    counted = {"current": current, "missing": missing, "unready": unready}
    assert desired_replicas([each + more for each in usage], target, **counted) >= desired_replicas(
        usage, target, **counted
    )


@given(utilisations, st.floats(1, 100), pods, pods)
def test_silent_pods_never_add_to_a_change(usage: list[float], target: float, missing: int, unready: int) -> None:
    current = len(usage) + missing + unready
    damped = desired_replicas(usage, target, current=current, missing=missing, unready=unready)
    mean = sum(usage) / len(usage)
    if mean > target:
        assert damped <= max(current, desired_replicas([mean] * current, target, current=current))
    else:
        assert damped <= current
