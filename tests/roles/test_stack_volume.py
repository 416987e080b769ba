"""A volume that the samples may fill: one day it is full, and Prometheus does not start again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.stack_faults import stack_faults
from playbook import local, run_playbook


def volume(size: Any) -> dict[str, Any]:
    return {"prometheus_stack_storage": {"resources": {"requests": {"storage": size}}}}


@pytest.mark.parametrize(
    ("size", "retention_size", "expected"),
    [
        ("20Gi", "8GB", False),
        ("5Gi", "8GB", True),
        ("8G", "8GB", True),
        ("8Gi", "8GB", True),
        (5368709120, "8GB", True),
        ("5Gi", "4GB", False),
        ("5Gi", "4500MB", False),
        ("1Ti", "1TB", True),
        ("5Gi", "", False),
        ("as much as there is", "8GB", False),
    ],
)
def test_a_volume_has_to_be_larger_than_what_is_kept(size: Any, retention_size: str, expected: bool) -> None:
    faults = stack_faults({"storage": {"resources": {"requests": {"storage": size}}}, "retention_size": retention_size})
    assert any("the volume has" in fault for fault in faults) is expected


@pytest.mark.parametrize("storage", [{}, {"storageClassName": "fast"}])
def test_a_volume_without_a_size_is_not_compared(storage: dict[str, Any]) -> None:
    assert stack_faults({"storage": storage, "retention_size": "8GB"}) == []


def test_it_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    role = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.prometheus_stack", "tasks_from": "preflight"}}
    done = run_playbook(tmp_path, local(role), volume("5Gi"))
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert "the volume has 5Gi, and samples may take 8GB. Nothing was changed. Next: a larger volume" in said
