"""A volume that the samples may fill: one day it is full, and Prometheus does not start again."""

from __future__ import annotations

from pathlib import Path

from playbook import local, run_playbook
from role_values import RoleValues


def test_it_is_refused_before_anything_is_changed_with_all_else_that_is_wrong(tmp_path: Path) -> None:
    options = {"prometheus_stack_volume_size": "5Gi", "prometheus_stack_receivers": [{"name": "a", "type": "slack"}]}
    role = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.prometheus_stack", "tasks_from": "preflight"}}
    done = run_playbook(tmp_path, local(role), options)
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert "the volume has 5Gi, and samples may take 8GB. Nothing was changed. Next: a larger volume" in said
    assert "prometheus_stack_receivers: a (slack) has no secret. Nothing was changed." in said


def test_one_line_gives_two_replicas_a_volume_each() -> None:
    """And a client stays with one of them, so that it reads one series."""
    values = RoleValues("prometheus_stack", {"prometheus_stack_volume_size": "20Gi"}, {})
    spec = values["__prometheus_stack_values.prometheus.prometheusSpec"]
    claim = values["prometheus_stack_storage"]

    assert values["__prometheus_stack_values.prometheus.service"] == {"sessionAffinity": "ClientIP"}
    assert values["__prometheus_stack_values.prometheus.podDisruptionBudget"] == {"enabled": True, "minAvailable": 1}
    assert (spec["replicas"], spec["podAntiAffinity"]) == (2, "hard")
    assert spec["storageSpec"] == {"volumeClaimTemplate": {"spec": claim}}
    assert claim["resources"] == {"requests": {"storage": "20Gi"}}


def test_without_it_there_is_one_replica_without_a_volume() -> None:
    values = RoleValues("prometheus_stack", {}, {})
    spec = values["__prometheus_stack_values.prometheus.prometheusSpec"]

    assert (spec["replicas"], spec["storageSpec"]) == (1, {})
    assert values["__prometheus_stack_values.prometheus.podDisruptionBudget"] == {}
