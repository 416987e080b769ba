"""The playbook conformance, as a user runs it: the files, and what they claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml
from control_plane import ControlPlane
from kubernetes import client
from playbook import run_playbook
from test_gpu_proof import Cluster, cluster  # noqa: F401 (a fixture)


def test_the_folder_has_what_the_run_has_seen(
    tmp_path: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    cluster: Cluster,  # noqa: F811
) -> None:
    cluster.node("gpu1", 2)
    form = {"metadata": {"kubernetesVersion": "v1.37"}, "spec": {"operator": [], "security": []}}
    entry = {"id": "secure_accelerator_access", "description": "theirs", "level": "MUST", "status": "", "evidence": []}
    form["spec"]["security"] = [entry]
    (tmp_path / "form.yaml").write_text(yaml.safe_dump(form))
    options: dict[str, Any] = {
        "kubegpu_kubeconfig": str(plane[0].kubeconfig),
        "gpu_proof_runtime_class": "",
        "gpu_proof_conformance_dir": str(tmp_path / ".kubegpu" / "conformance"),
        "gpu_proof_report_dir": str(tmp_path / "report"),
    }
    done = run_playbook(tmp_path, "kubegpu.autoscale.conformance", options)
    assert done.returncode == 0, done.stdout
    folder = tmp_path / ".kubegpu" / "conformance"
    assert {path.name for path in folder.iterdir()} == {"PRODUCT.yaml", "junit.xml", "observations.json"}
    assert {oct(path.stat().st_mode & 0o777) for path in folder.iterdir()} == {"0o600"}
    product = yaml.safe_load((folder / "PRODUCT.yaml").read_text())
    entries = {entry["id"]: entry for entries in product["spec"].values() for entry in entries}
    assert entries["pod_autoscaling"]["status"] == "Implemented"
    assert entries["accelerator_metrics"]["status"] == "Implemented"
    # No PodMonitor is served here, and the node is no server of an inventory.
    lacking = ("ai_service_metrics", "cluster_autoscaling", "gang_scheduling")
    assert {entries[name]["status"] for name in lacking} == {""}
    cases = ElementTree.parse(folder / "junit.xml").getroot().iter("testcase")
    assert {case.attrib["name"] for case in cases} == entries.keys()
    assert json.loads((folder / "observations.json").read_text())["chain"]["status"] == "proven"
    assert "pod_autoscaling: shown" in done.stdout
    assert "gang_scheduling: NOT SHOWN" in done.stdout

    filled = run_playbook(
        tmp_path,
        "kubegpu.autoscale.conformance",
        {**options, "gpu_proof_conformance_form": str(tmp_path / "form.yaml")},
    )
    assert filled.returncode == 0, filled.stdout
    kept = yaml.safe_load((folder / "PRODUCT.yaml").read_text())
    assert [found["description"] for found in kept["spec"]["security"]] == ["theirs"]
    assert cluster.left() == []
