"""The numbers of a demo, and the judgement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lab.load.scenario import Autoscaler, Recording, Sample, Step


@dataclass(frozen=True)
class Summary:
    """Seconds count from the moment a step's load was asked for; None is what never happened."""

    reaction_s: float | None
    ideal_ready_s: float | None
    ideal_replicas: int
    peak_replicas: int
    scale_down_reaction_s: float | None
    minimum_ready_s: float | None
    served: int
    rejected: int
    failed: int


def summarise(recording: Recording, plan: list[Step], counted: dict[str, float]) -> Summary:
    """counted: requests served, rejected and failed over the whole demo."""
    _, up, down = plan
    return Summary(
        reaction_s=_until(recording, up, lambda sample: sample.desired > plan[0].replicas),
        ideal_ready_s=_until(recording, up, lambda sample: sample.ready == up.replicas),
        ideal_replicas=up.replicas,
        peak_replicas=max((max(sample.ready, sample.desired) for sample in recording.samples), default=0),
        scale_down_reaction_s=_until(recording, down, lambda sample: sample.desired < up.replicas),
        minimum_ready_s=_until(recording, down, lambda sample: sample.ready == sample.desired == down.replicas),
        served=int(counted["served"]),
        rejected=int(counted["rejected"]),
        failed=int(counted["failed"]),
    )


def _until(recording: Recording, step: Step, holds: Callable[[Sample], bool]) -> float | None:
    first = next((sample.at_s for sample in recording.of(step.name) if holds(sample)), None)
    return None if first is None else round(first - recording.begins[step.name], 1)


def overshoot(summary: Summary, autoscaler: Autoscaler) -> str:
    """Why the peak is too high; empty if it is not."""
    if summary.peak_replicas <= summary.ideal_replicas:
        return ""
    return (
        f"HPA -> Deployment: {summary.peak_replicas} replicas at the peak, {summary.ideal_replicas} are right.\n"
        f"  seen: the HPA {autoscaler.name} asked for more than utilisation over {autoscaler.target_percent:g} % gives"
    )
