"""Break the live lab in one way, and the doctor names that, and nothing besides, until it is mended."""

from __future__ import annotations

import time

import pytest
from faults import FAULTS, Fault
from live_lab import Lab, Report, ids, wait_until, words

# Prometheus goes on giving the last values of a target that is taken out of its configuration for 5 minutes.
FOUND_S = 480
# A crashed pod may have to wait for its back-off, at most 5 minutes.
HEALED_S = 420
# Reports in a row that have to be alike, so that a passing state is not taken for the last one.
STEADY = 3


@pytest.mark.parametrize(
    "fault", [pytest.param(each, id=each.name, marks=() if each.often else pytest.mark.slow) for each in FAULTS]
)
def test_the_doctor_names_the_fault_and_nothing_else(lab: Lab, fault: Fault) -> None:
    with fault.breaking(lab):
        expect_only(lab, fault.finding)
    wait_until(
        lambda: not ids(lab.examine(grace=False)), lambda: f"silence: {words(lab.examine(grace=False))}", HEALED_S
    )


def strictly(lab: Lab) -> Report:
    return lab.examine(grace=False)


def expect_only(lab: Lab, finding: str) -> None:
    """Wait until it is all that is found; on the way, nothing else is found once it is past its grace."""
    deadline, alike, alarms = time.monotonic() + FOUND_S, 0, 0
    while alike < STEADY:
        careful, strict = lab.examine_twice()
        alarms = alarms + 1 if ids(careful) - {finding} else 0
        assert alarms < STEADY, f"a false alarm: {words(careful)}"
        alike = alike + 1 if ids(strict) == {finding} else 0
        assert time.monotonic() < deadline, f"after {FOUND_S} s not {finding} alone: {words(strict)}"
        time.sleep(1)
