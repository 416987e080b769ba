"""Values of Grafana's chart, by the options of the monitoring stack."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.stack import grafana_values

OPTIONS: dict[str, Any] = {"grafana": True, "grafana_secret": "login", "alertmanager": False}


def test_without_grafana_nothing_else_is_set() -> None:
    assert grafana_values(OPTIONS | {"grafana": False}) == {"enabled": False}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"alertmanager": True}, True),
        ({"alertmanager": True, "values": {"alertmanager": {"enabled": False}}}, False),
        ({"values": {"alertmanager": {"enabled": True}}}, True),
        ({"values": {"alertmanager": None}}, False),
        ({"values": None}, False),
    ],
)
def test_grafana_has_an_alertmanager_only_if_one_is_installed(options: dict[str, Any], expected: bool) -> None:
    """By its own values the chart names one always, and Grafana's page of alerts shows an error."""
    values = grafana_values(OPTIONS | options)
    assert values["sidecar"]["datasources"]["alertmanager"]["enabled"] is expected
    assert values["admin"] == {"existingSecret": "login"}
