"""What Grafana is told of the stack beside it."""

from __future__ import annotations

from typing import Any

import pytest
from role_values import RoleValues

RECEIVER = {"name": "pager", "type": "webhook", "secret": {"name": "pager", "key": "url"}}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"prometheus_stack_receivers": [RECEIVER]}, True),
        ({"prometheus_stack_alertmanager": True}, True),
        ({"prometheus_stack_values": {"alertmanager": {"enabled": True}}}, True),
        ({"prometheus_stack_values": {"alertmanager": None}}, False),
    ],
    ids=["none", "for a receiver", "by the option", "by the chart's values", "an empty value"],
)
def test_grafana_knows_an_alertmanager_where_there_is_one(options: dict[str, Any], expected: bool) -> None:
    """By its own values the chart names one always, and Grafana's page of alerts shows an error."""
    values = RoleValues("prometheus_stack", {"prometheus_stack_grafana": True, **options}, {"kubegpu_cluster": {}})
    grafana = values["__prometheus_stack_values"]["grafana"]

    shown = grafana.get("sidecar", {}).get("datasources", {}).get("alertmanager", {}).get("enabled", True)
    assert shown is expected
