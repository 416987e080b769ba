"""The values of the GPU operator, and what makes it look again."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from collection import ROOT
from role_values import RoleValues

[ACCESS] = yaml.safe_load((ROOT / "roles/gpu_operator/tasks/monitor.yml").read_text())
LOOK, TOUCH = ACCESS["block"]
EXPORTER = {"metadata": {"name": "nvidia-dcgm-exporter", "resourceVersion": "7"}}
WITHOUT_MONITOR = {"gpu_operator_values": {"dcgmExporter": {"serviceMonitor": {"enabled": False}}}}
NO_KIND = {"prometheus_stack_state": "existing"}


@pytest.mark.parametrize(
    ("monitors", "exporters", "options", "expected"),
    [
        (0, 1, {}, 1),
        (1, 1, {}, 0),
        (0, 0, {}, 0),
        (0, 1, WITHOUT_MONITOR, 0),
        (0, 1, NO_KIND, 0),
    ],
    ids=["no monitor", "a monitor", "a pool at zero", "none is wanted", "no such kind"],
)
def test_the_operator_is_made_to_look_again_where_its_exporter_has_no_monitor(
    monitors: int, exporters: int, options: dict[str, Any], expected: int
) -> None:
    """It makes one only if the kind is there when it looks: when something of it changes, or after ten hours."""
    seen = {"result": {"objects": [[EXPORTER] * monitors, [EXPORTER] * exporters]}}
    told = {"__gpu_operator_monitored": seen, "kubegpu_cluster": {"components": {}, "serves_monitors": False}}
    role = RoleValues("gpu_operator", {"gpu_operator_state": "present", **options}, told)
    wanted = all(role[condition] for condition in TOUCH["when"])
    assert len(role[TOUCH["loop"].strip("{} ")]) * wanted == expected


def test_it_is_made_to_after_the_kind_has_come_and_before_anything_is_waited_for() -> None:
    """Its playbook runs before the one that brings the kind."""
    (play,) = yaml.safe_load((ROOT / "playbooks/monitoring.yml").read_text())
    first = play["post_tasks"][0]

    assert first["ansible.builtin.include_role"] == {"name": "kubegpu.autoscale.gpu_operator", "tasks_from": "monitor"}
    assert LOOK["register"] == "__gpu_operator_monitored"


def test_other_counters_make_new_pods_of_the_exporter() -> None:
    """The operator mounts them in a way that running pods do not see change, and looks at no ConfigMap."""
    own = {"dcgmExporter": {"config": {"data": "DCGM_FI_DEV_GPU_UTIL, gauge, Use.\n"}}}
    marks = [
        RoleValues("gpu_operator", options, {})["__gpu_operator_chart"]["values"]["dcgmExporter"].get("annotations")
        for options in ({}, {"gpu_operator_profiling": False}, {"gpu_operator_values": own})
    ]
    assert len({str(mark) for mark in marks}) == len(marks)
    assert all(mark.keys() == {"kubegpu.autoscale/counters-checksum"} for mark in marks)
