"""By which strategy the role gpu_mig judges a profile."""

from __future__ import annotations

from typing import Any

import pytest
from role_values import RoleValues

OURS = {"gpu_operator_state": "present"}


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        ({}, ""),
        (OURS, "single"),
        (OURS | {"gpu_operator_values": {"mig": {"strategy": "mixed"}}}, "mixed"),
    ],
    ids=["another operator", "ours", "ours with values"],
)
def test_the_strategy_is_that_of_our_chart(options: dict[str, Any], strategy: str) -> None:
    role = RoleValues("gpu_mig", {"gpu_mig_state": "present"} | options, {})
    assert role["__gpu_mig_strategy"] == strategy
