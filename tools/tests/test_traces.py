"""Recorded traffic on paper: the plant, the measured step, and a load of one's own."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import median

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("numba")

from traces.bench import Run, at_goal, play
from traces.loads import BadTrace, own_load
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
