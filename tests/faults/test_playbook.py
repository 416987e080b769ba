"""doctor.yml on the servers of the live lab, as its users run it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from faults import FAULTS
from live_lab import Lab

PLAYBOOK = Path(__file__).parents[2] / "playbooks" / "doctor.yml"


def examined(lab: Lab, folder: Path) -> tuple[int, dict[str, Any]]:
    """How the playbook ends, and its report."""
    options = {"gpu_doctor_report_dir": str(folder), "gpu_doctor_grace": False}
    done = subprocess.run(
        ["ansible-playbook", "-i", lab.inventory, PLAYBOOK, "--extra-vars", json.dumps(options)],
        cwd=PLAYBOOK.parents[1],
        capture_output=True,
        text=True,
    )
    print(done.stdout, done.stderr)  # pytest shows it when the test fails
    return done.returncode, json.loads((folder / "report.json").read_text())


def test_a_lab_that_works(lab: Lab, tmp_path: Path) -> None:
    code, report = examined(lab, tmp_path)
    assert code == 0
    assert report["not_checked"] == []
    assert {hop["status"] for hop in report["hops"]} == {"ok"}
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "report.html", "junit.xml"}


@pytest.mark.slow
def test_a_lab_that_is_broken(lab: Lab, tmp_path: Path) -> None:
    """By what only gpu_facts on the server can see."""
    fault = next(fault for fault in FAULTS if fault.finding == "DRIVER_NEEDS_REBOOT")
    with fault.breaking(lab):
        code, report = examined(lab, tmp_path)
    assert code == 2
    assert [finding["id"] for finding in report["findings"]] == [fault.finding]
