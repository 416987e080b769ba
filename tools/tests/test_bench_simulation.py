"""The benchmark on paper: what each chain and Knative's autoscaler make of a load."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from scaling_bench.configurations import LEAST_START_S, MAXIMUM, read_configurations
from scaling_bench.report import SIMULATED, page
from scaling_bench.rounds import Result, Round
from scaling_bench.shapes import SHAPES
from scaling_bench.simulation import KNATIVE, Hpa, Knative, Service, simulate, simulate_all, simulated_rounds

CONFIGURATIONS = read_configurations()
STEP = Round(SHAPES["step"], 5, 0)


def run(round_: Round = STEP, phases: int = 5) -> dict[str, list[Result]]:
    found = simulate_all([round_], CONFIGURATIONS, phases, seed=1)
    return {name: [result for result in found if result.configuration == name] for name in (*CONFIGURATIONS, "Knative")}


def test_pods_share_the_load_and_what_is_too_much_is_rejected() -> None:
    service = Service(start_s=30)
    service.tick(0, 2.75)
    assert (service.pods[0].busy, service.rejected / service.offered) == (100, pytest.approx(1.75 / 2.75))
    service.scale(0, 5)
    service.tick(29, 2.75)
    assert len(service.ready(29)) == 1
    service.tick(30 + LEAST_START_S, 2.75)
    assert [pod.busy for pod in service.pods] == [pytest.approx(55)] * 5
    oldest = service.pods[0]
    service.scale(60, 1)
    assert service.pods == [oldest]


def test_a_reaction_is_within_the_sum_of_the_periods() -> None:
    results = run()
    worst_s = {
        "a": 10 + 1 + 30 + 5,
        "b": 30 + 15 + 60 + 5,
        "c": 30 + 30 + 60 + 5,
        "d": 30 + 15 + 30 + 5,
        "e": 10,
        "f": 10,
    }
    for name, worst in worst_s.items():
        for result in results[name]:
            assert result.outcome.reaction_s is not None
            assert result.outcome.reaction_s <= worst + 0.5
    assert max(result.outcome.reaction_s or 0 for result in results["Knative"]) <= 6


@pytest.mark.parametrize("sync_s", [5, 15])
@pytest.mark.parametrize("pod_start_s", [0, 30, 90])
def test_ours_never_go_beyond_the_ideal_and_never_turn(sync_s: int, pod_start_s: int) -> None:
    results = run(Round(SHAPES["step"], sync_s, pod_start_s), phases=3)
    for name in ("e", "f"):
        assert {(result.outcome.peak <= 5, result.outcome.turns) for result in results[name]} == {(True, 0)}


def test_an_average_of_a_value_goes_beyond_the_ideal() -> None:
    """A rule every 30 s under an HPA every 5 s counts the same overload again and again."""
    assert max(result.outcome.peak for result in run()["a"]) == MAXIMUM


def test_a_demand_has_enough_before_utilisation_has() -> None:
    results = run()
    e, f = (results[name] for name in "ef")
    assert max(result.outcome.capacity_s or 999 for result in f) < min(result.outcome.capacity_s or 0 for result in e)


def test_knative_stays_up_for_its_stable_window() -> None:
    spike = simulate(Round(SHAPES["spike"], 5, 0), "Knative", 1, Knative(random.Random(1)))
    down = [second for second, count in spike.seen.desired if second > 20]
    assert spike.outcome.peak == 5
    assert min(down) > 60


def test_each_phase_of_a_chain_is_another() -> None:
    hpa = CONFIGURATIONS["d"]
    reactions = {simulate(STEP, "d", seed, Hpa(hpa, 5, 0, random.Random(seed))).outcome.reaction_s for seed in range(4)}
    assert len(reactions) > 1


def test_what_is_simulated_is_said_to_be() -> None:
    assert {round_.shape.name for round_ in simulated_rounds()} == set(SHAPES)
    results = [result for of in run(replace(STEP, settle_s=30), phases=1).values() for result in of]
    text = page({SIMULATED: results}, {**CONFIGURATIONS, KNATIVE.name: KNATIVE})
    assert "## Simulated: step, HPA period 5 s" in text
    assert "| Knative: its autoscaler |" in text
    assert "not measured" in text
