from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.domain import ReactionBudget


@pytest.mark.parametrize(
    ("periods", "worst_s"),
    [((1, 2, 2, 5), 10), ((1, 2, 2, 15), 20), ((30, 15, 30, 15), 90)],
    ids=["own control plane", "managed control plane", "stock"],
)
def test_worst_and_mean(periods: tuple[float, float, float, float], worst_s: float) -> None:
    budget = ReactionBudget(*periods)
    assert (budget.worst_s, budget.mean_s) == (worst_s, worst_s / 2)
