"""The playbook doctor.yml as a user runs it, against a real control plane."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from control_plane import ControlPlane
from kubernetes import client
from playbook import run_playbook
from workloads import Workloads


def examine(folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """With an inventory of its own, so that the report's default folder is `folder`/.kubegpu/doctor."""
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"localhost": {"ansible_connection": "local"}}}}))
    return run_playbook(
        folder,
        "kubegpu.autoscale.doctor",
        options,
        inventory="hosts.yml",
        ANSIBLE_CALLBACK_RESULT_FORMAT="yaml",
    )


@pytest.fixture
def options(plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads) -> dict[str, Any]:
    """An HPA on a GPU metric in a cluster that has neither exporter nor Prometheus."""
    workloads.deployment("chat")
    hpa = {
        "metadata": {"name": "chat"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
            "maxReplicas": 4,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {"metric": {"name": "gpu"}, "target": {"type": "AverageValue", "averageValue": "60"}},
                }
            ],
        },
    }
    client.AutoscalingV2Api(plane[1]).create_namespaced_horizontal_pod_autoscaler(workloads.namespace, hpa)
    return {
        "kubegpu_kubeconfig": str(plane[0].kubeconfig),
        "gpu_doctor_namespace": workloads.namespace,
        "gpu_doctor_name": "chat",
        "gpu_doctor_grace": False,
        "gpu_doctor_prometheus": {"namespace": workloads.namespace},
    }


def test_a_broken_chain_is_reported_and_fails(tmp_path: Path, options: dict[str, Any]) -> None:
    done = examine(tmp_path, **options)
    assert done.returncode == 2
    folder = tmp_path / ".kubegpu" / "doctor"
    report = json.loads((folder / "report.json").read_text())
    assert report["verdict"] == "broken"
    first = next(hop for hop in report["hops"] if hop["status"] == "broken")
    assert f"The chain is broken at: {first['title']}: " in done.stdout
    assert all(finding["id"] in (folder / "report.html").read_text() for finding in report["findings"])
    cases = ElementTree.parse(folder / "junit.xml").getroot()
    assert int(cases.get("failures", 0)) == sum(hop["status"] == "broken" for hop in report["hops"]) + 1


def test_it_does_not_fail_if_not_asked_to(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = tmp_path / "elsewhere"
    done = examine(tmp_path, **options, gpu_doctor_fail_on="never", gpu_doctor_report_dir=str(folder))
    assert done.returncode == 0
    assert {path.name for path in folder.iterdir()} == {"report.json", "report.html", "junit.xml"}


def test_without_a_cluster_there_is_nothing_to_report(tmp_path: Path) -> None:
    done = examine(tmp_path, kubegpu_kubeconfig=str(tmp_path / "none"), gpu_doctor_fail_on="never")
    assert done.returncode == 2
    assert "there is no kubeconfig at" in done.stdout
    assert not (tmp_path / ".kubegpu").exists()
