from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replicas import (
    Tolerance,
    desired_replicas,
    desired_replicas_by_total,
    desired_replicas_by_value,
    desired_replicas_together,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from hypothesis import given
from hypothesis import strategies as st

# The expectation of each row follows from the controller's algorithm, percent at a target of 60 if not said otherwise.
CASES = {
    "on target": ([60, 60], {"current": 2}, 2),
    "inside the band above": ([65], {"current": 1}, 1),
    "just outside the band above": ([66.7], {"current": 1}, 2),
    "inside the band below": ([55] * 20, {"current": 20}, 20),
    "on the band's upper edge": ([66] * 10, {"current": 10}, 10),
    "on the band's lower edge": ([54] * 10, {"current": 10}, 10),
    "a thousandth above the band": ([66.001] * 10, {"current": 10}, 12),
    "a thousandth below the band": ([53.999] * 12, {"current": 12}, 11),
    "load of five GPUs on one": ([100], {"current": 1}, 2),
    "half the load": ([30, 30, 30, 30], {"current": 4}, 2),
    "idle": ([0, 0, 0], {"current": 3}, 0),
    "uneven pods count by their mean": ([100, 20], {"current": 2}, 2),
    "wider band": ([75], {"current": 1, "tolerance": Tolerance(up=0.3)}, 1),
    "a wider band above is none below": ([45] * 4, {"current": 4, "tolerance": Tolerance(up=0.3)}, 3),
    "a wider band below is none above": ([75], {"current": 1, "tolerance": Tolerance(down=0.3)}, 2),
    "missing pod damps scaling up to nothing": ([100], {"current": 2, "missing": 1}, 2),
    "missing pods count as idle when scaling up": ([100, 100, 100], {"current": 4, "missing": 1}, 5),
    "missing pod counts as on target when scaling down": ([30, 30], {"current": 3, "missing": 1}, 2),
    "a damped count is rounded up": ([100, 100, 95], {"current": 4, "missing": 1}, 5),
    "missing pod damps scaling down to nothing": ([52, 52], {"current": 5, "missing": 1}, 5),
    "pending pods damp scaling up": ([100, 100, 100], {"current": 4, "unready": 1}, 5),
    "pending pods do not count when not scaling up": ([58, 58], {"current": 3, "unready": 1}, 3),
    "pending pods do not damp scaling down": ([30, 30], {"current": 3, "unready": 1}, 1),
    "exactly on target pending pods change nothing": ([60], {"current": 3, "unready": 1}, 3),
    "missing and pending pods damp together": ([100] * 6, {"current": 8, "missing": 1, "unready": 1}, 10),
    "replicas without a pod do not count": ([90], {"current": 5}, 2),
    "exactly on target missing pods change nothing": ([60], {"current": 3, "missing": 2}, 3),
    "up turns into down once the silent count": ([70], {"current": 4, "missing": 3}, 4),
    "up turns into down above what there is": ([70], {"current": 1, "missing": 3}, 1),
    "up turns into down below what there is": ([70, 70], {"current": 9, "unready": 2}, 9),
    "damped up below what there is": ([100, 100], {"current": 6, "unready": 1}, 6),
    "damped down above what there is": ([30, 30], {"current": 1, "missing": 1}, 1),
    "a value is cut to thousandths": ([66.0009], {"current": 1}, 1),
    "a mean is cut to thousandths": ([66.001, 66], {"current": 2}, 2),
    "a damped mean is cut to thousandths": ([99.001, 99], {"current": 3, "unready": 1}, 3),
    "the ratio is a double, so is its product": ([67.2] * 25, {"current": 25}, 29),
    "a tolerance is a double": ([18] * 10, {"current": 10, "tolerance": Tolerance(down=0.7)}, 10),
}


@pytest.mark.parametrize(("usage", "pods", "expected"), CASES.values(), ids=CASES)
def test_desired_replicas(usage: list[float], pods: dict[str, Any], expected: int) -> None:
    assert desired_replicas(usage, 60, **pods) == expected


VALUES = {
    "on target": (60, {"current": 3, "ready": 2}, 3),
    "on the band's upper edge": (66, {"current": 3, "ready": 10}, 3),
    "a thousandth above the band": (66.001, {"current": 3, "ready": 10}, 12),
    "on the band's lower edge": (54, {"current": 3, "ready": 10}, 3),
    "a thousandth below the band": (53.999, {"current": 3, "ready": 10}, 9),
    "only ready pods count": (90, {"current": 10, "ready": 2}, 3),
    "none is ready": (90, {"current": 3, "ready": 0}, 0),
    "wider band": (75, {"current": 1, "ready": 1, "tolerance": Tolerance(up=0.3)}, 1),
    "a value is cut to thousandths": (66.0009, {"current": 3, "ready": 10}, 3),
}


@pytest.mark.parametrize(("value", "pods", "expected"), VALUES.values(), ids=VALUES)
def test_desired_replicas_by_value(value: float, pods: dict[str, Any], expected: int) -> None:
    assert desired_replicas_by_value(value, 60, **pods) == expected


TOTALS = {
    "on target": (180, {"status_replicas": 3}, 3),
    "on the band's upper edge": (660, {"status_replicas": 10}, 10),
    "a thousandth above the band": (660.001, {"status_replicas": 10}, 12),
    "on the band's lower edge": (540, {"status_replicas": 10}, 10),
    "a thousandth below the band": (539.999, {"status_replicas": 10}, 9),
    "a load of many": (600, {"status_replicas": 1}, 10),
    "idle": (0, {"status_replicas": 3}, 0),
    "wider band": (225, {"status_replicas": 3, "tolerance": Tolerance(up=0.3)}, 3),
    "a value is cut to thousandths": (660.0009, {"status_replicas": 10}, 10),
    "no replica yet": (60, {"status_replicas": 0}, 1),
    "no replica yet and nothing to do": (0, {"status_replicas": 0}, 0),
}


@pytest.mark.parametrize(("value", "pods", "expected"), TOTALS.values(), ids=TOTALS)
def test_desired_replicas_by_total(value: float, pods: dict[str, Any], expected: int) -> None:
    assert desired_replicas_by_total(value, 60, **pods) == expected


@pytest.mark.parametrize("target", [59.9991, 59.99999, 60])
def test_a_target_is_rounded_up_to_thousandths(target: float) -> None:
    assert desired_replicas([66], target, current=1) == 1
    assert desired_replicas_by_value(66, target, current=1, ready=1) == 1
    assert desired_replicas_by_total(66, target, status_replicas=1) == 1


@pytest.mark.parametrize(("target", "edge"), [(64.1, 70.51), (16.1, 14.49)])
def test_a_target_is_read_as_it_is_written(target: float, edge: float) -> None:
    """As doubles, the first is below 64100 thousandths and the second above 16100."""
    assert desired_replicas([edge] * 10, target, current=10) == 10


TOGETHER = {
    "the largest wins": ([3, 5, 4], 5),
    "scaling down is the word of all": ([1, 2], 2),
    "down to nothing": ([0, 0], 0),
    "one without a value does not hinder scaling up": ([6, None], 6),
    "one without a value forbids scaling down": ([None, 2], 4),
    "none has a value": ([None, None], 4),
}


@pytest.mark.parametrize(("proposals", "expected"), TOGETHER.values(), ids=TOGETHER)
def test_desired_replicas_together(proposals: list[int | None], expected: int) -> None:
    assert desired_replicas_together(proposals, current=4) == expected


VECTORS = json.loads((Path(__file__).parent / "vectors" / "replica_calculator.json").read_text())["cases"]
FORMS: dict[str, Callable[..., int]] = {
    "pods": desired_replicas,
    "value": desired_replicas_by_value,
    "total": desired_replicas_by_total,
}


@pytest.mark.parametrize(("form", "name"), [(form, name) for form in FORMS for name in VECTORS[form]])
def test_the_controllers_own_cases(form: str, name: str) -> None:
    vector = dict(VECTORS[form][name])
    expected, tolerance = vector.pop("expected"), Tolerance(**vector.pop("tolerance", {}))
    measured = vector.pop("usage" if form == "pods" else "value")
    assert FORMS[form](measured, vector.pop("target"), tolerance=tolerance, **vector) == expected


def test_without_a_value_there_is_no_answer() -> None:
    with pytest.raises(HopError) as caught:
        desired_replicas([], 60, current=2)
    assert caught.value.hop == "metric"


utilisations = st.lists(st.floats(0, 100), min_size=1, max_size=20)
pods = st.integers(0, 5)


@given(utilisations, st.floats(1, 100), st.floats(0, 50), pods, pods)
def test_more_load_never_means_fewer_replicas(
    usage: list[float], target: float, more: float, missing: int, unready: int
) -> None:
    current = len(usage) + missing + unready
    counted = {"current": current, "missing": missing, "unready": unready}
    assert desired_replicas([value + more for value in usage], target, **counted) >= desired_replicas(
        usage, target, **counted
    )


@given(utilisations, st.floats(1, 100), pods, pods)
def test_silent_pods_never_add_to_a_change(usage: list[float], target: float, missing: int, unready: int) -> None:
    current = len(usage) + missing + unready
    damped = desired_replicas(usage, target, current=current, missing=missing, unready=unready)
    if sum(usage) / len(usage) > target:
        as_busy = [*usage, *[max(usage)] * (missing + unready)]
        assert damped <= max(current, desired_replicas(as_busy, target, current=current))
    else:
        assert damped <= current
