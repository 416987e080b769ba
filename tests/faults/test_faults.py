"""Break the live lab in one way, and the doctor names that, and nothing besides, until it is mended."""

from __future__ import annotations

import time

import pytest
from faults import FAULTS, Fault
from live_lab import STEADY, Lab, ids, wait_until_healed, words

# Prometheus goes on giving the last values of a target that is taken out of its configuration for 5 minutes.
FOUND_S = 480
# A crashed pod may have to wait for its back-off, and the last series under other labels go, both after 5 minutes.
HEALED_S = 480


@pytest.mark.parametrize(
    "fault", [pytest.param(each, id=each.name, marks=() if each.often else pytest.mark.slow) for each in FAULTS]
)
def test_the_doctor_names_the_fault_and_nothing_else(lab: Lab, fault: Fault) -> None:
    with fault.breaking(lab):
        expect_only(lab, fault.finding)
    wait_until_healed(lab, "silence", HEALED_S)


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
