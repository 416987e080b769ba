"""What Prometheus makes of the rules: promtool, from PROMTOOL or the PATH, on the golden files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from golden import CASES, GOLDEN

HERE = Path(__file__).parent
PROMTOOL = os.environ.get("PROMTOOL", "promtool")


def promtool(*arguments: object) -> None:
    done = subprocess.run([PROMTOOL, *map(str, arguments)], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES)
def test_prometheus_accepts_the_rule(case: str) -> None:
    promtool("check", "rules", "--lint-fatal", GOLDEN / f"{case}.rules.yaml")


@pytest.mark.parametrize("path", sorted(HERE.glob("*_test.yml")), ids=lambda path: path.stem)
def test_the_rule_records(path: Path) -> None:
    promtool("test", "rules", path.name)
