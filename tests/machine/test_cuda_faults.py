"""What stops CUDA on a server, done to the lab's driver: the proof and the doctor name it.

Facts are read from the machine, and the errors are those of the program that pods of a proof run. Needs root and a
compiler, as the driver does.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.examine import examine_servers
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import Scope
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.servers import ExaminedServer as Examined
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.servers import NoCluster
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import Hop
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.basis import ClusterParts
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.cuda import (
    cuda_errors,
    missing_gpus,
    read,
    unfinished_fabric,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.nodes import GpuServer, proof_nodes
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.fabric import fabric_states
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.machine import read_gpu_node
from driver_machine import ROOT, ask, build, loaded

GPUS = 2


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("gpu")
    with loaded(folder / "root", build(folder / "built")) as environment:
        yield environment


def facts(machine: dict[str, str]) -> dict[str, Any]:
    """As roles/gpu_proof/tasks/facts.yml reads them, on a server that should have both GPUs."""
    smi = [f"{machine['LD_LIBRARY_PATH']}/nvidia-smi", "-q"]
    printed = subprocess.run(smi, env=machine, capture_output=True, text=True).stdout
    node = read_gpu_node(Path(machine["LAB_GPU_ROOT"]))
    return {**node.facts(), "fabric": fabric_states(printed), "expected_gpus": GPUS}


def proof(machine: dict[str, str], folder: Path, known: dict[str, Any], *, allocatable: int = GPUS) -> str:
    """Errors of gpu_proof for this machine. allocatable: GPUs that the device plugin offers."""
    devices = Path(machine["LAB_GPU_ROOT"], "dev")
    for script in ("roles/gpu_workload/files/cuda.py", "roles/gpu_proof/files/cuda_proof.py"):
        text = (ROOT / script).read_text().replace("/dev/termination-log", f"{folder}/message")
        text = text.replace('Path("/dev")', f"Path({str(devices)!r})")
        (folder / Path(script).name).write_text(text)
    subprocess.run([sys.executable, folder / "cuda_proof.py"], env=machine, stdout=subprocess.DEVNULL)
    status = {"allocatable": {"nvidia.com/gpu": str(allocatable)}, "nodeInfo": {"machineID": "m"}}
    server = GpuServer.of({"node": "gpu1", "facts": known})
    (node,) = proof_nodes([{"metadata": {"name": "gpu1"}, "spec": {}, "status": status}], [], [server], ClusterParts())
    found = [
        unfinished_fabric(node),
        missing_gpus(node, None),
        *cuda_errors(node, read((folder / "message").read_text())),
    ]
    return "\n".join(str(error) for error in found if error)


def doctor(known: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Findings of the doctor for this machine by id, without a cluster."""
    servers, no_cluster = [Examined("gpu1", "gpu1", hops=(Hop.DRIVER,))], NoCluster("no kubeconfig", is_missing=True)
    outcome = examine_servers(servers, no_cluster, scope=Scope(), facts={"gpu1": known}, fail_on="never")
    findings = json.loads(json.dumps(outcome.result))["findings"]
    return {finding["id"]: finding for finding in findings if finding["id"] != "CLUSTER_MISSING"}


@contextmanager
def without_uvm(machine: dict[str, str]) -> Iterator[None]:
    Path(machine["LAB_GPU_ROOT"], "dev/nvidia-uvm").unlink()
    try:
        yield
    finally:
        load = [f"{machine['LD_LIBRARY_PATH']}/nvidia-modprobe", "-u", "-c=0"]
        subprocess.run(load, env=machine, check=True)


@contextmanager
def fabric_in_progress(machine: dict[str, str]) -> Iterator[None]:
    """An NVSwitch on the bus, and a fabric manager that has not joined the GPUs yet."""
    root = Path(machine["LAB_GPU_ROOT"])
    switch, state = root / "sys/bus/pci/devices/0000:05:00.0", root / "run/nvidia-fabricmanager/state"
    switch.mkdir()
    state.parent.mkdir()
    for file, text in (("vendor", "0x10de"), ("class", "0x068000"), ("device", "0x22a3")):
        (switch / file).write_text(f"{text}\n")
    state.write_text("In Progress\n")
    try:
        yield
    finally:
        shutil.rmtree(switch)
        shutil.rmtree(state.parent)


@contextmanager
def lost(machine: dict[str, str]) -> Iterator[None]:
    """A GPU has fallen off the bus while the driver was loaded."""
    assert ask(machine, "set 1 lost 1") == ["ok"]
    try:
        yield
    finally:
        assert ask(machine, "set 1 lost 0") == ["ok"]


@contextmanager
def off_the_bus(machine: dict[str, str]) -> Iterator[None]:
    """A GPU is not enumerated after the server has started again."""
    bus = Path(machine["LAB_GPU_ROOT"], "sys/bus/pci/devices")
    device = sorted(bus.iterdir())[-1]
    kept = bus.parent / "away"
    device.rename(kept)
    try:
        yield
    finally:
        kept.rename(device)


def test_nothing_is_reported_of_a_machine_that_works(machine: dict[str, str], tmp_path: Path) -> None:
    known = facts(machine)
    assert (proof(machine, tmp_path, known), doctor(known)) == ("", {})


def test_a_machine_without_uvm(machine: dict[str, str], tmp_path: Path) -> None:
    with without_uvm(machine):
        known = facts(machine)
        said = proof(machine, tmp_path, known)
    assert said.startswith(
        "node: node gpu1: CUDA does not compute: cuInit: CUDA_ERROR_UNKNOWN (999)\n"
        "  cause: the container has no /dev/nvidia-uvm"
    )
    found = doctor(known)
    assert list(found) == ["DRIVER_UVM_MISSING"]
    assert found["DRIVER_UVM_MISSING"]["seen"] == ["no /dev/nvidia-uvm"]
    assert "nvidia-modprobe -u -c=0" in found["DRIVER_UVM_MISSING"]["fix"]


def test_a_fabric_in_progress(machine: dict[str, str], tmp_path: Path) -> None:
    with fabric_in_progress(machine):
        known = facts(machine)
        said = proof(machine, tmp_path, known)
    assert "node gpu1: Fabric State of 2 GPUs is In Progress, not Completed" in said
    assert "CUDA does not compute: cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802)\n  cause: the NVLink fabric is not" in said
    found = doctor(known)
    assert list(found) == ["FABRIC_NOT_COMPLETED"]
    assert found["FABRIC_NOT_COMPLETED"]["seen"] == ["Fabric State: In Progress"]
    assert "journalctl -u nvidia-fabricmanager" in found["FABRIC_NOT_COMPLETED"]["fix"]


def test_a_gpu_that_the_driver_has_lost(machine: dict[str, str], tmp_path: Path) -> None:
    """Its files are as before, so only a program shows it: that of the proof, and the device plugin's health check."""
    with lost(machine):
        known = facts(machine)
        said = proof(machine, tmp_path, known)
    assert said.startswith(
        "node: node gpu1: GPU 1 does not compute: cuDevicePrimaryCtxRetain: CUDA_ERROR_UNKNOWN (999)"
    )
    assert "cause: the GPU or its driver reports an error" in said
    assert "journalctl -k --grep 'NVRM|Xid'" in said
    assert doctor(known) == {}


def test_a_gpu_that_is_not_on_the_bus(machine: dict[str, str], tmp_path: Path) -> None:
    with off_the_bus(machine):
        known = facts(machine)
        said = proof(machine, tmp_path, known, allocatable=1)
    assert "node gpu1 offers 1 of 2 GPUs (nvidia_driver_expected_gpus, 1 on the PCI bus)" in said
    assert "cause: a GPU has fallen off the bus" in said
    found = doctor(known)
    assert list(found) == ["GPU_MISSING"]
    assert found["GPU_MISSING"]["seen"] == ["1 of 2 expected GPUs are on the PCI bus"]
    assert "set nvidia_driver_expected_gpus to the number of GPUs" in found["GPU_MISSING"]["fix"]
