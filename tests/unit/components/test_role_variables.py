"""What an inventory wants of each chart role, and that one table has all of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.decisions import BOOLEANS, places
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.places import COMPONENTS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.role_variables import variables, wanted
from collection import ROOT

ROLES = ROOT / "roles"


def defaults_of(role: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROLES / role / "defaults" / "main.yml").read_text())
    return found


@pytest.mark.parametrize("role", COMPONENTS)
def test_the_table_has_the_defaults_of_the_role(role: str) -> None:
    """They apply in plays without the role."""
    known = {option: defaults_of(role)[f"{role}_{option}"] for option in COMPONENTS[role].options}
    assert {**wanted({})[role], "needed": None} == {**known, "needed": None} | {
        option: False for option, value in known.items() if value == ""
    }


def test_the_names_are_those_of_options() -> None:
    names = variables()
    options = {name for role in COMPONENTS for name in defaults_of(role)}
    options |= {"gpu_autoscaling_autoscalers", "kubegpu_metrics_backend"}
    assert set(names) <= options
    assert len(names) == len(set(names))
    assert set(BOOLEANS) <= options


def test_a_value_wins_over_the_default_and_an_empty_one_does_not() -> None:
    given = {"dcgm_exporter_namespace": "gpus", "dcgm_exporter_release": "", "dcgm_exporter_adopt": True}
    assert wanted(given)["dcgm_exporter"] == {
        "state": "auto",
        "namespace": "gpus",
        "release": "dcgm-exporter",
        "adopt": True,
        "host_engine": False,
        "needed": True,
    }


@pytest.mark.parametrize(
    ("extra_metrics", "is_needed"),
    [
        (None, False),
        ([], False),
        ([{"metric": "gpu_util", "target_value": 5}], False),
        ([{"type": "Pods"}, {"type": "Resource"}], True),
        ([{"type": "ContainerResource"}], True),
        (["text"], False),
    ],
)
def test_a_metric_of_cpu_or_memory_needs_metrics_server(extra_metrics: Any, is_needed: bool) -> None:
    options = wanted({"gpu_autoscaling_autoscalers": [{}, {"extra_metrics": extra_metrics}]})
    assert options["metrics_server"]["needed"] is is_needed
    assert options["prometheus_stack"]["needed"] is True


@pytest.mark.parametrize(
    ("values", "is_needed"),
    [
        ({}, False),
        ({"kubegpu_metrics_backend": "adapter", "gpu_autoscaling_autoscalers": [{"backend": "adapter"}]}, False),
        ({"kubegpu_metrics_backend": "keda"}, True),
        ({"gpu_autoscaling_autoscalers": [{}, {"backend": "keda"}]}, True),
    ],
)
def test_an_autoscaler_with_the_backend_keda_needs_keda(values: dict[str, Any], is_needed: bool) -> None:
    assert wanted(values)["keda"]["needed"] is is_needed


def test_what_is_wanted_is_decided_upon() -> None:
    assert {role: place["state"] for role, place in places({}).items()} == {
        **dict.fromkeys(COMPONENTS, "present"),
        "keda": "existing",
        "metrics_server": "existing",
        "gpu_operator": "existing",
    }


PAGE = (ROOT / "CONTRIBUTING.md").read_text()
[ROW] = re.findall(r"^\| a chart role \| (.*) \|$", PAGE, re.MULTILINE)


def chart_of(role: str) -> str:
    """The chart's name, as the role has it."""
    [name] = re.findall(
        rf"^__{role}_chart:\n  name: (\S+)$", (ROLES / role / "vars/main.yml").read_text(), re.MULTILINE
    )
    return name


@pytest.mark.parametrize("role", COMPONENTS)
def test_the_page_says_which_files_a_chart_role_touches(role: str) -> None:
    """Of each part of the row one file has the role or its chart in it."""
    chart = chart_of(role)
    named = [
        re.findall(r"`([^`\s]+/[^`\s]*)`", part)
        for part in ROW.replace("ROLE", role).replace("NAME", chart).split("; ")
    ]
    parts = [[ROOT / path for path in paths] for paths in named if paths]
    assert len(parts) > 8
    assert [paths for paths in parts if not any(mentions(path, role, chart) for path in paths)] == []


def mentions(path: Path, role: str, chart: str) -> bool:
    if path.is_dir():
        return any(path.iterdir())
    return path.is_file() and (path.stem == chart or re.search(rf"\b_*({role}|{chart})", path.read_text()) is not None)


def test_a_new_chart_role_has_a_row() -> None:
    charts = [
        path.parents[1].name
        for path in ROLES.glob("*/vars/main.yml")
        if re.search(r"^__\w+_chart:", path.read_text(), re.M)
    ]
    assert sorted(charts) == sorted(COMPONENTS)
