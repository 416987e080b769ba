"""What the role gpu_mig refuses before it drains a node."""

from __future__ import annotations

from typing import Any

import pytest
from role_values import RoleValues

WANTED = {"gpu_mig_state": "present"}
OURS = {"gpu_operator_state": "present"}


def refusals(strategy: str | None, **options: Any) -> list[str]:
    """strategy: what GPU feature discovery says of the node."""
    labels = {"nvidia.com/mig.capable": "true", "nvidia.com/gpu.deploy.mig-manager": "true"}
    labels |= {"nvidia.com/mig.strategy": strategy} if strategy else {}
    nodes = {"resources": [{"metadata": {"name": "h1", "labels": labels}, "spec": {}}]}
    said: list[str] = RoleValues("gpu_mig", WANTED | options, {"__gpu_mig_nodes": nodes})["__gpu_mig_refusals"]
    return said


@pytest.mark.parametrize(
    ("profile", "strategy", "options", "is_refused"),
    [
        ("all-balanced", "single", {}, True),
        ("all-balanced", "mixed", {}, False),
        ("all-balanced", None, {}, False),
        ("all-1g.10gb", "single", {}, False),
        ("all-balanced", None, OURS, True),
        ("all-balanced", "single", OURS | {"gpu_operator_values": {"mig": {"strategy": "mixed"}}}, False),
    ],
    ids=["single", "mixed", "not said", "of one size", "by our chart", "changed by our chart"],
)
def test_instances_of_several_sizes_need_the_strategy_that_offers_them(
    profile: str, strategy: str | None, options: dict[str, Any], is_refused: bool
) -> None:
    """By `single` the plugin offers none: "more than one MIG device type present on node"."""
    said = refusals(strategy, gpu_mig_profile=profile, **options)

    assert bool(said) is is_refused
    assert all("Next: gpu_operator_values: {mig: {strategy: mixed}}" in sentence for sentence in said)


def test_a_removal_is_not_refused() -> None:
    assert refusals("single", gpu_mig_state="absent", gpu_mig_profile="all-balanced") == []
