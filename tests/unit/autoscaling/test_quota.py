"""How many pods a ResourceQuota leaves room for."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.capacity import pods_within

POD = {
    "containers": [
        {"resources": {"limits": {"nvidia.com/gpu": "2", "memory": "8Gi"}, "requests": {"cpu": "500m"}}},
        {"resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}},
        {"name": "without"},
    ]
}


@pytest.mark.parametrize(
    ("hard", "expected"),
    [
        ({"requests.nvidia.com/gpu": "7"}, (3, "requests.nvidia.com/gpu")),
        ({"requests.cpu": "3"}, (4, "requests.cpu")),
        ({"cpu": "750m"}, (1, "cpu")),
        ({"limits.memory": "20Gi"}, (2, "limits.memory")),
        # The first container's limit is its request, too.
        ({"memory": "20Gi"}, (2, "memory")),
        ({"pods": "5", "count/pods": 4}, (4, "count/pods")),
        ({"requests.nvidia.com/gpu": "7", "pods": "1"}, (1, "pods")),
        ({"limits.cpu": "1", "services": "2", "requests.storage": "1Gi", "requests.nvidia.com/mig-1g.5gb": "0"}, None),
        ({}, None),
    ],
)
def test_room(hard: dict[str, Any], expected: tuple[int, str] | None) -> None:
    assert pods_within(POD, hard) == expected


@pytest.mark.parametrize(
    ("requests", "limit", "expected"),
    [
        (["100m"], "1", 10),
        (["200m"], "2", 10),
        (["100m"], "2", 20),
        (["300m"], "3", 10),
        (["700m"], "7", 10),
        (["100m", "200m"], "300m", 1),
        (["100m"], "99m", 0),
    ],
)
def test_room_is_counted_in_whole_parts(requests: list[str], limit: str, expected: int) -> None:
    """100m is no tenth as a double, so ten of them were more than 1."""
    pod = {"containers": [{"resources": {"requests": {"cpu": request}}} for request in requests]}
    assert pods_within(pod, {"requests.cpu": limit}) == (expected, "requests.cpu")
