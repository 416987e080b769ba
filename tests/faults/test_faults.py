"""Break the live lab in one way, and the doctor names that, and nothing besides, until it is mended."""

from __future__ import annotations

import time

import pytest
from faults import FAULTS, Fault
from live_lab import STEADY, Lab, Report, ids, wait_until_healed, words

# Prometheus returns the last values of a target for 5 minutes after it is removed from the configuration.
FOUND_S = 480
# A crashed pod may have to wait 5 minutes for its back-off. The last series under other labels go after as long.
HEALED_S = 480

CASES = [
    *(
        pytest.param(fault, False, id=fault.name, marks=() if fault.often else pytest.mark.slow)
        for fault in FAULTS
        if fault.often or not fault.outlasts
    ),
    *(
        pytest.param(fault, True, id=f"{fault.name}-past_its_grace", marks=pytest.mark.slow)
        for fault in FAULTS
        if fault.outlasts
    ),
]


@pytest.mark.parametrize(("fault", "outlasts"), CASES)
def test_the_doctor_names_the_fault_and_nothing_else(lab: Lab, fault: Fault, outlasts: bool) -> None:
    """With grace: false, at once; by default once it is older than its grace, and until then the doctor is silent."""
    with fault.breaking(lab):
        found = expect_only(lab, fault.finding, grace=False, within_s=FOUND_S)
        grace_s = next(finding["grace_s"] for finding in found["findings"])
        if outlasts or not grace_s:
            expect_only(lab, fault.finding, grace=True, within_s=grace_s + FOUND_S)
    wait_until_healed(lab, "silence", HEALED_S)


def expect_only(lab: Lab, finding: str, *, grace: bool, within_s: float) -> Report:
    """Wait until it is all that is found, and return the report. By default nothing else is found at any look."""
    deadline, alike = time.monotonic() + within_s, 0
    while True:
        careful, strict = lab.examine_twice()
        assert ids(careful) <= {finding}, f"a false alarm: {words(careful)}"
        judged = careful if grace else strict
        alike = alike + 1 if ids(judged) == {finding} else 0
        if alike == STEADY:
            return judged
        assert time.monotonic() < deadline, f"after {within_s:.0f} s not {finding} alone: {words(judged)}"
        time.sleep(1)
