"""What follows from the size of the fleet."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.filter import fleet_settings as filters
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.fleet import fleet_settings


@pytest.mark.parametrize(
    ("nodes", "autoscalers", "period", "expected"),
    [
        (0, 0, None, (5, 200, 2, 5, 30, 512, 200)),
        (1, 0, None, (5, 200, 1, 2, 10, 512, 200)),
        (20, 20, None, (5, 200, 1, 2, 10, 512, 200)),
        (21, 20, None, (5, 200, 2, 5, 30, 512, 200)),
        (20, 21, None, (5, 200, 2, 5, 30, 512, 200)),
        (80, 250, None, (5, 200, 2, 5, 30, 512, 200)),
        (300, 251, 5, (6, 200, 2, 5, 30, 1500, 750)),
        (600, 500, 5, (10, 200, 2, 5, 30, 3000, 1500)),
        (601, 501, 5, (11, 300, 3, 5, 30, 3005, 1503)),
        (2500, 1250, 5, (25, 500, 9, 5, 30, 12500, 6250)),
        (0, 1500, 15, (10, 200, 2, 5, 30, 512, 200)),
    ],
)
def test_settings_follow_the_size(nodes: int, autoscalers: int, period: int | None, expected: tuple[int, ...]) -> None:
    assert astuple(fleet_settings(nodes, autoscalers, period)) == expected


@pytest.mark.parametrize("size", [{"nodes": "many", "autoscalers": 1}, {"nodes": None, "autoscalers": 1}, {"nodes": 1}])
def test_a_size_that_is_no_number_is_rejected_with_the_options_to_set(size: dict[str, Any]) -> None:
    with pytest.raises(AnsibleFilterError, match=r"is not a fleet size\. Next: set kubegpu_fleet"):
        filters.fleet_settings(size)


def test_numbers_may_be_text_and_a_period_of_zero_is_rejected() -> None:
    assert filters.fleet_settings({"nodes": "600", "autoscalers": "500"}, "5")["workers"] == 10  # type: ignore[arg-type]
    with pytest.raises(AnsibleFilterError, match="kubernetes_hpa_sync_period"):
        filters.fleet_settings({"nodes": 1, "autoscalers": 1}, 0)
