"""Whether each dashboard is one that Grafana loads, and asks for series that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.dashboards import (
    COLUMNS,
    config_maps,
)
from collection import ROOT
from test_alerts import RULES, WRITTEN
from test_rules import promtool

DASHBOARDS = yaml.safe_load((ROOT / "roles/gpu_dashboards/files/dashboards.yml").read_text())
NAMES = list(DASHBOARDS)
# kube-state-metrics' and Prometheus' own, which no alert reads.
OTHERS = {
    "ALERTS",
    "kube_horizontalpodautoscaler_spec_min_replicas",
    "kube_pod_created",
    "kube_pod_status_ready_time",
    "prometheus_rule_group_last_duration_seconds",
}
UNITS = {"short", "watt", "celsius", "percent", "percentunit", "s", "ns"}


def saved(name: str) -> dict[str, Any]:
    """As the ConfigMap has it."""
    [config_map] = config_maps({name: DASHBOARDS[name]}, {"namespace": "monitoring"})
    return json.loads(config_map["data"][f"kubegpu-{name}.json"])


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in saved(name)["panels"] if panel["type"] != "row"]


def queries(name: str) -> Iterator[str]:
    """The panels' PromQL with a value for each variable."""
    for panel in panels(name):
        for target in panel["targets"]:
            yield re.sub(r"\$(\w+)", lambda found: "a", target["expr"])


@pytest.mark.parametrize("name", NAMES)
def test_grafana_knows_each_field(name: str) -> None:
    """By the types that Grafana publishes for programs: what they do not know is lost on the way through them."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    assert list(lost(saved(name), json.loads(JSONEncoder().encode(Dashboard.from_json(saved(name)))))) == []


def lost(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from lost(value, theirs.get(key), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, value in enumerate(ours):
            yield from lost(value, theirs[index], f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} became {theirs!r}"


@pytest.mark.parametrize("name", NAMES)
def test_panels_have_numbers_places_units_and_the_chosen_prometheus(name: str) -> None:
    numbers = [panel["id"] for panel in saved(name)["panels"]]
    cells = [
        (x, y)
        for panel in saved(name)["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(numbers) == len(set(numbers))
    assert len(cells) == len(set(cells))
    assert max(x for x, _y in cells) < COLUMNS
    for panel in panels(name):
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["description"].endswith(".")
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


@pytest.mark.parametrize("name", NAMES)
def test_a_panel_asks_by_variables_that_the_dashboard_has(name: str) -> None:
    there = {variable["name"] for variable in saved(name)["templating"]["list"]}
    asked = [target["expr"] for panel in panels(name) for target in panel["targets"]]

    assert set(re.findall(r"\$(\w+)", " ".join(asked))) <= there


def test_prometheus_parses_each_query(tmp_path: Path) -> None:
    rules = [{"record": f"a:{number}", "expr": query} for name in NAMES for number, query in enumerate(queries(name))]
    groups = [{"name": str(number), "rules": [rule]} for number, rule in enumerate(rules)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": groups}))

    promtool("check", "rules", tmp_path / "rules.yml")


@pytest.mark.parametrize("name", NAMES)
def test_each_series_is_one_that_there_is(name: str) -> None:
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    read_by_alerts = {row.partition("{")[0] for row in WRITTEN["healthy"]}
    asked = {
        series
        for query in queries(name)
        for series in re.findall(
            r"\b((?:kube|prometheus|aggregator|DCGM)_\w+|\w+:\w+:\w+|up|ALERTS)(?=[{\s)\[]|$)", query
        )
    }

    assert asked
    assert asked <= recorded | read_by_alerts | OTHERS
