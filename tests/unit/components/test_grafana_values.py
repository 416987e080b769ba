"""Values of Grafana's chart, by the options of the monitoring stack."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.stack import grafana_values

OPTIONS: dict[str, Any] = {"grafana": True, "grafana_secret": "login", "alertmanager": False}


def test_without_grafana_nothing_else_is_set() -> None:
    assert grafana_values(OPTIONS | {"grafana": False, "public_dashboards": {1: 1}}) == {"enabled": False}


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
    assert "dashboards" not in values


def test_dashboards_of_grafana_com_have_a_provider_with_their_folder() -> None:
    values = grafana_values(OPTIONS | {"public_dashboards": {12239: 2}})
    [provider] = values["dashboardProviders"]["kubegpu.yaml"]["providers"]
    [name] = values["dashboards"]
    assert provider["name"] == name
    assert provider["options"]["path"].endswith(f"/{name}")
    assert values["dashboards"][name]["dashboard-12239"]["revision"] == 2
