"""A target from a goal, on a recorded sweep and on laws that hold for any sweep."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.target_fit import Level, find_target, monotone
from hypothesis import given
from hypothesis import strategies as st

# vLLM 0.32.0 with --max-num-seqs 16, recorded on 2026-11-26: 16 s a level. Users, requests, requests a second, running
# and waiting ones, and p50, p95 and p99 of the time to first token and of the latency.
SWEEP = (
    (1, 18, 1.12, 0.94, (44.6, 112.0, 112.0), (799.1, 1759.3, 1759.3)),
    (2, 34, 2.12, 2.0, (55.9, 124.3, 151.5), (979.1, 1519.7, 1591.8)),
    (4, 72, 4.5, 3.5, (63.6, 302.4, 375.0), (879.3, 1431.1, 1523.9)),
    (6, 85, 5.31, 5.38, (64.6, 129.7, 188.1), (966.2, 2637.2, 2982.6)),
    (8, 128, 8.0, 7.62, (53.9, 178.8, 441.4), (935.6, 2849.8, 4109.0)),
    (12, 196, 12.25, 10.12, (70.9, 394.4, 621.5), (932.4, 1712.3, 1884.6)),
    (16, 208, 13.0, 14.12, (71.8, 255.3, 371.2), (1024.2, 2615.6, 2834.0)),
    (20, 213, 13.31, 18.57, (321.9, 805.5, 868.4), (1443.8, 2485.2, 2808.9)),
    (24, 206, 12.88, 21.56, (609.0, 1320.4, 1489.5), (1664.7, 3335.5, 3786.1)),
    (32, 208, 13.0, 31.0, (1203.6, 2607.7, 2785.8), (2397.1, 4460.2, 4843.8)),
)
TTFT = [Level(*row[:4], *row[4]) for row in SWEEP]
LATENCY = [Level(*row[:4], *row[5]) for row in SWEEP]


@pytest.mark.parametrize(
    ("levels", "goal_ms", "value", "users", "limited_by"),
    [
        pytest.param(TTFT, 500, 12, 16, "knee", id="first tokens within half a second"),
        # 20 users hold it too, but the last four of them add no throughput.
        pytest.param(TTFT, 1000, 12, 16, "knee", id="within a second"),
        pytest.param(TTFT, 200, 6, 8, "goal", id="within a fifth of a second"),
        pytest.param(LATENCY, 2300, 9, 12, "goal", id="answers within 2.3 s"),
        pytest.param(LATENCY, 1000, None, 1, "goal", id="one user waits longer"),
    ],
)
def test_a_recorded_sweep(levels: list[Level], goal_ms: float, value: int | None, users: int, limited_by: str) -> None:
    found = find_target(levels, goal_ms)
    assert (found.value, found.users, found.knee, found.limited_by) == (value, users, 16, limited_by)
    assert not found.is_past_last
    assert found.lowest <= (found.value or 0) <= found.highest


def test_the_fit_is_the_one_by_hand() -> None:
    assert [round(time_ms) for time_ms in find_target(TTFT, 500).fitted_ms] == [
        *(112, 124, 195, 195, 195, 323, 323, 806, 1320, 2608),
    ]


def test_noise_is_told() -> None:
    """Of the raw figures 6 and 8 users miss 2.3 s, and 12 hold it."""
    assert find_target(LATENCY, 2300).noise_decides
    assert not find_target(TTFT, 500).noise_decides
    assert find_target(TTFT, 300).noise_decides


@pytest.mark.parametrize(("times", "between"), [(1, (1, 6)), (1_000_000, (6, 6))])
def test_few_requests_leave_a_wide_range(times: int, between: tuple[int, int]) -> None:
    """72 to 128 requests a level, or a million times as many with the same percentiles."""
    found = find_target([replace(level, requests=times * level.requests) for level in TTFT], 200)
    assert (found.value, found.lowest, found.highest) == (6, *between)


def test_a_sweep_that_ends_too_soon_says_so() -> None:
    assert find_target(TTFT[:4], 500).is_past_last
    assert not find_target(TTFT[:4], 100).is_past_last


TIMES = st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 1000)), min_size=1, max_size=12)


@given(TIMES)
def test_a_fit_never_falls_and_keeps_the_weighted_mean(rows: list[tuple[float, int]]) -> None:
    values, weights = [value for value, _weight in rows], [weight for _value, weight in rows]
    fitted = monotone(values, weights)
    assert all(one <= other + 1e-6 for one, other in pairwise(fitted))
    total = sum(value * weight for value, weight in rows)
    assert sum(value * weight for value, weight in zip(fitted, weights, strict=True)) == pytest.approx(total)
    assert fitted == values or values != sorted(values)


@given(st.floats(1, 1e4), st.floats(1, 1e4))
def test_a_looser_goal_never_lowers_the_target(one: float, other: float) -> None:
    strict, loose = sorted((one, other))
    assert (find_target(TTFT, strict).value or 0) <= (find_target(TTFT, loose).value or 0)
