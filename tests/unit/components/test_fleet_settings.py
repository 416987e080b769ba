"""What follows from the size of the fleet."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.decisions import fleet
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.fleet import fleet_settings


@pytest.mark.parametrize(
    ("nodes", "autoscalers", "period", "expected"),
    [
        (0, 0, None, (5, 200, 2, 5, 5, 30, 512, 200, 300)),
        (1, 0, None, (5, 200, 1, 2, 2, 10, 512, 200, 304)),
        (20, 20, None, (5, 200, 1, 2, 2, 10, 512, 200, 380)),
        (21, 20, None, (5, 200, 2, 3, 5, 30, 512, 200, 384)),
        (20, 21, None, (5, 200, 2, 2, 5, 30, 512, 200, 380)),
        (80, 250, None, (5, 200, 2, 8, 5, 30, 512, 200, 620)),
        (300, 251, 5, (6, 200, 2, 30, 5, 30, 1500, 750, 1500)),
        (600, 500, 5, (10, 200, 2, 30, 5, 30, 3000, 1500, 2700)),
        (601, 501, 5, (11, 300, 3, 30, 5, 30, 3005, 1503, 2704)),
        (2500, 1250, 5, (25, 500, 9, 30, 5, 30, 12500, 6250, 10300)),
        (0, 1500, 15, (10, 200, 2, 5, 5, 30, 512, 200, 300)),
    ],
)
def test_settings_follow_the_size(nodes: int, autoscalers: int, period: int | None, expected: tuple[int, ...]) -> None:
    assert astuple(fleet_settings(nodes, autoscalers, period)) == expected


@pytest.mark.parametrize("size", [{"nodes": "many"}, {"nodes": None}, {"autoscalers": "1.5"}])
def test_a_size_that_is_no_number_is_rejected_with_the_options_to_set(size: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is not a fleet size\. Next: set kubegpu_fleet"):
        fleet({"kubegpu_fleet": size})


def test_numbers_may_be_text_and_a_period_of_zero_is_rejected() -> None:
    size = {"kubegpu_fleet": {"nodes": "600", "autoscalers": "500"}}
    assert fleet({**size, "kubernetes_hpa_sync_period": "5"})["workers"] == 10
    assert fleet({**size, "kubernetes_hpa_sync_period": ""})["workers"] == 10
    with pytest.raises(ValueError, match="kubernetes_hpa_sync_period"):
        fleet({"kubernetes_hpa_sync_period": 0})


def test_what_is_counted_gives_way_to_what_is_given() -> None:
    counted = {"groups": {"kube_node": ["a"] * 600}, "gpu_autoscaling_autoscalers": [{}] * 501}
    assert (fleet(counted)["memory_mib"], fleet(counted)["workers"]) == (3000, 11)
    given = fleet({**counted, "kubegpu_fleet": {"autoscalers": 1250}})
    assert (given["memory_mib"], given["workers"]) == (3000, 25)
