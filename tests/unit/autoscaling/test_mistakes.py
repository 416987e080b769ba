"""The mistakes that `make mutants` makes: each is made in one place of the arithmetic as it is now."""

from __future__ import annotations

import pytest
import yaml
from collection import ROOT

MISTAKES = yaml.safe_load((ROOT / "tools" / "mutants" / "replicas.yml").read_text())
ARITHMETIC = (ROOT / "plugins" / "module_utils" / "autoscaling" / "replicas.py").read_text()


@pytest.mark.parametrize(("right", "wrong"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_mistake_is_made_where_the_arithmetic_is(right: str, wrong: str) -> None:
    assert ARITHMETIC.count(right) == 1
    assert right != wrong
