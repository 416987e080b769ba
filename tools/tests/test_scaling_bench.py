"""The benchmark without its cluster: its objects, the load that is played, what is made of what was seen."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from scaling_bench import manifests
from scaling_bench.balancer import Workload as Served
from scaling_bench.balancer import load_at
from scaling_bench.cluster import BenchCluster
from scaling_bench.configurations import filled, of_a_small_fleet, read_configurations, read_recipes
from scaling_bench.evaluation import Seen, direction_changes, evaluate, spread
from scaling_bench.goals import goals
from scaling_bench.replay import replayed
from scaling_bench.report import MEASURED, dumps, file_name, kinds, loads, page, picture
from scaling_bench.rounds import (
    LONGEST_INTERVAL_S,
    Result,
    Round,
    begins,
    each,
    full,
    judge,
    only,
    others,
    quick,
    slow,
    small,
    steps,
)
from scaling_bench.shapes import HIGH, LOW, SHAPES

STEP = SHAPES["step"]
BOUNDS = (1, 8)
CONFIGURATIONS = read_configurations()


# ---- configurations


def test_each_configuration_has_a_metric_or_is_ours() -> None:
    assert list(CONFIGURATIONS) == ["a", "b", "c", "d", "e", "f"]
    assert {name for name, configuration in CONFIGURATIONS.items() if configuration.is_ours} == {"e", "f"}
    assert all(configuration.is_ours != bool(configuration.metric) for configuration in CONFIGURATIONS.values())
    assert all(configuration.is_ours != bool(configuration.exporter) for configuration in CONFIGURATIONS.values())


def test_recipes_name_rules_of_the_adapter_that_give_their_metrics() -> None:
    recipes = read_recipes()
    named = {rule["name"]["as"] for rule in recipes.adapter_rules.values()}
    b, c = (CONFIGURATIONS[name].metric for name in "bc")
    assert b
    assert c
    assert {b["pods"]["metric"]["name"], c["object"]["metric"]["name"]} <= named


def test_placeholders_are_filled_wherever_they_are() -> None:
    thing = {"a": ["$namespace/$name", {"b": "${name}_x"}], "c": 5}
    assert filled(thing, namespace="ns", name="w") == {"a": ["ns/w", {"b": "w_x"}], "c": 5}
    for configuration in CONFIGURATIONS.values():
        (workload,) = configuration.workloads(1)
        made = [workload.service(), *workload.measured_by(), workload.autoscaler(0) or workload.hpa()]
        assert "$name" not in yaml.safe_dump(made)


def test_a_monitor_keeps_the_pods_of_its_own_workload() -> None:
    workload = CONFIGURATIONS["b"].workloads(2)[1]
    monitor = next(thing for thing in workload.measured_by() if thing["kind"] == "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["interval"] == "15s"
    assert endpoint["metricRelabelings"] == [{"sourceLabels": ["exported_pod"], "regex": "b2-.+", "action": "keep"}]


def test_an_exporter_is_the_sites_with_another_interval() -> None:
    env = [{"name": "DCGM_EXPORTER_INTERVAL", "value": "1000"}, {"name": "NODE_NAME"}]
    container = {"name": "exporter", "env": env, "resources": {"limits": {"cpu": "2"}}}
    pod = {"serviceAccountName": "x", "volumes": [{"name": "v", "configMap": {"name": "y"}}], "containers": [container]}
    site = {"spec": {"template": {"spec": pod}}}
    (made,) = manifests.exporter(CONFIGURATIONS["a"], site)
    spec = made["spec"]["template"]["spec"]
    assert spec["containers"][0]["env"][0]["value"] == "10000"
    assert "serviceAccountName" not in spec
    assert env[0]["value"] == "1000"


# ---- the load


@pytest.mark.parametrize(("now", "gpus"), [(-5, 1), (0, 1), (5, 1.5), (10, 2), (99, 2)])
def test_a_load_goes_in_a_line_between_its_points(now: float, gpus: float) -> None:
    assert load_at([(0, 1), (10, 2)], now) == gpus
    assert load_at([], now) == 0


def served(gpus: float, pods: Sequence[str], seconds: int = 400) -> tuple[Served, dict[str, float]]:
    workload = Served(0.02, 9, random.Random(1))
    workload.trace = [[0, gpus]]
    workload.set_pods(set(pods), 0)
    busy = dict.fromkeys(pods, 0.0)
    for tick in range(seconds * 5):
        for pod, busy_s in workload.tick(tick / 5, (tick + 1) / 5).items():
            assert -1e-9 <= busy_s <= 0.2 + 1e-9
            busy[pod] += busy_s
    return workload, {pod: total / seconds for pod, total in busy.items()}


def test_pods_with_room_serve_all() -> None:
    workload, busy = served(0.9, ["p", "q", "r"])
    assert workload.rejected == 0
    assert workload.offered == pytest.approx(18_000, rel=0.02)
    assert sum(busy.values()) == pytest.approx(0.02 * workload.offered / 400, abs=0.001)
    assert all(share == pytest.approx(0.3, abs=0.01) for share in busy.values())


def test_requests_that_are_given_come_once_beside_those_of_the_load() -> None:
    workload = Served(0.12, 9, random.Random(1))
    workload.set_pods({"p"}, 0)
    workload.requests = [0.2, 0.3, 0.35, 9.9, 10.0]
    busy = [workload.tick(tick / 5, (tick + 1) / 5)["p"] for tick in range(50)]
    assert (workload.offered, sum(busy)) == (4, pytest.approx(3 * 0.12 + 0.1))
    assert [step for step, count in enumerate(workload.latencies) for _ in range(count)] == [3, 3, 4, 6]
    workload.trace = [[0, 1]]
    for tick in range(50, 1050):
        workload.tick(tick / 5, (tick + 1) / 5)
    assert workload.offered - 5 == pytest.approx(200 / 0.12, rel=0.1)


def test_full_pods_reject_the_rest() -> None:
    workload, busy = served(2.75, ["p"])
    assert busy["p"] == pytest.approx(1, abs=0.001)
    assert workload.served == pytest.approx(20_000, abs=10)
    assert workload.offered == workload.served + workload.rejected == pytest.approx(55_000, rel=0.01)


def test_a_request_takes_its_time_in_the_queue_and_on_the_gpu() -> None:
    """20 ms on a free GPU, and 180 ms as the last of nine."""
    calm, _busy = served(0.5, ["p", "q"])
    assert sum(calm.latencies[:3]) == 0
    assert calm.latencies[3] == pytest.approx(0.75 * calm.served, rel=0.01)
    assert sum(calm.latencies[3:12]) > 0.99 * calm.served
    full, _busy = served(2.75, ["p"])
    assert sum(full.latencies) == full.served
    assert max(step for step, count in enumerate(full.latencies) if count) == 35
    assert sum(full.latencies[30:]) > 0.9 * full.served


def test_latency_is_of_the_requests_since_the_load_changed() -> None:
    before, after = [100, 0, 0, 0], [100, 90, 9, 1]
    outcome = evaluate(seen(latencies=[(-1, before), (60, after)]), 60, BOUNDS)
    assert outcome.latency_ms == [10, 15, 15]
    assert evaluate(seen(latencies=[(-1, before), (60, before)]), 60, BOUNDS).latency_ms is None
    assert evaluate(seen(), 60, BOUNDS).latency_ms is None


def test_without_a_ready_pod_all_is_rejected() -> None:
    workload, _busy = served(1, [])
    assert (workload.served, workload.rejected) == (0, workload.offered)


def test_a_scrape_every_two_seconds_sees_the_average() -> None:
    """Of a fixed pattern of 7 and 8 requests a second it saw one of the two alone."""
    workload = Served(0.02, 9, random.Random(1))
    workload.trace = [[0, 0.15]]
    workload.set_pods({"p"}, 0)
    busy = [workload.tick(tick / 5, (tick + 1) / 5)["p"] for tick in range(2000)]
    seen = [sum(busy[begin : begin + 5]) for begin in range(0, 2000, 10)]
    assert statistics.mean(seen) == pytest.approx(0.15, rel=0.03)


# ---- shapes and rounds


@pytest.mark.parametrize(
    ("shape", "second", "ideal"), [("step", -1, 1), ("step", 1, 5), ("spike", 30, 1), ("ramp", 90, 3)]
)
def test_the_ideal_follows_the_load(shape: str, second: float, ideal: int) -> None:
    assert SHAPES[shape].ideal(second, 60, BOUNDS) == ideal


def test_each_shape_begins_low_and_ends_where_it_is_looked_at() -> None:
    for shape in SHAPES.values():
        assert shape.at(0) == LOW
        assert shape.points[-1][0] <= shape.lasts_s
        assert all(one[0] < other[0] for one, other in zip(shape.points, shape.points[1:], strict=False))


def test_lanes_share_out_the_longest_interval() -> None:
    round_ = Round(STEP, 5, 0)
    found = begins(round_, 5, 1000, random.Random(3))
    places = [(begin - 1000 - round_.settle_s) / LONGEST_INTERVAL_S * 5 for begin in found]
    assert [int(place) for place in places] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("lanes", [2, 5, 7])
def test_the_full_plan_has_twenty_steps_at_both_periods_and_five_of_the_others(lanes: int) -> None:
    rounds = full(lanes)
    number = {
        kind: lanes * sum(round_.kind == kind for round_ in rounds) for kind in {round_.kind for round_ in rounds}
    }
    assert number[("step", 5, 0)] >= 20 <= number[("step", 15, 0)]
    assert all(count >= 5 for count in number.values())
    assert {kind[2] for kind in number} == {0, 30, 90}
    assert rounds[:5] == each(lanes)
    assert len(quick(lanes)) == 1
    both = [round_.sync_s for round_ in steps(lanes)]
    assert lanes * both.count(5) == lanes * both.count(15) >= 20
    assert both[:4] == [5, 5, 15, 15]
    assert [round_.kind for round_ in each(lanes)] == [
        kind for kind in dict.fromkeys(r.kind for r in rounds) if kind[1] == 5
    ]


@pytest.mark.parametrize("lanes", [2, 10])
def test_the_others_are_all_but_the_quickest_step(lanes: int) -> None:
    assert [Round(STEP, 5, 0), *others(lanes)] == each(lanes)


def test_one_period_alone_has_its_twenty_steps() -> None:
    assert only(steps(10), 15, None) == [Round(STEP, 15, 0)] * 2
    assert only(steps(10), None, None) == steps(10)
    assert only(quick(10), 15, None) == []
    assert only(slow(10), None, 90) == [Round(STEP, 5, 90)]


@pytest.mark.parametrize("lanes", [2, 5, 10])
def test_the_plan_of_a_small_fleet_has_twenty_steps_and_slow_pods_at_its_period(lanes: int) -> None:
    rounds = small(lanes)
    assert {round_.sync_s for round_ in rounds} == {2}
    assert sum(lanes for round_ in rounds if not round_.pod_start_s) == 20
    assert [round_.pod_start_s for round_ in rounds if round_.pod_start_s] == [30, 90]


def test_rules_of_a_small_fleet_are_evaluated_each_second_and_those_of_others_as_before() -> None:
    before = read_configurations()
    after = {name: of_a_small_fleet(one) for name, one in before.items()}
    assert {one.evaluate_s for one in after.values() if one.is_ours} == {1}
    assert {name: one for name, one in after.items() if not one.is_ours} == {
        name: one for name, one in before.items() if not one.is_ours
    }


def test_the_full_plan_leaves_ten_minutes_of_an_hour_to_make_the_lab() -> None:
    assert sum(round_.lasts_s for round_ in full(5)) <= 3000


# ---- its cluster


class HeldCluster(BenchCluster):
    """Knows HPAs alone."""

    def __init__(self, **maxima: int) -> None:
        self._held = {}
        self.hpas = {name: self.hpa(name, most) for name, most in maxima.items()}

    def hpa(self, name: str, most: int) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": {}, "uid": "1"}, "spec": {"maxReplicas": most}}

    def request(self, method: str, path: str, body: Any = None, content: str = "", **query: str) -> Any:
        if method == "GET":
            return {"items": list(self.hpas.values())}
        if method == "DELETE":
            return self.hpas.pop(path.rpartition("/")[2])
        assert body["metadata"]["name"] not in self.hpas, "409 Conflict"
        self.hpas[body["metadata"]["name"]] = body
        return body


def test_an_hpa_that_is_made_while_others_rest_replaces_its_old_one() -> None:
    cluster = HeldCluster(a1=8, e1=8)
    cluster.hold()
    assert cluster.hpas == {}
    cluster.hpas["e1"] = cluster.hpa("e1", 6)
    cluster.hold()
    cluster.release()
    assert {name: hpa["spec"]["maxReplicas"] for name, hpa in cluster.hpas.items()} == {"a1": 8, "e1": 6}


# ---- what is made of what was seen


def seen(**changed: object) -> Seen:
    requests = [(float(at), 137 * at, 100 * at, 37 * at) for at in range(61)]
    whole = Seen(STEP, 60.0, [(-9, 1), (4, 3), (8, 5)], [(-9, 1), (6, 3), (12, 5)], requests)
    return replace(whole, **changed)


def test_an_outcome_counts_from_the_loads_change() -> None:
    outcome = evaluate(seen(), 60, BOUNDS)
    assert (outcome.reaction_s, outcome.wanted_s, outcome.capacity_s) == (4, 8, 12)
    assert (outcome.offered, outcome.rejected, outcome.rejected_share) == (60 * 137, 60 * 37, 37 / 137)
    assert (outcome.peak, outcome.ideal, outcome.turns) == (5, 5, 0)
    assert outcome.overloaded * 60 == pytest.approx(4 * 6 + 2 * 6, abs=2)
    assert outcome.wasted == 0


@pytest.mark.parametrize(
    ("pods", "p50_ms", "p95_ms", "share"), [(1, (170, 180), (180, 180), 0.636), (5, (20, 40), (40, 120), 0)]
)
def test_latency_follows_from_ready_pods(
    pods: int, p50_ms: tuple[int, int], p95_ms: tuple[int, int], share: float
) -> None:
    """One pod of 2.75 GPUs of load has a full queue, and rejects the rest."""
    draws = [replayed(Seen(STEP, 60.0, [(-9, pods)], [(-9, pods)]), seed=seed) for seed in range(1, 6)]
    for times, _rejected in draws:
        assert times
        assert p50_ms[0] <= times[0] <= p50_ms[1]
        assert p95_ms[0] <= times[1] <= p95_ms[1]
    assert statistics.fmean(rejected for _times, rejected in draws) == pytest.approx(share, abs=0.01)


def test_what_came_before_the_loads_change_is_no_reaction_to_it() -> None:
    outcome = evaluate(seen(desired=[(-30, 5), (-20, 1), (4, 3)], ready=[(-30, 5), (-20, 1), (6, 3)]), 60, BOUNDS)
    assert (outcome.reaction_s, outcome.wanted_s, outcome.capacity_s) == (4, None, None)


def test_too_many_replicas_are_waste_and_a_turn() -> None:
    outcome = evaluate(seen(desired=[(-9, 1), (4, 7), (34, 5)]), 60, BOUNDS)
    assert (outcome.peak, outcome.turns) == (7, 1)
    assert outcome.wasted == pytest.approx(1, abs=0.05)


def test_what_never_happened_is_none() -> None:
    outcome = evaluate(seen(desired=[(-9, 1)], ready=[(-9, 1)]), 60, BOUNDS)
    assert (outcome.reaction_s, outcome.wanted_s, outcome.capacity_s) == (None, None, None)


@pytest.mark.parametrize(("counts", "turns"), [([1, 2, 5], 0), ([1, 5, 4], 1), ([1, 5, 4, 4, 6, 1], 3), ([], 0)])
def test_turns(counts: list[float], turns: int) -> None:
    assert direction_changes(counts) == turns


def test_a_spread_puts_what_is_missing_last() -> None:
    found = spread([3.0, None, 1.0, 2.0], until_s=100)
    assert (found.minimum, found.median, found.p95, found.maximum) == (1, 2.5, None, None)
    assert (found.mean, found.missing, found.number) == (26.5, 1, 4)


@pytest.mark.parametrize(
    ("values", "median"),
    [([3.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 2.0, 3.0], 2.5), ([1.0, 2.0, None, None], None)],
)
def test_a_median_of_an_even_number_lies_between_the_two_in_the_middle(
    values: list[float | None], median: float | None
) -> None:
    assert spread(values, until_s=100).median == median


def result(configuration: str, reaction_s: float, capacity_s: float, peak: int = 5, sync_s: int = 5) -> Result:
    workload = CONFIGURATIONS[configuration].workloads(1)[0]
    begin = 1000.0
    return judge(
        Round(STEP, sync_s, 0),
        workload,
        begin,
        {
            "ready": [[begin - 20, 1], [begin + capacity_s, 5]],
            "counts": [
                [begin - 1, 0, 0, 0],
                [begin + 99, 9000, 9000 - round(5 * capacity_s**2), round(5 * capacity_s**2)],
            ],
        },
        [(begin - 30, 1), (begin + reaction_s, peak)],
        scraped=[(begin - 3, 99), (begin + 1, 12), (begin + 2, 99)],
        recorded=[(begin + 3, 99)],
    )


def test_a_result_has_its_hops() -> None:
    found = result("e", 5, 10)
    assert (found.hops.scraped, found.hops.recorded, found.hops.decided, found.hops.ready) == (2, 3, 5, 10)
    assert found.outcome.rejected == 500


def reached(results: list[Result]) -> dict[str, bool | None]:
    return {goal.words: goal.is_met for goal in goals(results)}


def test_goals_are_ratios_of_means() -> None:
    good = [result("a", 25, 60), result("d", 70, 110), result("e", 6, 40), result("f", 4, 10)]
    assert {words for words, met in reached(good).items() if met is False} == set()
    assert reached(good)["mean reaction, e against b, period 5 s"] is None
    slow = [*good[:2], result("e", 12, 40), result("f", 4, 36, peak=6)]
    assert {words for words, met in reached(slow).items() if met is False} == {
        "mean reaction, e against a, period 5 s",
        "mean time to ready capacity, f against e, period 5 s",
        "requests rejected, f against e, period 5 s",
        "requests rejected, f against d, period 5 s",
        "mean time to ready capacity of f in s, period 5 s",
        "replicas above the ideal number at the peak, f, all loads",
    }


def test_a_mean_counts_what_never_happened_as_long_as_was_looked() -> None:
    never = result("a", 25, 60)
    never = replace(never, outcome=replace(never.outcome, reaction_s=None))
    (goal, *_others) = goals([never, result("e", 10, 40)])
    assert goal.measured == pytest.approx(10 / never.looks_s)


def test_results_are_read_back_as_they_were_written() -> None:
    written = [result("a", 25.25, 60.5), result("f", 4, 10)]
    again = loads(dumps(written))
    assert [run.outcome for run in again] == [run.outcome for run in written]
    assert dumps(again) == dumps(written)
    assert page({MEASURED: again}, CONFIGURATIONS) == page({MEASURED: written}, CONFIGURATIONS)


def test_the_report_has_a_table_and_a_plot_of_each_kind_of_round() -> None:
    results = [result(name, 5, 20) for name in "ef"] + [result("e", 8, 30, sync_s=15)]
    text = page({MEASURED: results}, CONFIGURATIONS)
    for kind in kinds(results):
        assert f"{file_name(kind)}.svg" in text
        picture_ = ElementTree.fromstring(picture(kind, MEASURED, results, CONFIGURATIONS))
        drawn = [
            path
            for path in picture_.iter("{http://www.w3.org/2000/svg}path")
            if "L" in path.get("d", "") or "H" in path.get("d", "")
        ]
        assert len(drawn) >= 2
    assert STEP.at(1) == HIGH
