"""A volume that the samples may fill: one day it is full, and Prometheus does not start again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.stack_faults import stack_faults
from playbook import local, run_playbook
from role_values import RoleValues


def volume(size: Any) -> dict[str, Any]:
    return {"prometheus_stack_storage": {"resources": {"requests": {"storage": size}}}}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        (volume("20Gi"), False),
        (volume("5Gi"), True),
        (volume("8G"), True),
        (volume("8Gi"), True),
        (volume(5368709120), True),
        (volume("5Gi") | {"prometheus_stack_retention_size": "4GB"}, False),
        (volume("5Gi") | {"prometheus_stack_retention_size": "4500MB"}, False),
        (volume("1Ti") | {"prometheus_stack_retention_size": "1TB"}, True),
        (volume("5Gi") | {"prometheus_stack_retention_size": ""}, False),
        (volume("as much as there is"), False),
        ({"prometheus_stack_storage": {"storageClassName": "fast"}}, False),
    ],
)
def test_a_volume_has_to_be_larger_than_what_is_kept(options: dict[str, Any], expected: bool) -> None:
    checked = RoleValues("prometheus_stack", options, {"kubegpu_cluster": {}})["__prometheus_stack_checked"]
    assert any("the volume has" in fault for fault in stack_faults(checked)) is expected


def test_it_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    role = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.prometheus_stack", "tasks_from": "preflight"}}
    done = run_playbook(tmp_path, local(role), volume("5Gi"))
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert "the volume has 5Gi, and samples may take 8GB. Nothing was changed. Next: a larger volume" in said
