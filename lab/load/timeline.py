"""The demo as one picture: requests, utilisation by pod and replicas over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lab.load.earlier import Earlier
from lab.load.scenario import Autoscaler, Recording, Sample, Step
from lab.plot import COLOURS, Band, Line, Panel, ceiling, draw, whole


def timeline(
    recording: Recording,
    plan: Sequence[Step],
    autoscaler: Autoscaler,
    before: Earlier | None = None,
    name: str = "without demand",
) -> str:
    """The SVG's text. before: whose ready replicas are shown beside, from its step on, and by which name."""
    moved = _moved(before.recording, recording, plan) if before else []
    end = max(recording.samples[-1].at_s, *(at_s for at_s, _ready in moved), 1.0)
    panels = [_requests(recording), _utilisation(recording, autoscaler, end), _replicas(recording, plan, moved, name)]
    bands = [
        Band(recording.begins[step.name], f"{step.name}: {step.gpus:g} GPUs", f"{step.gpus:g} GPUs")
        for step in plan
        if step.name in recording.begins
    ]
    return draw(f"Load step on {autoscaler.deployment}", _headline(plan, autoscaler), panels, end, bands)


def _headline(plan: Sequence[Step], autoscaler: Autoscaler) -> str:
    up = plan[1]
    load = f"{up.gpus:g} GPUs of load at a target of {autoscaler.target_percent:g} %"
    return f"{autoscaler.deployment}: {load} need {up.replicas} replicas"


def _requests(recording: Recording) -> Panel:
    def series(value: Callable[[Sample], float]) -> list[tuple[float, float | None]]:
        return [(sample.at_s, value(sample)) for sample in recording.samples]

    lines = [
        Line("asked", series(lambda s: s.asked_per_s), 'class="line muted"', stepped=True),
        Line("served", series(lambda s: s.served_per_s), 'class="line" stroke="#2a78d6"'),
        Line("rejected", series(lambda s: s.rejected_per_s + s.failed_per_s), 'class="line" stroke="#e34948"'),
    ]
    top = ceiling(value for line in lines for _, value in line.points)
    return Panel("requests/s", lines, [top * quarter / 4 for quarter in range(5)])


def _utilisation(recording: Recording, autoscaler: Autoscaler, end: float) -> Panel:
    first_seen = dict.fromkeys(pod for sample in recording.samples for pod in sample.utilisation)
    told_apart = len(first_seen) <= len(COLOURS)
    pods = [
        Line(
            pod[-5:] if told_apart else "",
            [(sample.at_s, sample.utilisation.get(pod)) for sample in recording.samples],
            f'class="line" stroke="{COLOURS[index % len(COLOURS)]}"',
        )
        for index, pod in enumerate(first_seen)
    ]
    target = Line("target", [(0, autoscaler.target_percent), (end, autoscaler.target_percent)], 'class="line muted"')
    return Panel("GPU utilization, %: a line for each pod", [target, *pods], range(0, 101, 25))


def _replicas(recording: Recording, plan: Sequence[Step], before: list[tuple[float, float | None]], name: str) -> Panel:
    ideal: list[tuple[float, float | None]] = []
    for step in plan:
        if step.name in recording.begins:
            ideal.append((recording.begins[step.name], step.replicas))
    ideal.append((recording.samples[-1].at_s, ideal[-1][1]))
    lines = [
        Line("ideal", ideal, 'class="line muted"', stepped=True),
        Line("wanted", [(s.at_s, s.desired) for s in recording.samples], 'class="line" stroke="#eda100"', stepped=True),
        Line("ready", [(s.at_s, s.ready) for s in recording.samples], 'class="line" stroke="#1baf7a"', stepped=True),
    ]
    if before:
        lines.append(Line(f"ready {name}", before, 'class="line before"', stepped=True))
    return Panel("replicas", lines, whole(lines))


def _moved(before: Recording, recording: Recording, plan: Sequence[Step]) -> list[tuple[float, float | None]]:
    """The ready replicas of another demo's step, aligned to the beginning of this one's."""
    up = plan[1].name
    shift = recording.begins[up] - before.begins[up]
    return [(sample.at_s + shift, sample.ready) for sample in before.of(up)]
