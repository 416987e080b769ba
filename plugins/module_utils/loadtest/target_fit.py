# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The target value of a metric that holds a goal of users, from what one pod did at several numbers of users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log10, sqrt
from typing import Literal

from ..autoscaling.replicas import DEFAULT_TOLERANCE, Tolerance

# The knee has this share of the highest throughput. More users add latency and hardly any requests.
_KNEE_SHARE = 0.95
# The HPA cannot tell levels apart whose metrics differ by less than this share: its tolerance is a tenth.
_SAME_SHARE = 0.95
# Standard deviations of a normal distribution that cover 95 % of the ranks at which samples have their p95.
_DEVIATIONS = 1.96
_P50, _P95, _P99 = 0.5, 0.95, 0.99


@dataclass(frozen=True)
class Level:
    """What one pod did while so many users sent one request after the other.

    requests:  that were served, in all and per second.
    metric:    average of the metric of the pod, in the unit of its target. Of requests in flight it is not the number
               of users: they also wait for the network.
    *_ms:      percentiles of what the goal is about, latency or time to first token.
    rejected_percent: of the requests that were sent, those that were not served.
    """

    users: int
    requests: int
    per_second: float
    metric: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    rejected_percent: float = 0.0

    @property
    def p95_between_ms(self) -> tuple[float, float]:
        """Where the p95 of very many requests lies, with a confidence of 95 %.

        The rank of a percentile has the deviation of a binomial distribution. Between known percentiles the times are
        taken to be on a straight line.
        """
        deviation = _DEVIATIONS * sqrt(_P95 * (1 - _P95) / self.requests)
        down = min(1.0, deviation / (_P95 - _P50))
        up = min(1.0, deviation / (_P99 - _P95))
        return (
            self.p95_ms - down * (self.p95_ms - self.p50_ms),
            self.p95_ms + up * (self.p99_ms - self.p95_ms),
        )


@dataclass(frozen=True)
class Target:
    """What the levels say.

    value:         proposal for target_value; None if one user misses the goal already, or if the metric stays at zero.
    lowest, highest: what it would be with the p95 of each level at an end of its interval; 0 if none meets the goal.
    is_held:       whether one user meets the goal.
    users:         of the level that it is read from.
    knee:          users with nearly the highest throughput.
    is_past_last:  the last level still meets the goal and adds throughput, so more users may do so as well.
    limited_by:    what is reached first.
    noise_decides: the first level that misses the goal is not the one after the last that holds it.
    same_from:     the fewest users at which the metric is nearly what it is at `users`: to the HPA they are the same.
    top:           highest value of the metric. The HPA adds replicas only above its target and the tolerance.
    fitted_ms:     p95 by level, made monotone. between_ms: where the p95 of each level lies with a confidence of 95 %.
    fitted:        the metric by level, made monotone.
    """

    value: float | None
    lowest: float
    highest: float
    is_held: bool
    users: int
    knee: int
    is_past_last: bool
    limited_by: Literal["goal", "knee", "rejections"]
    noise_decides: bool
    same_from: int
    top: float
    fitted_ms: tuple[float, ...]
    between_ms: tuple[tuple[float, float], ...]
    fitted: tuple[float, ...]

    def reaches(self, target_value: float, tolerance: Tolerance = DEFAULT_TOLERANCE) -> bool:
        """Whether one pod can show a value above which an HPA with this target adds replicas."""
        return self.top > target_value * tolerance.band[1]


def find_target(
    levels: Sequence[Level],
    goal_ms: float,
    *,
    rejected_percent: float = 1.0,
    is_full_beyond: bool = False,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
) -> Target:
    """The largest value at which the p95 meets the goal and more users still add throughput.

    levels: at least two, each with at least one request, by ascending users.
    rejected_percent: more is as bad as a goal that is missed.
    is_full_beyond: whether no request of more users was served.
    tolerance: of the HPA. It leaves pods as they are up to that above the target, so that part is taken off.
    """
    weights = [level.requests for level in levels]
    metric = monotone([level.metric for level in levels], weights)
    knee = _knee(levels)
    full = next((at for at, level in enumerate(levels) if level.rejected_percent > rejected_percent), len(levels))
    end = min(knee, full - 1)
    is_full = is_full_beyond and end == len(levels) - 1

    def last_within(times_ms: Sequence[float]) -> int:
        """Index of the last level that holds the goal and is no further than the knee; -1 if no level does."""
        fitted = monotone(times_ms, weights)
        return max((index for index in range(end + 1) if fitted[index] <= goal_ms), default=-1)

    def value(of: Callable[[Level], float]) -> float:
        index = last_within([of(level) for level in levels])
        return rounded_down(metric[index] / tolerance.band[1]) if index >= 0 else 0.0

    fitted = monotone([level.p95_ms for level in levels], weights)
    found = last_within([level.p95_ms for level in levels])
    holds = [level.p95_ms <= goal_ms for level in levels[: end + 1]]
    at = max(found, 0)
    return Target(
        value=value(lambda level: level.p95_ms) or None,
        lowest=value(lambda level: level.p95_between_ms[1]),
        highest=value(lambda level: level.p95_between_ms[0]),
        is_held=found >= 0,
        users=levels[at].users,
        knee=levels[knee].users,
        is_past_last=found == knee == len(levels) - 1 and not is_full_beyond,
        limited_by="goal" if found != end else "knee" if end == knee and not is_full else "rejections",
        noise_decides=holds != sorted(holds, reverse=True),
        same_from=next(
            level.users for level, seen in zip(levels, metric, strict=True) if seen >= _SAME_SHARE * metric[at]
        ),
        top=max(level.metric for level in levels),
        fitted_ms=tuple(round(time_ms, 1) for time_ms in fitted),
        between_ms=tuple(level.p95_between_ms for level in levels),
        fitted=tuple(round(seen, 3) for seen in metric),
    )


def rounded_down(value: float) -> float:
    """To a whole number, or to two digits where that would lose more than a tenth of a small one."""
    if value <= 0:
        return 0.0
    if value >= 2:
        return float(floor(value + 1e-9))
    digits = 1 - floor(log10(value))
    return round(floor(value * 10**digits + 1e-9) / 10**digits, digits)


def _knee(levels: Sequence[Level]) -> int:
    """Index of the first level with nearly the highest throughput."""
    rates = monotone([level.per_second for level in levels], [level.requests for level in levels])
    return next(index for index, rate in enumerate(rates) if rate >= _KNEE_SHARE * rates[-1])


def monotone(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The series that never falls and is closest to the values: isotonic regression, by pooling adjacent violators."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many values
    for value, weight in zip(values, weights, strict=True):
        mean, total, many = value, weight, 1
        while pools and pools[-1][0] > mean:
            before, of_before, number = pools.pop()
            mean = (before * of_before + mean * total) / (of_before + total)
            total, many = total + of_before, many + number
        pools.append((mean, total, many))
    return [mean for mean, _total, many in pools for _value in range(many)]
