"""The playbook autoscaling fails if it finds nothing to do, and names what there is instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playbook import run_playbook
from workloads import Workloads

ROW = {"target": {"name": "inference"}, "max_replicas": 4}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "gpu_autoscaling_autoscalers is empty, so there is no autoscaler to create. Nothing was changed."),
        (
            {"gpu_autoscaling_state": "absent"},
            "gpu_autoscaling_autoscalers is empty, so there is no autoscaler to remove. Nothing was changed.",
        ),
        (
            {"gpu_autoscaling_autoscaler": [ROW]},
            'unknown variable "gpu_autoscaling_autoscaler". Nothing was changed. Next: did you mean',
        ),
        (
            {"gpu_autoscaling_autoscalers": [{**ROW, "namespace": "mll"}]},
            "Deployment mll/inference does not exist (found: ",
        ),
        (
            {"gpu_autoscaling_autoscalers": [{**ROW, "target": {"kind": "deployment", "name": "inference"}}]},
            "deployment default/inference does not exist (found: ",
        ),
    ],
    ids=["no row", "no row to remove", "misspelled variable", "wrong namespace", "kind in lower case"],
)
def test_a_run_that_finds_nothing_is_no_success(
    variables: dict[str, Any], words: str, tmp_path: Path, workloads: Workloads, plane: Any
) -> None:
    workloads.deployment("inference")
    done = run_playbook(
        tmp_path, "kubegpu.autoscale.autoscaling", {"kubegpu_kubeconfig": str(plane[0].kubeconfig), **variables}
    )
    assert done.returncode == 2
    said = " ".join(done.stdout.split())
    assert words in said
    assert "found: " not in words or f"Deployment {workloads.namespace}/inference" in said


def test_a_removal_of_an_unknown_name_is_a_warning(tmp_path: Path, workloads: Workloads, plane: Any) -> None:
    """A second run of a removal is no failure."""
    variables = {
        "gpu_autoscaling_state": "absent",
        "gpu_autoscaling_autoscalers": [{"namespace": "ml", "name": "chatt"}],
    }
    done = run_playbook(
        tmp_path, "kubegpu.autoscale.autoscaling", {"kubegpu_kubeconfig": str(plane[0].kubeconfig), **variables}
    )
    assert done.returncode == 0
    assert "no HPA or ScaledObject found for ml/chatt, so there was none to remove" in " ".join(
        (done.stdout + done.stderr).split()
    )
