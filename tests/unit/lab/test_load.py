"""The demo's scenario, numbers and picture, on a made-up cluster whose autoscaler the test writes."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaled_object import hpa_of
from collection import ROOT
from rich.console import Console

from lab.load.cluster import LabCluster
from lab.load.earlier import Earlier
from lab.load.scenario import Autoscaler, NotReached, Recording, Sample, Step, play, steps
from lab.load.summary import Chain, only_overshoots, summarise, verdict
from lab.load.timeline import timeline
from lab.load.view import line, summary_table

AUTOSCALER = Autoscaler("sample", "sample", "gpu", target_percent=60, min_replicas=1, max_replicas=8)
PLAN = steps(AUTOSCALER, 0.15, 2.75)
CHAIN = Chain(collect_s=1, scrape_s=2, evaluate_s=2, sync_s=5)
COUNTED = {"served": 10, "rejected": 2, "failed": 0}


class FakeCluster:
    """Follows the load by one replica every `delay_s`, to `overshoot` more than are right; ready one second later."""

    def __init__(self, delay_s: float = 3.0, overshoot: int = 0, learns_after_s: float = 0) -> None:
        self.now = 0.0
        self.learns_after_s = learns_after_s
        self.gpus, self.since = 0.0, 0.0
        self.replicas = 1
        self.delay_s, self.overshoot = delay_s, overshoot

    def demand(self, gpus: float) -> None:
        self.gpus, self.since = gpus, self.now
        self.before = self.replicas

    def observe(self, at_s: float, step: str) -> Sample:
        metric_target = AUTOSCALER.ideal(self.gpus) + (
            self.overshoot if self.gpus > 1 and self.now - self.since < 20 else 0
        )
        moved = int((self.now - self.since) / self.delay_s)
        desired = (
            min(self.before + moved, metric_target)
            if metric_target > self.before
            else max(self.before - moved, metric_target)
        )
        ready, self.replicas = self.replicas, desired
        load = {f"sample-abc-{i:05}": min(self.gpus / ready * 100, 100) for i in range(ready)}
        asked = self.gpus * 50
        return Sample(at_s, step, asked, min(asked, ready * 50), max(asked - ready * 50, 0), 0, load, ready, desired)

    def has_learned(self) -> bool:
        return self.now >= self.learns_after_s

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def played(cluster: FakeCluster, plan: list[Step] = PLAN) -> Recording:
    recording = Recording()
    play(plan, cluster, recording, lambda step, sample: None, cluster.clock, cluster.pause)
    return recording


@pytest.mark.parametrize(
    ("gpus", "replicas"), [(0, 1), (0.15, 1), (0.6, 1), (0.61, 2), (2.4, 4), (2.75, 5), (100, 8)], ids=str
)
def test_ideal_is_the_fewest_within_the_target(gpus: float, replicas: int) -> None:
    assert AUTOSCALER.ideal(gpus) == replicas


def test_play_goes_up_and_down_again() -> None:
    recording = played(FakeCluster())
    assert list(recording.begins) == ["settle", "step up", "step down"]
    assert [next(reversed(list(recording.of(step.name)))).ready for step in PLAN] == [1, 5, 1]


def test_a_step_holds_before_the_next_begins() -> None:
    recording = played(FakeCluster())
    reached = next(sample.at_s for sample in recording.of("step up") if sample.ready == sample.desired == 5)
    assert recording.begins["step down"] - reached >= 30


def test_a_demand_settles_until_it_has_learned() -> None:
    plan = steps(replace(AUTOSCALER, has_demand=True), 0.15, 2.75)
    assert played(FakeCluster(learns_after_s=70), plan).begins["step up"] == pytest.approx(70, abs=0.5)
    assert played(FakeCluster(learns_after_s=70)).begins["step up"] == pytest.approx(10, abs=0.5)


def test_a_cost_that_is_never_learned_is_named() -> None:
    plan = steps(replace(AUTOSCALER, has_demand=True), 0.15, 2.75)
    with pytest.raises(NotReached, match="settle wanted 1 replicas and a cost that is learned within 250 s"):
        played(FakeCluster(learns_after_s=1000), plan)


def test_a_load_that_stays_high_says_nothing_of_scale_down() -> None:
    plan = steps(AUTOSCALER, 0.15, 2.75, play="up")
    recording = played(FakeCluster(), plan)
    summary = summarise(recording, plan, COUNTED)
    assert list(recording.begins) == ["settle", "step up"]
    assert (summary.ideal_ready_s, summary.scale_down_reaction_s) == (12.5, None)
    console = Console(width=100, file=io.StringIO())
    console.print(summary_table({"": summary}))
    assert console.file.getvalue().count("not played") == 2
    ElementTree.fromstring(timeline(recording, plan, AUTOSCALER))


def test_a_second_half_goes_down_learns_and_goes_up() -> None:
    plan = steps(replace(AUTOSCALER, has_demand=True), 0.15, 2.75, play="down-up")
    cluster = FakeCluster(learns_after_s=70)
    cluster.replicas = 5
    recording = played(cluster, plan)
    summary = summarise(recording, plan, COUNTED)
    assert list(recording.begins) == ["step down", "step up"]
    assert recording.begins["step up"] == pytest.approx(70, abs=0.5)
    assert (summary.scale_down_reaction_s, summary.minimum_ready_s) == (3.0, 12.5)
    assert (summary.reaction_s, summary.ideal_ready_s, summary.peak_replicas) == (3.0, 12.5, 5)
    ElementTree.fromstring(timeline(recording, plan, AUTOSCALER))


def test_replicas_of_the_load_before_are_no_peak() -> None:
    cluster = FakeCluster()
    cluster.replicas = 7
    cluster.demand(0.15)
    assert summarise(played(cluster), PLAN, COUNTED).peak_replicas == 5


def test_a_missed_deadline_names_what_was_seen() -> None:
    plan = [replace(step, deadline_s=5) if step.name == "step up" else step for step in PLAN]
    with pytest.raises(
        NotReached, match=r"step up wanted 5 replicas within 5 s.\n  seen: 2 wanted by the HPA, 2 ready"
    ):
        played(FakeCluster(), plan)


def test_summary_counts_from_the_step() -> None:
    summary = summarise(played(FakeCluster()), PLAN, COUNTED)
    assert (summary.reaction_s, summary.ideal_ready_s) == (3.0, 12.5)
    assert (summary.scale_down_reaction_s, summary.minimum_ready_s) == (3.0, 12.5)
    assert (summary.peak_replicas, summary.ideal_replicas, summary.served) == (5, 5, 10)
    assert summary.undecided_s == 2.5
    assert verdict(summary, AUTOSCALER, CHAIN) == []


def test_overshoot_is_named() -> None:
    summary = summarise(played(FakeCluster(overshoot=2)), PLAN, COUNTED)
    [problem] = verdict(summary, AUTOSCALER, CHAIN)
    assert problem.startswith("HPA -> Deployment: 7 replicas at the peak, 5 are right")


def test_a_replica_too_many_alone_may_be_judged_again() -> None:
    overshoots = verdict(summarise(played(FakeCluster(overshoot=1)), PLAN, COUNTED), AUTOSCALER, CHAIN)
    fails = verdict(summarise(played(FakeCluster(overshoot=1)), PLAN, {**COUNTED, "failed": 1}), AUTOSCALER, CHAIN)
    missed = str(NotReached(PLAN[1], Sample(0, "step up", 1, 1, 0, 0, {}, 6, 5)))
    fix = "  fix:  `kubectl -n gpu-workload describe hpa sample`"

    assert only_overshoots("\n".join([*overshoots, fix]))
    assert not only_overshoots("\n".join([*fails, fix]))
    assert not only_overshoots("\n".join([missed, *overshoots, fix]))
    assert not only_overshoots("")


def test_failed_requests_are_named() -> None:
    summary = summarise(played(FakeCluster()), PLAN, COUNTED | {"failed": 3})
    [problem] = verdict(summary, AUTOSCALER, CHAIN)
    assert problem.startswith("load -> sample service: 3 requests failed, 10 were served")


@pytest.mark.parametrize(("delay_s", "is_slow"), [(3.0, False), (11.5, False), (12.5, True)])
def test_a_decision_after_the_worst_case_is_named(delay_s: float, is_slow: bool) -> None:
    """10 s for the periods and 1 s for NVML's window; what is judged is the last look without a decision."""
    problems = verdict(summarise(played(FakeCluster(delay_s)), PLAN, COUNTED), AUTOSCALER, CHAIN)
    assert [problem.partition(":")[0] for problem in problems] == (["GPU -> HPA"] if is_slow else [])


@pytest.mark.parametrize(
    ("scraped", "evaluated", "late_s"),
    [([], [], 0), ([0, 2, 4], [1, 3, 5], 0), ([0, 2, 5.5], [1, 3, 5], 1.5), ([0, 3, 5], [1, 5, 7], 3)],
)
def test_a_chain_is_late_by_its_slowest_scrape_and_evaluation(
    scraped: list[float], evaluated: list[float], late_s: float
) -> None:
    assert replace(CHAIN, scraped=scraped, evaluated=evaluated).late_s == late_s


@pytest.mark.parametrize(
    ("evaluated", "late_s"), [([0, 1, 2, 3], 0), ([0, 1, 3, 4], 1), ([0, 1, 3.5, 6], 3), ([0, 5], 0)]
)
def test_two_evaluations_of_what_is_smoothed_are_late_together(evaluated: list[float], late_s: float) -> None:
    assert replace(CHAIN, evaluations=2, evaluated=evaluated).late_s == late_s


def test_what_came_late_is_allowed_for() -> None:
    summary = summarise(played(FakeCluster(12.5)), PLAN, COUNTED)
    assert verdict(summary, AUTOSCALER, replace(CHAIN, scraped=[0, 2, 5])) == []


def test_a_step_that_is_never_answered_is_named() -> None:
    recording = Recording(begins={"settle": 0.0, "step up": 1.0})
    recording.samples = [replace(_at_rest(at_s), step="step up") for at_s in range(1, 60)]
    summary = summarise(recording, PLAN, COUNTED)
    assert (summary.reaction_s, summary.undecided_s) == (None, 58)
    assert len(verdict(summary, AUTOSCALER, CHAIN)) == 1


def _at_rest(at_s: float) -> Sample:
    return Sample(at_s, "settle", 7.5, 7.5, 0, 0, {"sample-abc-00000": 15}, 1, 1)


def test_what_never_happened_is_none() -> None:
    recording = Recording(begins={"settle": 0.0})
    assert summarise(recording, PLAN, COUNTED).reaction_s is None


def test_timeline_is_xml_with_a_line_for_each_pod() -> None:
    picture = ElementTree.fromstring(timeline(played(FakeCluster()), PLAN, AUTOSCALER))
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"requests/s", "replicas", "00000", "00004", "step up: 2.75 GPUs"} <= set(texts)


def test_a_key_has_no_pods_that_their_colours_do_not_tell_apart() -> None:
    recording = played(FakeCluster())
    many = {f"sample-abc-{number:05}": 60.0 for number in range(9)}
    recording.samples[-1] = replace(recording.samples[-1], utilisation=many)
    picture = timeline(recording, PLAN, AUTOSCALER)
    assert ">target<" in picture
    assert "00004" not in picture


def test_an_earlier_demo_is_shown_to_its_end() -> None:
    """It may take longer than the one beside which it is shown."""
    slow, fast = played(FakeCluster(delay_s=20)), played(FakeCluster(), PLAN[:2])
    before = Earlier(slow, summarise(slow, PLAN, COUNTED))
    picture = timeline(fast, PLAN[:2], AUTOSCALER, before)
    up_s = [sample.at_s - slow.begins["step up"] for sample in slow.of("step up")]
    assert fast.samples[-1].at_s < 60 < up_s[-1] + fast.begins["step up"]
    assert ">120 s<" in picture


def test_plain_line_has_everything() -> None:
    sample = Sample(12.34, "step up", 137.5, 100, 37.5, 0, {"a": 91.2, "b": 60}, 2, 4)
    assert line(PLAN[1], sample) == (
        "  12.3 s  step up    100 served/s, 38 rejected/s, 0 failed/s;  replicas 2/4 (ideal 5);  utilisation % 91 60"
    )


def test_an_earlier_demo_is_shown_beside(tmp_path: Path) -> None:
    slow, fast = played(FakeCluster()), played(FakeCluster(delay_s=1.0))
    numbers = {
        "samples": [asdict(sample) for sample in slow.samples],
        "begins_s": slow.begins,
        "summary": asdict(summarise(slow, PLAN, COUNTED)),
    }
    assert Earlier.read(tmp_path / "demo.json") is None
    (tmp_path / "demo.json").write_text(json.dumps(numbers))
    before = Earlier.read(tmp_path / "demo.json")
    assert before is not None
    picture = ElementTree.fromstring(timeline(fast, PLAN, AUTOSCALER, before))
    assert "ready without demand" in {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
    console = Console(width=100, file=io.StringIO())
    console.print(summary_table({"without demand": before.summary, "with demand": summarise(fast, PLAN, COUNTED)}))
    (row,) = (row for row in console.file.getvalue().splitlines() if "ideal replicas, ready" in row)
    seconds = [float(value) for value in re.findall(r"(\d+\.\d) s", row)]
    assert seconds[0] > seconds[1] > 0


def test_the_autoscaler_behind_an_hpa_of_keda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its HPA reads two decisions with target 1; the demo needs the metric and its target."""
    scaled_object = yaml.safe_load((ROOT / "tests" / "unit" / "golden" / "gpu.scaledobject.yaml").read_text())
    monkeypatch.setattr(LabCluster, "_get", lambda *_path: hpa_of(scaled_object))
    seen = LabCluster.__new__(LabCluster)._read_autoscaler("chat")
    assert seen == Autoscaler("chat", "chat", "gpu", target_percent=60, min_replicas=1, max_replicas=8)


def test_two_demos_are_shown_by_their_names() -> None:
    recording = played(FakeCluster())
    picture = timeline(recording, PLAN, AUTOSCALER, Earlier(recording, summarise(recording, PLAN, COUNTED)), "by KEDA")
    assert "ready by KEDA" in picture
