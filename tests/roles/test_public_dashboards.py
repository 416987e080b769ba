"""Dashboards of grafana.com are rejected before connecting to the cluster if no Grafana would show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playbook import local, run_playbook

ROLE = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.prometheus_stack", "tasks_from": "preflight"}}
REACHED = {"kubegpu_cluster_ready": True, "kubegpu_cluster": {"context": "test", "components": {}}}


@pytest.mark.parametrize(
    ("grafana", "public", "said"),
    [
        (
            False,
            {12239: 2},
            "no Grafana is installed to show them. Nothing was changed. Next: set prometheus_stack_grafana",
        ),
        (True, {"nvidia": 2}, "nvidia is not an id or revision. Nothing was changed. Next: give revisions by ids"),
        (True, {12239: "newest"}, "newest is not an id or revision."),
    ],
)
def test_what_nobody_would_show_is_refused(tmp_path: Path, grafana: bool, public: dict[Any, Any], said: str) -> None:
    given = {"prometheus_stack_grafana": grafana, "prometheus_stack_public_dashboards": public}
    done = run_playbook(tmp_path, local(ROLE), given | REACHED)
    assert done.returncode == 2
    assert f"prometheus_stack_public_dashboards: {said}" in " ".join(done.stdout.split())


def test_what_grafana_shows_is_taken(tmp_path: Path) -> None:
    given = {"prometheus_stack_grafana": True, "prometheus_stack_public_dashboards": {12239: 2, "13770": "1"}}
    assert run_playbook(tmp_path, local(ROLE), given | REACHED).returncode == 0
