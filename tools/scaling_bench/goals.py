"""What the collection is to reach beside the recipes, and whether it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from scaling_bench.rounds import Result

STEP = "step"
# What the README states from a load step to the decision, without the period: collect, scrape, evaluate.
CHAIN_S = 5


@dataclass(frozen=True)
class Goal:
    """measured: None where nothing of it was measured. A goal is met at most at `limit`."""

    words: str
    limit: float
    measured: float | None

    @property
    def is_met(self) -> bool | None:
        return None if self.measured is None else self.measured <= self.limit


class Measured:
    """Results by what they are of."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = results

    def of(self, configuration: str, sync_s: int, pod_start_s: int | None = 0, shape: str = STEP) -> list[Result]:
        return [
            result
            for result in self._results
            if (result.configuration, result.sync_s, result.shape) == (configuration, sync_s, shape)
            and pod_start_s in (None, result.pod_start_s)
        ]

    def mean(self, results: Sequence[Result], seconds: Callable[[Result], float | None]) -> float | None:
        """One that did not happen counts as long as was looked. None without results."""
        values = [(seconds(result), result.looks_s) for result in results]
        return fmean(looks if value is None else value for value, looks in values) if values else None


def goals(results: Sequence[Result]) -> list[Goal]:
    """All of them, those of which nothing was measured as well."""
    measured = Measured(results)
    found = []
    for sync_s in (5, 15):
        for other, limit in (("a", 0.45), ("b", 0.2), ("c", 0.2), ("d", 0.2)):
            ratio = _ratio(measured, ("e", sync_s), (other, sync_s), _reaction)
            found.append(Goal(f"mean reaction, e against {other}, period {sync_s} s", limit, ratio))
    fast = _ratio(measured, ("e", 5), ("a", 15), _reaction)
    found.append(Goal("mean reaction, e at 5 s against a at 15 s", 0.2, fast))
    for sync_s in (5, 15):
        found += _demand(measured, sync_s)
    for configuration in ("e", "f"):
        ours = [result for result in results if result.configuration == configuration]
        over = max((result.outcome.peak - result.outcome.ideal for result in ours), default=None)
        steady = [result for result in ours if result.shape == STEP]
        turns = max((result.outcome.turns for result in steady), default=None)
        found.append(Goal(f"replicas above the ideal number at the peak, {configuration}, all loads", 0, over))
        found.append(Goal(f"changes of direction on a constant load, {configuration}", 0, turns))
    return found


def _demand(measured: Measured, sync_s: int) -> list[Goal]:
    budget_s = CHAIN_S + sync_s
    steps = measured.of("f", sync_s)
    late = [result for result in steps if result.outcome.wanted_s is None or result.outcome.wanted_s > budget_s]
    share = len(late) / len(steps) if steps else None
    of_period = f"period {sync_s} s"
    found = [
        Goal(f"share of steps in which f does not want enough within {budget_s} s, {of_period}", 0.05, share),
        Goal(
            f"mean time to ready capacity, f against e, {of_period}",
            0.3,
            _ratio(measured, ("f", sync_s), ("e", sync_s), _capacity),
        ),
    ]
    for other, limit in (("e", 0.5), ("d", 0.1)):
        ratio = _ratio(measured, ("f", sync_s), (other, sync_s), _rejected)
        found.append(Goal(f"requests rejected, f against {other}, {of_period}", limit, ratio))
    if sync_s == 5:
        found.append(Goal(f"mean time to ready capacity of f in s, {of_period}", 11, measured.mean(steps, _capacity)))
    return found


def _reaction(result: Result) -> float | None:
    return result.outcome.reaction_s


def _capacity(result: Result) -> float | None:
    return result.outcome.capacity_s


def _rejected(result: Result) -> float | None:
    return float(result.outcome.rejected)


def _ratio(
    measured: Measured, one: tuple[str, int], other: tuple[str, int], number: Callable[[Result], float | None]
) -> float | None:
    above, below = (measured.mean(measured.of(*which), number) for which in (one, other))
    return None if above is None or not below else above / below
