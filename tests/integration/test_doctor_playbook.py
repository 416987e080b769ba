"""The playbook doctor.yml as a user runs it, against a real control plane."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import tarball
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import CHAIN
from collection import ROOT
from control_plane import ControlPlane
from kubernetes import client
from playbook import run_playbook
from readme import FROM_GIT, INSTALL
from workloads import Workloads

# The first line for a cluster without the parts of a chain.
NOTHING_THERE = "This cluster has no node with GPUs. It runs no dcgm-exporter. It has no Prometheus: Prometheus "
PCI_DEVICES = Path("/sys/bus/pci/devices")


def has_nvidia_device() -> bool:
    return any(vendor.read_text().strip() == "0x10de" for vendor in PCI_DEVICES.glob("*/vendor"))


def examine(folder: Path, servers: Sequence[str] = (), **options: Any) -> subprocess.CompletedProcess[str]:
    """With an inventory of its own, so that the report's default folder is `folder`/.kubegpu/doctor.

    servers: names by which this machine is a server.
    """
    local = {"ansible_connection": "local"}
    groups = {"kube_control_plane": servers[:1], "kube_node": servers} if servers else {}
    children = {name: {"hosts": dict.fromkeys(hosts, local)} for name, hosts in groups.items()}
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"localhost": local}, "children": children}}))
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
    assert NOTHING_THERE in " ".join(done.stdout.split())
    page = (folder / "report.html").read_text().replace("<wbr>", "")
    assert all(finding["id"] in page for finding in report["findings"])
    cases = ElementTree.parse(folder / "junit.xml").getroot()
    assert int(cases.get("failures", 0)) == sum(hop["status"] == "broken" for hop in report["hops"]) + 1


def test_reports_are_readable_by_their_user_alone(tmp_path: Path, options: dict[str, Any]) -> None:
    """They name nodes, pods and what is wrong with them."""
    folder = tmp_path / "kept"
    examine(tmp_path, **options, gpu_doctor_report_dir=str(folder))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, *(file.parent for file in files))} == {0o700}


def test_it_does_not_fail_if_not_asked_to(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = tmp_path / "elsewhere"
    done = examine(tmp_path, **options, gpu_doctor_fail_on="never", gpu_doctor_report_dir=str(folder))
    assert done.returncode == 0
    assert {path.name for path in folder.iterdir()} == {".gitignore", "report.json", "report.html", "junit.xml"}


def test_findings_are_metrics_even_where_the_chain_is_broken(tmp_path: Path, options: dict[str, Any]) -> None:
    file = tmp_path / "kubegpu.prom"
    done = examine(tmp_path, **options, gpu_doctor_textfile=str(file))
    assert done.returncode == 2
    report = json.loads((tmp_path / ".kubegpu" / "doctor" / "report.json").read_text())
    assert all(f'kubegpu_doctor_findings{{id="{finding["id"]}",' in file.read_text() for finding in report["findings"])
    assert "kubegpu_doctor_autoscaler_proven{" in file.read_text()


@pytest.mark.parametrize("name", ["none/kubegpu.prom", "kubegpu.txt"])
def test_metrics_that_nobody_would_read_are_refused(tmp_path: Path, name: str) -> None:
    done = examine(tmp_path, kubegpu_kubeconfig=str(tmp_path / "none"), gpu_doctor_textfile=str(tmp_path / name))
    assert done.returncode == 2
    assert "which is not a *.prom file in an existing folder of this machine. Nothing was changed." in " ".join(
        done.stdout.split()
    )


def test_without_a_cluster_there_is_nothing_to_report(tmp_path: Path) -> None:
    done = examine(tmp_path, kubegpu_kubeconfig=str(tmp_path / "none"), gpu_doctor_fail_on="never")
    assert done.returncode == 2
    assert "there is no kubeconfig at" in done.stdout
    assert not (tmp_path / ".kubegpu").exists()


def test_servers_are_examined_beside_their_cluster(tmp_path: Path, options: dict[str, Any]) -> None:
    """This machine is the server. It has no GPU, and its node is not one of the control plane's."""
    done = examine(tmp_path, servers=["gpu1"], **options)
    assert done.returncode == 2
    report = json.loads((tmp_path / ".kubegpu" / "doctor" / "report.json").read_text())
    [server] = report["servers"]
    assert (server["name"], report["cluster"]["reached"], report["verdict"]) == ("gpu1", True, "broken")
    assert {"server", "driver", "runtime", *CHAIN} <= {hop["id"] for hop in report["hops"]}
    assert "hpa" not in report["unchecked_hops"]


def test_a_cluster_that_does_not_answer_is_an_error_beside_the_servers(tmp_path: Path) -> None:
    cluster = {"name": "gone", "cluster": {"server": "https://127.0.0.1:9"}}
    context = {"name": "gone", "context": {"cluster": "gone", "user": "nobody"}}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "gone",
        "users": [{"name": "nobody", "user": {}}],
    }
    (tmp_path / "config").write_text(json.dumps(config | {"clusters": [cluster], "contexts": [context]}))
    done = examine(tmp_path, servers=["gpu1"], kubegpu_kubeconfig=str(tmp_path / "config"), kubegpu_cluster_timeout=1)
    assert done.returncode == 2
    report = json.loads((tmp_path / ".kubegpu" / "doctor" / "report.json").read_text())
    assert (report["verdict"], report["cluster"]["reached"]) == ("broken", False)
    [finding] = [finding for finding in report["findings"] if finding["hop"] == "access"]
    assert finding["id"] == "CLUSTER_UNREACHABLE"
    assert "nothing listens at https://127.0.0.1:9: Connection refused" in finding["seen"][0]


@pytest.mark.skipif(has_nvidia_device(), reason="what is found depends on the driver of this machine")
@pytest.mark.parametrize(("fail_on", "status"), [("error", 0), ("warning", 2)])
def test_servers_are_judged_before_there_is_a_cluster(tmp_path: Path, fail_on: str, status: int) -> None:
    options = {"kubegpu_kubeconfig": str(tmp_path / "none"), "gpu_doctor_fail_on": fail_on}
    done = examine(tmp_path, servers=["gpu1"], **options)
    assert done.returncode == status
    report = json.loads((tmp_path / ".kubegpu" / "doctor" / "report.json").read_text())
    assert [finding["id"] for finding in report["findings"]] == ["CLUSTER_MISSING"]
    assert report["verdict"] == "partial"
    assert "No cluster was reached. On the servers no error was found, 1 of 1 server examined" in done.stdout


def test_the_one_command_of_the_readme(tmp_path: Path, options: dict[str, Any]) -> None:
    """From an empty home to a report. uv's packages are those of .venv here, and Galaxy's collections in a folder."""
    readme = (ROOT / "README.md").read_text()
    [packages, command] = re.findall(r"^uv run --no-project (.*?) -- sh -c '(.*?)'$", readme, re.MULTILINE | re.DOTALL)[
        0
    ]
    python, packages = packages.split("--with ", 1)
    assert python.split() == ["--python", "'>=3.11'", "\\"]
    wanted = {"distlib"} | {
        line.partition(">=")[0] for line in (ROOT / "requirements.txt").read_text().splitlines() if line[0] != "#"
    }
    assert set(packages.replace("--with", "").split()) == set(wanted)
    own = Path(sys.executable)
    [core] = own.parents[1].glob("lib/python*/site-packages/ansible_collections/kubernetes/core")
    shutil.copytree(core, tmp_path / ".ansible" / "collections" / "ansible_collections" / "kubernetes" / "core")
    (tmp_path / ".kube").mkdir()
    shutil.copy(options.pop("kubegpu_kubeconfig"), tmp_path / ".kube" / "config")
    assert FROM_GIT in command
    command = command.replace(FROM_GIT, f"{INSTALL} {tarball.build(tmp_path)}")
    done = subprocess.run(
        ["sh", "-c", f"{command} --extra-vars '{json.dumps(options)}'"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": f"{own.parent}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert NOTHING_THERE in " ".join(done.stdout.split())
    assert json.loads((tmp_path / ".kubegpu" / "doctor" / "report.json").read_text())["verdict"] == "broken"
