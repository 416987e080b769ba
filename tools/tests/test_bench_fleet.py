"""What the test with fifty servers counts as a fault."""

from __future__ import annotations

import os
from dataclasses import replace

os.environ.setdefault("LAB", "unit")

import pytest
from bench_fleet import FAILING, FleetRun, faults_of, joined, power, results, slow
from bench_site import SiteRun

COST = SiteRun(seconds=100, cpu_s=50, tasks=200, includes=20, results={}, slowest=[])
ALL_RIGHT = FleetRun(servers=50, run=COST, failed=[*FAILING], joined=46, left_out=[*FAILING], tokens=1)
FIVE = FleetRun(servers=5, run=COST, joined=4, tokens=1)


@pytest.mark.parametrize("run", [ALL_RIGHT, FIVE], ids=["fifty", "five"])
def test_a_run_in_which_only_those_fail_that_should_is_none(run: FleetRun) -> None:
    assert [*faults_of(run)] == []


@pytest.mark.parametrize(
    ("run", "fault"),
    [
        (replace(ALL_RIGHT, unreachable=["node3"]), "50 servers: lost node3"),
        (replace(ALL_RIGHT, failed=["node8"]), "50 servers: node8 failed, and node19, node33, node7 should"),
        (replace(ALL_RIGHT, left_out=[]), "50 servers: the cluster goes on without none"),
        (replace(ALL_RIGHT, joined=0), "50 servers: 0 joined"),
        (replace(FIVE, tokens=4), "5 servers: 4 tokens were made"),
        (replace(FIVE, failed=["node2"]), "5 servers: node2 failed, and none should"),
    ],
)
def test_all_else_is_a_fault(run: FleetRun, fault: str) -> None:
    assert [*faults_of(run)] == [fault]


@pytest.mark.parametrize(("seconds", "expected"), [(100, 0.0), (1000, 1.0), (398, 0.6)])
def test_the_growth_is_a_power_of_the_number_of_servers(seconds: float, expected: float) -> None:
    assert power(FIVE, replace(ALL_RIGHT, run=replace(COST, seconds=seconds)), "seconds") == expected


@pytest.mark.parametrize(("cores", "power", "is_slow"), [(2, 0.95, False), (64, 0.95, True), (64, 0.5, False)])
def test_growth_is_judged_where_the_machine_is_not_the_servers(cores: int, power: float, is_slow: bool) -> None:
    assert bool([*slow({"seconds": power}, cores)]) is is_slow


def test_results_are_those_of_the_task_of_that_name() -> None:
    tasks = [
        {"task": {"name": "kubegpu.autoscale.kubernetes : Join"}, "hosts": {"a": {"changed": True}, "b": {}}},
        {"task": {"name": "Join the cluster"}, "hosts": {"a": {"changed": True}}},
    ]
    assert [*results({"plays": [{"tasks": tasks}]}, "Join")] == [{"changed": True}, {}]


def test_a_join_that_failed_does_not_count() -> None:
    hosts = {"a": {"changed": True}, "b": {"changed": True, "failed": True}, "c": {"skipped": True}}
    task = {"task": {"name": "kubegpu.autoscale.kubernetes : Join"}, "hosts": hosts}
    assert joined({"plays": [{"tasks": [task]}]}) == 1
