"""A comparison that finds nothing has to have looked."""

from __future__ import annotations

import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import charts_check as check
import pytest
from charts_check import NOT_RUN, Key, differences, facets, key, main

from lab.versions import CHECKOUT

SERVICE: dict[str, Any] = {
    "kind": "Service",
    "metadata": {"name": "exporter", "namespace": "monitoring", "labels": {"release": "stack"}},
    "spec": {"selector": {"app": "exporter"}, "ports": [{"name": "metrics", "port": 9400, "targetPort": 9400}]},
}


def found(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], allowed: list[str]) -> list[str]:
    return list(
        differences(
            {key(manifest): manifest for manifest in ours}, {key(manifest): manifest for manifest in theirs}, allowed
        )
    )


def test_equal_charts_do_not_differ() -> None:
    assert found([SERVICE], [deepcopy(SERVICE)], []) == []


@pytest.mark.parametrize(
    ("path", "value", "facet"),
    [
        (("metadata", "labels", "release"), "other", "labels"),
        (("spec", "selector", "app"), "other", "selector"),
        (("spec", "ports", 0, "port"), 9401, "ports"),
        (("spec", "clusterIP"), "None", "headless"),
    ],
)
def test_a_changed_part_is_named(path: tuple[Any, ...], value: Any, facet: str) -> None:
    changed = deepcopy(SERVICE)
    inner: Any = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    [line] = found([changed], [SERVICE], [])
    assert line.startswith(f"Service monitoring/exporter: {facet}\n")


def test_what_one_side_lacks_is_named() -> None:
    assert found([SERVICE], [], []) == ["Service monitoring/exporter: only in the lab's chart"]
    assert found([], [SERVICE], []) == ["Service monitoring/exporter: only in the original"]


def test_the_list_of_what_the_lab_leaves_out_cannot_go_stale() -> None:
    assert found([], [SERVICE], ["Service monitoring/*: only in the original"]) == []
    assert found([SERVICE], [SERVICE], ["Service monitoring/*: ports"]) == [
        "not-in-lab.yml: nothing is like Service monitoring/*: ports"
    ]


def test_the_version_of_a_program_is_no_difference() -> None:
    labelled = deepcopy(SERVICE)
    labelled["metadata"]["labels"]["app.kubernetes.io/version"] = "2.19.1"
    assert dict(facets(labelled)) == dict(facets(SERVICE))
    assert key(labelled) == Key("Service", "monitoring", "exporter")


@pytest.mark.parametrize("given", [[], ["no-such-folder"]])
def test_without_the_originals_it_is_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: list[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["check", *given])

    assert main() == NOT_RUN == 3
    assert "NOT RUN" in capsys.readouterr().out


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the original of the one chart lies, which is an operator's; the lab has none."""
    monkeypatch.setattr("sys.argv", ["check", str(tmp_path)])
    monkeypatch.setattr(check, "releases", lambda _: {"lab": {}})
    monkeypatch.setattr(check, "versions", lambda: {"charts": {}})
    monkeypatch.setattr(check, "pinned", lambda: {"gpu-operator": {"version": "v1"}})
    monkeypatch.setattr(check, "recorded", lambda _: {"global": "map", "replicas": "number"})
    monkeypatch.setattr(check.shutil, "which", lambda *_, **__: "helm")
    return tmp_path / "gpu-operator"


@pytest.mark.parametrize(("values", "status"), [("replicas: 1", 0), ("replicas: one", 1)])
def test_of_an_operator_the_recorded_values_are_compared(
    operator: Path, capsys: pytest.CaptureFixture[str], values: str, status: int
) -> None:
    (operator / "templates").mkdir(parents=True)
    (operator / "values.yaml").write_text(values)
    (operator / "Chart.yaml").write_text("name: gpu-operator")

    assert main() == status
    assert f"gpu-operator v1: its values alone, {status} differences" in capsys.readouterr().out


def test_an_operator_whose_original_is_not_there_is_named(operator: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    assert "gpu-operator: not compared" in capsys.readouterr().out


def steps(*target: str) -> str:
    """What make would run."""
    command = ["make", "--no-print-directory", "--dry-run", *target]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout


def test_nothing_is_compiled_where_the_originals_are_missing(tmp_path: Path) -> None:
    assert "-m lab build" in steps("charts-check", f"CHARTS={tmp_path}")
    assert "-m lab build" not in steps("charts-check", "CHARTS=")
    assert "-m lab build" not in steps("charts-check", "CHARTS=no-such-folder")


def test_the_pins_are_compared_on_any_machine() -> None:
    assert "preflight.py lab" in steps("charts-check", f"CHARTS={CHECKOUT}")
    assert "preflight.py lab" not in steps("pins-check")
