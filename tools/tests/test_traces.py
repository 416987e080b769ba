"""Recorded traffic on paper: the plant, the measured step, and a load of one's own."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("numba")

from traces.bench import Played, Run, at_goal, play
from traces.loads import BadTrace, own_load, read_loads
from traces.measured import Seen, faults, measured, pod_start_s, table
from traces.plant import Chain, Plant, Service
from traces.scalers import Hpa, Static, read_ways

COST_S, LOW, HIGH, SETTLE_S = 0.02, 0.15, 2.75, 90


def reaction_s(name: str, seed: int) -> float:
    """The step of docs/benchmarks.md, period 5 s: seconds until the replicas are raised."""
    arrivals = np.concatenate([np.arange(0, SETTLE_S, COST_S / LOW), SETTLE_S + np.arange(0, 100, COST_S / HIGH)])
    way, service = read_ways()[name], Service(COST_S, 5 * COST_S)
    plant = Plant(arrivals, service, way.chain(), pods=1, start_s=3, seed=seed, tick_s=0.25)
    chance = random.Random(seed)
    hpa = Hpa(way, target=60, maximum=8, sync_s=5, start_s=3, service_s=COST_S, chance=chance)
    changes = play(plant, hpa, SETTLE_S + 100).changes
    return next((at - SETTLE_S for at, replicas in changes if replicas > 1), 100)


@pytest.mark.parametrize(("name", "measured_s", "within_s"), [("d", 41.9, 6), ("e", 5.8, 1.5), ("f", 6.2, 1.5)])
def test_the_measured_step_is_reproduced(name: str, measured_s: float, within_s: float) -> None:
    assert median(reaction_s(name, seed) for seed in range(1, 21)) == pytest.approx(measured_s, abs=within_s)


def test_a_pool_serves_what_it_can() -> None:
    arrivals = np.arange(0, 600, 0.01)
    plant = Plant(arrivals, Service(0.02, 0.1), Chain(), pods=1, start_s=10, seed=1)
    play(plant, Static(1), 600)
    outcome = plant.outcome()
    assert outcome["rejected"] == pytest.approx(0.5, abs=0.01)
    assert outcome["gpu_hours"] == pytest.approx(1 / 6, rel=0.01)


def test_two_choices_balance_better_than_one() -> None:
    """At 80 % of four pods; by theory the longest queue is then far shorter."""
    chance = np.random.default_rng(1)
    arrivals = np.sort(chance.uniform(0, 600, 96_000))
    outcomes = []
    for choices in (1, 2):
        plant = Plant(arrivals, Service(0.02, 0.1, choices=choices), Chain(), pods=4, start_s=10, seed=1)
        play(plant, Static(4), 600)
        outcomes.append(plant.outcome())
    random_pod, least_busy = outcomes
    assert random_pod["within_goal"] < 0.9
    assert least_busy["within_goal"] > 0.99


def test_the_goal_is_interpolated_between_targets() -> None:
    runs = [Run("l", "e", 50, 60, 1, 1.0, 0.8), Run("l", "e", 60, 60, 1, 0.98, 0.6)]
    assert at_goal(runs, 0.99) == pytest.approx((0.7, 55))
    assert at_goal(runs, 1.1) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "cannot be read"),
        ("seconds,requests_per_second\n0,1\n", "at least two rows"),
        ("seconds,requests_per_second\n5,1\n0,1\n", "ascend"),
        ("seconds,requests_per_second\n0,0\n60,0\n", "no requests"),
        ("seconds,requests_per_second\n0,1e6\n60,0\n", "at most 60 are simulated"),
    ],
)
def test_an_own_trace_that_cannot_be_played(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(BadTrace, match=words):
        own_load(tmp_path / "own.csv", 0.2)


def test_a_measured_hour_counts_as_one_on_paper() -> None:
    """Two pods, four from second 1,000 on, and nothing of what was before the load or came after it."""
    load = replace(read_loads()["code-hour"], copies=2)
    played = replace(Played.of(load, 1), planned=5)
    until_s = load.seconds
    seen = Seen(
        desired=[(-900, 0), (-800, 1), (-90, 1), (-20, 2), (1000, 4), (until_s + 5, 8)],
        ready=[(-90, 1), (-15, 2), (1004, 3), (1006, 4)],
        requests=[(-30, 0, 0, 0), (-0.5, 100, 90, 10), (until_s - 0.5, 1100, 1080, 20), (until_s + 1, 2000, 2000, 20)],
        latencies=[
            (-0.5, *[10] * 9, *[0] * 27),
            (until_s - 0.5, *[50] * 18, *[0] * 2, 80, *[0] * 15),
            (until_s + 1, *[99] * 36),
        ],
    )

    run = measured(played, "e", seen, 6.0)

    assert run.gpu_share == pytest.approx((2 * 1000 + 4 * (until_s - 1000)) / (5 * until_s), abs=1e-4)
    assert run.within_goal == pytest.approx((18 * 50 - 90) / 1000)  # the 80 took longer than five times their cost
    assert (run.requests, run.rejected, run.peak, run.changes) == (1000, 0.01, 4, round(2 / load.hours, 2))
    assert pod_start_s([seen]) == 5.5  # of the third second, and of the one before the load
    assert (
        table([run], [replace(run, within_goal=0.5), run])
        .splitlines()[2]
        .startswith("| e | 81.0 | 65.5 (50.0 to 81.0)")
    )


def test_a_decision_that_was_taken_back_before_its_pods_were_ready_has_no_start() -> None:
    seen = Seen([(0, 1), (10, 3), (12, 1), (20, 2)], [(0, 1), (24, 2), (90, 3)], [], [])
    assert pod_start_s([seen]) == 4.0
    assert pod_start_s([Seen([(0, 1)], [(0, 1)], [], [])]) == 3.0


def test_an_hour_that_was_not_played_to_its_end_is_no_result() -> None:
    played = replace(Played.of(replace(read_loads()["code-hour"], copies=1, hours=0.1), 1), maximum=8)
    given = len(played.arrivals)
    counts = [(second, given * max(second, 0) // 360, 0, 0) for second in range(-9, 362)]
    good = Seen([(-90, 1), (100, 2)], [(-90, 1), (103, 2)], counts, [])

    assert faults(played, "e", good) == []
    assert "nothing at the beginning or the end" in faults(played, "e", replace(good, requests=counts[:200]))[0]
    assert "nothing at the beginning or the end" in faults(played, "e", replace(good, requests=[]))[0]
    frozen = [(at, min(offered, given // 2), 0, 0) for at, offered, _served, _rejected in counts]
    assert f"of {given} that were given" in faults(played, "e", replace(good, requests=frozen))[0]
    assert faults(played, "e", replace(good, desired=[])) == ["e: no replicas were seen"]
    assert "2 replicas are wanted at the end, and 1 pods" in faults(played, "e", replace(good, ready=[(-90, 1)]))[0]
