"""The figures of a demo, and their evaluation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from lab.load.scenario import INTERVAL_S, Autoscaler, Recording, Sample, Step

# Utilization covers the previous second, NVML's own window, which is not a period of the chain.
NVML_WINDOW_S = 1.0
AT_THE_PEAK = "replicas at the peak"


@dataclass(frozen=True)
class Chain:
    """The chain's periods in seconds, with the actual times from the load step to the decision.

    collect_s, sync_s:  of the exporter and of the HPA, which do not report actual times.
    evaluations:        number in evaluate_s: for a smoothed series more than one.
    scraped, evaluated: seconds of the recording's clock, of the target's utilisation and of its recorded series.
    """

    collect_s: float
    scrape_s: float
    evaluate_s: float
    sync_s: float
    evaluations: int = 1
    scraped: Sequence[float] = ()
    evaluated: Sequence[float] = ()

    @property
    def worst_s(self) -> float:
        """From a load step to the decision, as the README states it."""
        return self.collect_s + self.scrape_s + self.evaluate_s + self.sync_s

    @property
    def late_s(self) -> float:
        """Seconds by which the slowest scrape and the slowest evaluation were too late, as on a busy machine."""
        return _late(self.scraped, self.scrape_s) + _late(self.evaluated, self.evaluate_s, self.evaluations)


def _late(times: Sequence[float], period_s: float, many: int = 1) -> float:
    """Seconds by which the slowest `many` in a row took longer than the period."""
    return round(
        max((later - earlier - period_s for earlier, later in zip(times, times[many:], strict=False)), default=0.0), 2
    )


@dataclass(frozen=True)
class Summary:
    """Seconds count from the moment a step's load was asked for; None is what never happened.

    undecided_s: the last reading without a decision, which came between it and `reaction_s`.
    goes_down:   the load went down, before or after the step up; otherwise scaling down is unknown.
    look_s:      duration of the slowest reading until then: API server, Prometheus and load generator once each.
    """

    reaction_s: float | None
    undecided_s: float
    look_s: float
    ideal_ready_s: float | None
    ideal_replicas: int
    peak_replicas: int
    goes_down: bool
    scale_down_reaction_s: float | None
    minimum_ready_s: float | None
    served: int
    rejected: int
    failed: int


def summarise(recording: Recording, plan: list[Step], counted: dict[str, float]) -> Summary:
    """counted: requests served, rejected and failed over the whole demo."""
    low, up, *_rest = plan
    down = next((step for step in plan if step.name == "step down"), None)
    looks = [(sample.at_s - recording.begins[up.name], sample.desired) for sample in recording.of(up.name)]
    undecided = list(takewhile(lambda look: look[1] <= low.replicas, looks))
    after = [sample for step in plan[1:] for sample in recording.of(step.name)]
    until_decision = [at_s for at_s, _desired in looks[: len(undecided) + 1]]
    return Summary(
        reaction_s=_until(recording, up, lambda sample: sample.desired > low.replicas),
        undecided_s=round(max((at_s for at_s, _desired in undecided), default=0.0), 1),
        look_s=_late(until_decision, INTERVAL_S),
        ideal_ready_s=_until(recording, up, lambda sample: sample.ready == up.replicas),
        ideal_replicas=up.replicas,
        peak_replicas=max((max(sample.ready, sample.desired) for sample in after), default=0),
        goes_down=down is not None,
        scale_down_reaction_s=_until(recording, down, lambda sample: sample.desired < up.replicas),
        minimum_ready_s=_until(recording, down, lambda sample: sample.ready == sample.desired == low.replicas),
        served=int(counted["served"]),
        rejected=int(counted["rejected"]),
        failed=int(counted["failed"]),
    )


def _until(recording: Recording, step: Step | None, holds: Callable[[Sample], bool]) -> float | None:
    if step is None:
        return None
    first = next((sample.at_s for sample in recording.of(step.name) if holds(sample)), None)
    return None if first is None else round(first - recording.begins[step.name], 1)


def verdict(summary: Summary, autoscaler: Autoscaler, chain: Chain) -> list[str]:
    """Problems; can be empty."""
    found = []
    allowed_s = chain.worst_s + NVML_WINDOW_S + chain.late_s + summary.look_s
    if summary.undecided_s > allowed_s:
        found.append(
            f"GPU -> HPA: {summary.undecided_s:.1f} s after the step up the HPA had not decided, "
            f"{allowed_s:.1f} s is the worst case.\n"
            f"  seen: {chain.worst_s:g} s for the chain's periods, {NVML_WINDOW_S:g} s for NVML's window, "
            f"{chain.late_s:.1f} s for late scrapes and evaluations, {summary.look_s:.1f} s for a slow API server"
        )
    if summary.peak_replicas > summary.ideal_replicas:
        found.append(
            f"HPA -> Deployment: {summary.peak_replicas} {AT_THE_PEAK}, {summary.ideal_replicas} are right.\n"
            f"  seen: the HPA {autoscaler.name} asked for more than the load takes at {autoscaler.target_percent:g} %"
        )
    if summary.failed:
        found.append(
            f"load -> sample service: {summary.failed} requests failed, {summary.served} were served.\n"
            "  seen: connections that were refused, cut or silent for 5 s; what is merely too much is rejected"
        )
    return found


def only_overshoots(problems: str) -> bool:
    """Whether one replica too many is the only problem."""
    heads = re.findall(r"^\S+ -> .*", problems, re.MULTILINE)
    return len(heads) == 1 and AT_THE_PEAK in heads[0]
