"""A volume that the samples may fill: one day it is full, and Prometheus does not start again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playbook import local, run_playbook


def volume(size: Any) -> dict[str, Any]:
    return {"prometheus_stack_storage": {"resources": {"requests": {"storage": size}}}}


def test_it_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    role = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.prometheus_stack", "tasks_from": "preflight"}}
    done = run_playbook(tmp_path, local(role), volume("5Gi"))
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert "the volume has 5Gi, and samples may take 8GB. Nothing was changed. Next: a larger volume" in said
