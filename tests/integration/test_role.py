"""Role gpu_autoscaling as a user runs it: by ansible-playbook, from the collection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from collection import COLLECTIONS_PATH
from control_plane import ControlPlane
from kubernetes import client
from workloads import Workloads

PLAY = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.import_role": {"name": "kubegpu.autoscale.gpu_autoscaling"}}],
    }
]


def play(tmp_path: Path, kubeconfig: Path, *flags: str, **options: Any) -> str:
    (tmp_path / "play.yml").write_text(json.dumps(PLAY))
    variables = {
        "ansible_python_interpreter": sys.executable,
        "kubegpu_kubeconfig": str(kubeconfig),
        "gpu_autoscaling_verify": False,
        **options,
    }
    playbook = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [playbook, "-i", "localhost,", "play.yml", "--extra-vars", json.dumps(variables), *flags],
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH},
        capture_output=True,
        text=True,
    )
    print(done.stdout, done.stderr)  # pytest shows it when the test fails
    assert done.returncode == 0
    return done.stdout


@pytest.fixture
def autoscalers(workloads: Workloads) -> list[dict[str, Any]]:
    workloads.deployment("chat")
    return [{"namespace": workloads.namespace, "target": {"name": "chat"}, "max_replicas": 2}]


def test_present_and_absent_each_change_once(
    tmp_path: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    workloads: Workloads,
    autoscalers: list[dict[str, Any]],
) -> None:
    kubeconfig = plane[0].kubeconfig
    hpas = client.AutoscalingV2Api(plane[1]).list_namespaced_horizontal_pod_autoscaler
    options = {"gpu_autoscaling_autoscalers": autoscalers}
    assert "changed=1" in play(tmp_path, kubeconfig, **options)
    assert [hpa.metadata.name for hpa in hpas(workloads.namespace).items] == ["chat"]
    assert "changed=0" in play(tmp_path, kubeconfig, **options)
    assert "changed=1" in play(tmp_path, kubeconfig, gpu_autoscaling_state="absent", **options)
    assert "changed=0" in play(tmp_path, kubeconfig, gpu_autoscaling_state="absent", **options)
    assert hpas(workloads.namespace).items == []


def test_check_mode_without_a_cluster_says_what_would_be_made(tmp_path: Path) -> None:
    options = {"gpu_autoscaling_autoscalers": [{"target": {"name": "chat"}, "max_replicas": 2}]}
    output = play(tmp_path, tmp_path / "none", "--check", **options)
    assert "HorizontalPodAutoscaler" in output
    assert "changed=1" in output


def test_absent_without_a_cluster_has_nothing_to_do(tmp_path: Path) -> None:
    options = {"gpu_autoscaling_autoscalers": [{"name": "chat"}], "gpu_autoscaling_state": "absent"}
    assert "changed=0" in play(tmp_path, tmp_path / "none", **options)
