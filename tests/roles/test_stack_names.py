"""Where the Prometheus of a release is found: the chart cuts its names, and leaves no dash at the end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from collection import ROOT
from programs import program
from role_values import RoleValues

RELEASES = ["kube-prometheus-stack", "gpu", "monitoring", "telemetry", "kube-prometheus-stack-gpu-a", "x" * 25]


@pytest.mark.parametrize("release", RELEASES)
def test_prometheus_is_looked_for_by_the_name_that_the_chart_gives_it(release: str) -> None:
    role = RoleValues("prometheus_stack", {"prometheus_stack_release": release}, {"kubegpu_cluster": {}})
    (name,) = _prometheuses(release, role["__prometheus_stack_values"])

    assert f"{role['_common_prometheus.full_name']}-prometheus" == name
    assert role["_common_prometheus.address.service"] == name


def _prometheuses(release: str, values: dict[str, Any]) -> list[str]:
    """The lab's chart gives the names that the original gives."""
    chart = ROOT / "lab" / "charts" / "kube-prometheus-stack"
    argv: list[str | Path] = [program("helm"), "template", "--kube-version", "1.36.0", "--values", "-", release, chart]
    rendered = subprocess.run(argv, check=True, input=json.dumps(values), stdout=subprocess.PIPE, text=True).stdout
    found = [manifest for manifest in yaml.safe_load_all(rendered) if manifest]
    return [manifest["metadata"]["name"] for manifest in found if manifest["kind"] == "Prometheus"]
