from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.reaction_budget import (
    Period,
    ReactionBudget,
)


@pytest.mark.parametrize(
    ("periods", "lag_s", "worst_s"),
    [((1, 2, 2, 5), 5, 10), ((1, 2, 2, 15), 5, 20), ((30, 15, 30, 15), 75, 90)],
    ids=["own control plane", "managed control plane", "stock"],
)
def test_lag_worst_and_mean(periods: tuple[float, float, float, float], lag_s: float, worst_s: float) -> None:
    budget = ReactionBudget(*map(Period, periods))
    assert (budget.metric_lag_s, budget.worst_s, budget.mean_s) == (lag_s, worst_s, worst_s / 2)


def test_a_budget_says_how_it_knows() -> None:
    budget = ReactionBudget(Period(1), Period(1.987, "seen"), Period(2), Period(15, "assumed"))
    assert budget.describe() == {
        "collect_s": 1,
        "scrape_s": 2.0,
        "evaluate_s": 2,
        "sync_s": 15,
        "worst_s": 20.0,
        "mean_s": 10.0,
        "sources": {"collect": "configured", "scrape": "seen", "evaluate": "configured", "sync": "assumed"},
    }
