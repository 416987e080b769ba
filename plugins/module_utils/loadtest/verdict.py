# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""What an autoscaler did under a load test, and what of it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from math import ceil, floor, inf
from typing import Any

from ..autoscaling.controller import Behavior, Controller
from .shapes import AFTER, BEFORE, LOAD, RISE, Stage, from_dict
from .stage_results import SENT, answers, counts, goal_problems, scale_downs, settled, settled_goals

# Of all requests: the load is still the requested one.
TOLERATED_DROPS = 0.01
# A tenth of all requests that are rejected is no burst.
TOO_MUCH = 0.1
# Two looks at an autoscaler are half of this apart. The first requests take the rest on their way.
LOOK_S = 1.0
# The HPA controller looks so often by default. At worst a look comes just before a period is over.
_SYNC_S = 14.999
# A pod that is given up is ready for a while, and so is the last look before.
_ENDS_S = 60.0


@dataclass(frozen=True)
class Seen:
    """Figures of a test. Seconds count from the moment at which the load began to rise, or to fall for the last two.

    before:     replicas wanted when the load began to rise.
    reaction_s: until the HPA wanted more; None if it did not.
    undecided_s: of the last look at which it had not.
    needed:     replicas that carry the load at the target, by the last quarter of the time that it was held; None if
                unknown.
    enough:     the fewest that the HPA leaves as they are under that load: it tolerates some more than its target.
    settled:    replicas that were wanted at the end of that time.
    ready_s:    until `enough` replicas were ready.
    peak:       most replicas wanted.
    down_s:     until fewer were wanted; minimum_s: until no more than `before` were wanted and ready.
    rest:       replicas that the HPA's own rules let it still have when the test ended.
    """

    before: int
    reaction_s: float | None
    undecided_s: float
    needed: int | None
    enough: int | None
    settled: int
    ready_s: float | None
    peak: int
    down_s: float | None
    minimum_s: float | None
    rest: int


@dataclass(frozen=True)
class Passed:
    """A stage as it went by: when it began, in Unix seconds, and the looks that fell into it."""

    stage: Stage
    began_s: float
    samples: Sequence[Mapping[str, Any]]


def passed_stages(run: Mapping[str, Any]) -> list[Passed]:
    """The stages of a test, each with its own looks."""
    passed: list[Passed] = []
    began_s = float(run["began_s"])
    for stage in map(from_dict, run["stages"]):
        ended_s = began_s + stage.seconds
        is_last = len(passed) + 1 == len(run["stages"])
        samples = [
            sample
            for sample in run["samples"]
            if began_s <= sample["time_s"] < ended_s or (is_last and sample["time_s"] >= ended_s)
        ]
        passed.append(Passed(stage, began_s, samples))
        began_s = ended_s
    return passed


def figures(run: Mapping[str, Any]) -> Seen:
    """run: see `judge`."""
    stages = passed_stages(run)
    calm = _samples(stages, BEFORE)
    rising, falling = _samples(stages, RISE, LOAD), _samples(stages, AFTER)
    held = _held(stages)
    up_s, down_s = _began_s(stages, RISE, LOAD), _began_s(stages, AFTER)
    before = int(calm[-1]["desired"] if calm else rising[0]["desired"])
    settled = int(held[-1]["desired"])
    load = _load(held, run.get("budget_s") or 0.0)
    enough = _replicas(load, 1 + Behavior.of_hpa(run).tolerance.up)
    undecided = takewhile(lambda sample: sample["desired"] <= before, rising)
    peak = max(int(sample["desired"]) for sample in run["samples"])
    return Seen(
        before=before,
        reaction_s=_first(rising, up_s, lambda sample: sample["desired"] > before),
        undecided_s=round(max([0.0, *(sample["time_s"] - up_s for sample in undecided)]), 1),
        needed=_replicas(load, 1),
        enough=enough,
        settled=settled,
        ready_s=_first(rising, up_s, lambda sample: sample["ready"] >= (enough or settled)),
        peak=peak,
        down_s=_first(falling, down_s, lambda sample: sample["desired"] < settled),
        minimum_s=_first(falling, down_s, lambda sample: max(sample["desired"], sample["ready"]) <= before),
        rest=_rest(run, peak, before),
    )


def judge(run: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a test with its `problems`; an empty list of them is a test that passed.

    run: `began_s`, Unix seconds; `shape` and `stages`, see shapes.py; `samples` and `ends`, see watched.py; `budget_s`,
         worst reaction by the periods of the chain or None; `requests` as locustfile.py prints them, or none; `goals`,
         see stage_results.py; `minimum` and `maximum` of the HPA's replicas, and its `behavior`.
    """
    seen, requests = figures(run), counts(run)
    problems = [*_problems(run, seen, requests), *goal_problems(run)]
    return {
        **asdict(seen),
        "budget_s": run.get("budget_s"),
        "requests": requests,
        "stages": _stages(run),
        "scale_downs": scale_downs(run),
        "goals": dict(run.get("goals") or {}),
        "settled_goals": [
            {"goal": name, "seen": seen_value, "value": value} for name, seen_value, value in settled_goals(run)
        ],
        "reasons": dict((run.get("requests") or {}).get("reasons") or {}),
        "problems": problems,
    }


def _stages(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What users got in each stage, beside its load and the replicas that were ready at its end."""
    passed = passed_stages(run)
    return [
        {
            **got,
            "load": [part.stage.first, part.stage.last],
            "replicas": int(part.samples[-1]["ready"]) if part.samples else None,
        }
        for part, got in zip(passed, answers(run), strict=False)
    ]


def _problems(run: Mapping[str, Any], seen: Seen, requests: Mapping[str, int]) -> Iterator[str]:
    budget_s, maximum = run.get("budget_s"), run.get("maximum")
    names = {stage["name"] for stage in run["stages"]}
    saturated = _saturated(run, seen)
    if saturated:
        yield saturated
    elif seen.reaction_s is None:
        yield f"the HPA did not scale up under load: it wanted as many replicas as before: {seen.before}"
    elif budget_s is not None and RISE not in names and seen.undecided_s > budget_s + LOOK_S:
        yield (
            f"the HPA decided {seen.reaction_s:g} s after the load rose, later than the worst case of "
            f"{budget_s:g} s for the periods of its chain"
        )
    is_over_too_soon = run["shape"] == "spike"  # before its pods have started and are seen
    if seen.reaction_s is not None and not is_over_too_soon:
        if seen.needed is None or seen.enough is None:
            yield _why_not_known(seen, _held(passed_stages(run)), budget_s or 0.0)
        elif maximum is not None and seen.settled == maximum < seen.enough:
            yield f"the load needs {seen.needed} replicas, and the HPA allows {maximum}"
        elif seen.ready_s is None:
            yield f"{seen.needed} replicas carry the load, but fewer were ready while the load lasted"
        if seen.needed is not None and seen.peak > _most(seen.needed, run):
            yield f"the HPA wanted {seen.peak} replicas, and {seen.needed} carry the load"
    if AFTER in names and seen.reaction_s is not None and seen.minimum_s is None:
        last = run["samples"][-1]
        if max(last["desired"], last["ready"]) > seen.rest:
            yield f"the replicas had not come down to {seen.rest} when the test ended"
    yield from _failures(run, requests)
    dropped, planned = requests.get("dropped", 0), sum(requests.values())
    if dropped > TOLERATED_DROPS * planned:
        yield (
            f"{dropped} of {planned} requests were not sent, because all users waited for answers: "
            "set more users or less load"
        )


def _failures(run: Mapping[str, Any], requests: Mapping[str, int]) -> Iterator[str]:
    for row in scale_downs(run):
        if row["lost"]:
            yield f"{row['lost']} requests were lost while {', '.join(row['pods'])} ended"
    served = requests.get("served", 0)
    if failed := requests.get("failed", 0):
        reasons = ", ".join(f"{many} x {reason}" for reason, many in (run["requests"].get("reasons") or {}).items())
        yield f"{failed} requests failed, {served} were served" + (f": {reasons}" if reasons else "")
    if timed_out := requests.get("timed_out", 0):
        yield f"{timed_out} requests had no complete answer within their timeout, {served} were served"


def _saturated(run: Mapping[str, Any], seen: Seen) -> str:
    """Why the HPA sees no reason to add replicas though the pods have too much; empty if that is not so."""
    got = settled(run)
    held = _held(passed_stages(run))
    ratios = [sample["ratio"] for sample in held[len(held) // 2 :] if sample["ratio"] is not None]
    if not got or not ratios or seen.settled >= int(run.get("maximum") or seen.settled + 1):
        return ""
    sent = sum(got[outcome] for outcome in SENT)
    unmet = sum(got[outcome] for outcome in ("rejected", "refused_in_stream", "timed_out"))
    highest = max(ratios)
    if not sent or unmet < TOO_MUCH * sent or highest > 1 + Behavior.of_hpa(run).tolerance.up:
        return ""
    return (
        f"the pods have too much, and the metric does not show it: {100 * unmet / sent:.0f} % of the requests in the "
        f"second half of the load were rejected or timed out, while the metric was {100 * highest:.0f} % of its target "
        f"at most, so the HPA left {seen.settled} replicas: lower the target, or use a metric that grows with the load"
    )


def _load(held: Sequence[Mapping[str, Any]], budget_s: float) -> float | None:
    """In replicas at the target, of the last quarter: pods that are ready, times how far their metric is from it.

    Looks at which fewer are ready than wanted do not count: a saturated workload hides further load.
    Nor do those within `budget_s` of a change: until then, values may be of the pods before it.
    """
    if not held:
        return None
    since_s = held[-1]["time_s"] - (held[-1]["time_s"] - held[0]["time_s"]) / 4
    totals = [
        sample["ratio"] * sample["ready"]
        for sample, unchanged_s in zip(held, _unchanged_s(held), strict=True)
        if sample["time_s"] >= since_s
        and unchanged_s >= budget_s
        and sample["ratio"] is not None
        and sample["ready"] == sample["desired"]
    ]
    return sum(totals) / len(totals) if totals else None


def _replicas(load: float | None, ratio: float) -> int | None:
    """How many carry the load at so much of the target."""
    return None if load is None else max(1, ceil(round(load / ratio, 2)))


def _why_not_known(seen: Seen, held: Sequence[Mapping[str, Any]], budget_s: float) -> str:
    """Why it is unknown how many replicas the load needs."""
    ready = int(held[-1]["ready"])
    if ready != seen.settled:
        return (
            f"at the end of the load {seen.settled} replicas were wanted and {ready} ready, "
            "so the required number is unknown: use a longer load"
        )
    if (unchanged_s := _unchanged_s(held)[-1]) < budget_s:
        return (
            f"at the end of the load {ready} replicas had been ready for {unchanged_s:.0f} s, and values take "
            f"{budget_s:g} s to follow, so the required number is unknown: use a longer load"
        )
    return "the HPA had no value for its metrics at the end of the load, so replicas cannot be judged"


def _unchanged_s(held: Sequence[Mapping[str, Any]]) -> list[float]:
    """Of each look: seconds since the replicas that are wanted, or those that are ready, were others."""
    since_s, before, unchanged = held[0]["time_s"], None, []
    for sample in held:
        counts = sample["desired"], sample["ready"]
        since_s = since_s if counts == before else sample["time_s"]
        before = counts
        unchanged.append(sample["time_s"] - since_s)
    return unchanged


def _held(stages: Sequence[Passed]) -> list[Mapping[str, Any]]:
    """Under the whole load. Where that was too short for a look, the looks before it."""
    return _samples(stages, LOAD) or _samples(stages, RISE)


def _rest(run: Mapping[str, Any], peak: int, before: int) -> int:
    """From the most replicas that there were. The window begins when the last value of the load has been seen."""
    if "behavior" not in run or peak <= before:
        return before
    controller = Controller(int(run["minimum"]), int(run["maximum"]), Behavior.of_hpa(run))
    fall_s = sum(stage["seconds"] for stage in run["stages"] if stage["name"] == AFTER)
    left_s, now_s, replicas = fall_s - _ENDS_S - (run.get("budget_s") or 0.0), 0.0, peak
    while now_s <= left_s and replicas > before:
        replicas = controller.decide(now_s, replicas, before).replicas
        now_s += _SYNC_S
    return replicas


def _most(needed: int, run: Mapping[str, Any]) -> float:
    """Replicas that the HPA leaves as they are though `needed` would do."""
    lowest, _highest = Behavior.of_hpa(run).tolerance.band
    return max(floor(needed / lowest) if lowest > 0 else inf, int(run.get("minimum") or 1))


def _samples(stages: Sequence[Passed], *names: str) -> list[Mapping[str, Any]]:
    return [sample for passed in stages if passed.stage.name in names for sample in passed.samples]


def _began_s(stages: Sequence[Passed], *names: str) -> float:
    return next((passed.began_s for passed in stages if passed.stage.name in names), 0.0)


def _first(
    samples: Sequence[Mapping[str, Any]], began_s: float, holds: Callable[[Mapping[str, Any]], bool]
) -> float | None:
    return next((round(sample["time_s"] - began_s, 1) for sample in samples if holds(sample)), None)
