"""Metrics are missing or wrong for ten minutes under load: replicas do not change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from faults import FAULTS, Fault
from live_lab import SAMPLE, WORKLOADS, Lab, wait_until, wait_until_healed

# GPU-seconds a second: at the sample's target of 60 % it takes three of its eight replicas.
LOAD = 1.6
REPLICAS = 3
EVERY_S = 2
# Until the chain has measured again and the HPA has acted on it, twice over.
AFTERWARDS_S = 60

OUTAGES = (
    "prometheus_is_gone",
    "the_adapter_is_gone",
    "the_exporter_is_deleted",
    "the_rule_is_deleted",
    "all_gpus_read_impossible_values",
    "the_rule_divides_by_zero",
    "the_adapter_loses_the_pod_in_its_aggregation",
)


@dataclass(frozen=True)
class Seen:
    """Replicas that the HPA set, from the first to the last reading."""

    during: list[int]
    after: list[int]

    def row(self, fault: Fault, seconds: float) -> str:
        what = fault.name.replace("_", " ")
        return f"| {what} | {seconds / 60:.0f} min | {self.during[0]} | {_span(self.during)} | {_span(self.after)} |"


def _span(replicas: list[int]) -> str:
    least, most = min(replicas), max(replicas)
    return str(least) if least == most else f"{least} to {most}"


@pytest.fixture(scope="module")
def load(lab: Lab) -> Iterator[None]:
    with lab.under_load(LOAD):
        yield
    wait_until_healed(lab, "nothing is left of the load", 240)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS if fault.name in OUTAGES])
def test_replicas_stay_where_they_were(
    lab: Lab, load: None, fault: Fault, outage_s: float, note: Callable[[str], None]
) -> None:
    settle(lab)
    with fault.breaking(lab):
        during = replicas(lab, outage_s)
    after = replicas(lab, AFTERWARDS_S)
    seen = Seen(during, after)
    note(seen.row(fault, outage_s))
    assert set(during) == {REPLICAS}
    assert set(after) == {REPLICAS}


def settle(lab: Lab) -> None:
    """Until the load's replicas have been there for some of the HPA's periods."""
    held = 0

    def holds() -> bool:
        nonlocal held
        held = held + 1 if replicas_now(lab) == REPLICAS else 0
        return held >= 15

    wait_until(holds, f"{REPLICAS} replicas are steady", 180, every_s=EVERY_S)


def replicas(lab: Lab, seconds: float) -> list[int]:
    end, seen = time.monotonic() + seconds, []
    while time.monotonic() < end:
        seen.append(replicas_now(lab))
        time.sleep(EVERY_S)
    return seen


def replicas_now(lab: Lab) -> int:
    return lab.get("Deployment", SAMPLE, WORKLOADS)["spec"]["replicas"]
