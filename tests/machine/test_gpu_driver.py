"""The lab's driver: programs find its GPUs, and utilisation is what a pod was asked to do; the exporter shows it.

It makes device nodes and is compiled from C, so these tests need root and a compiler.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.fabric import fabric_states
from control_plane import free_port
from driver_machine import ROOT, SETTLES_S, ask, build, loaded, metrics, running, smi
from programs import program

from lab.gpu.pci import plug_in

SCRIPTS = ROOT / "roles" / "gpu_workload" / "files"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("gpu")
    with loaded(folder / "root", build(folder / "built")) as environment:
        yield environment


def test_the_driver_gets_no_gpu_that_another_one_holds(machine: dict[str, str], tmp_path: Path) -> None:
    """As a kernel does it: nouveau is to go first."""
    plug_in(tmp_path / "sys/bus/pci/devices", gpus=1)
    (tmp_path / "sys/bus/pci/devices/0000:10:00.0/driver").symlink_to("../../../drivers/nouveau")
    daemon = f"{machine['LD_LIBRARY_PATH']}/nvidia-persistenced"

    ended = subprocess.run([daemon], env=machine | {"LAB_GPU_ROOT": str(tmp_path)}, capture_output=True, text=True)

    assert (ended.returncode, "no GPU" in ended.stderr) == (1, True)


def test_the_daemon_does_not_start_without_its_library(machine: dict[str, str]) -> None:
    """As upstream's: NVIDIA/nvidia-persistenced opens libnvidia-cfg.so.1 and exits."""
    daemon = f"{machine['LD_LIBRARY_PATH']}/nvidia-persistenced"
    ended = subprocess.run([daemon], env=machine | {"LD_LIBRARY_PATH": ""}, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "libnvidia-cfg.so.1" in ended.stderr


def test_a_library_of_another_release_than_the_driver_fails(machine: dict[str, str], tmp_path: Path) -> None:
    built = Path(machine["LD_LIBRARY_PATH"])
    shutil.copy(built / "libnvidia-ml.so.1", tmp_path / "libnvidia-ml.so.590.48.01")
    (tmp_path / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.590.48.01")
    ended = subprocess.run(
        [built / "nvidia-smi", "-L"], env=machine | {"LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert ended.returncode == 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert ended.stdout == "Failed to initialize NVML: Driver/library version mismatch\n"


def test_the_driver_stays_loaded(machine: dict[str, str]) -> None:
    assert smi(machine, "persistence_mode") == ["Enabled", "Enabled"]


def test_vector_add_passes_on_the_gpu_that_it_names(machine: dict[str, str]) -> None:
    command = [sys.executable, SCRIPTS / "vector_add.py"]
    printed = subprocess.run(command, env=machine, check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == [f"NVIDIA L4 ({smi(machine, 'uuid')[0]})", "Test PASSED"]


def test_vector_add_says_what_is_missing_without_a_driver(machine: dict[str, str]) -> None:
    command = [sys.executable, SCRIPTS / "vector_add.py"]
    ended = subprocess.run(command, env=machine | {"LAB_GPU_ROOT": "/nowhere"}, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, "Test FAILED: cuInit: CUDA_ERROR_NO_DEVICE\n")


def cuda_proof(machine: dict[str, str], tmp_path: Path, **environment: str) -> tuple[int, dict[str, Any]]:
    """Exit status and result of the program that pods of a proof run."""
    for script in (SCRIPTS / "cuda.py", ROOT / "roles/gpu_proof/files/cuda_proof.py"):
        (tmp_path / script.name).write_text(script.read_text().replace("/dev/termination-log", f"{tmp_path}/message"))
    command = [sys.executable, tmp_path / "cuda_proof.py"]
    ended = subprocess.run(command, env=machine | environment, capture_output=True, text=True)
    assert (tmp_path / "message").read_text() == ended.stdout.strip()
    return ended.returncode, json.loads(ended.stdout)


def test_the_proof_computes_on_each_gpu(machine: dict[str, str], tmp_path: Path) -> None:
    status, result = cuda_proof(machine, tmp_path)
    assert status == 0
    assert [row["uuid"] for row in result["gpus"]] == smi(machine, "uuid")
    assert [row["error"] for row in result["gpus"]] == [None, None]


def test_cuda_does_not_start_without_uvm(machine: dict[str, str], tmp_path: Path) -> None:
    """Although nvidia-smi shows all."""
    node = Path(machine["LAB_GPU_ROOT"], "dev/nvidia-uvm")
    node.unlink()
    try:
        status, result = cuda_proof(machine, tmp_path)
        assert len(smi(machine, "uuid")) == 2
    finally:
        load = [f"{machine['LD_LIBRARY_PATH']}/nvidia-modprobe", "-u", "-c=0"]
        subprocess.run(load, env=machine, check=True)
    assert (status, result["gpus"], result["error"]["code"]) == (1, [], 999)
    assert result["error"]["text"] == "cuInit: CUDA_ERROR_UNKNOWN"
    assert cuda_proof(machine, tmp_path)[0] == 0


def test_cuda_does_not_start_before_the_fabric_has_completed(machine: dict[str, str], tmp_path: Path) -> None:
    root = Path(machine["LAB_GPU_ROOT"])
    switch, state = root / "sys/bus/pci/devices/0000:05:00.0", root / "run/nvidia-fabricmanager/state"
    for file, text in (("vendor", "0x10de"), ("class", "0x068000"), ("device", "0x22a3")):
        switch.mkdir(exist_ok=True)
        (switch / file).write_text(f"{text}\n")
    state.parent.mkdir()
    seen = {}
    try:
        for word in ("", "In Progress", "Completed"):
            state.write_text(f"{word}\n")
            printed = subprocess.run(
                [f"{machine['LD_LIBRARY_PATH']}/nvidia-smi", "-q"], env=machine, capture_output=True, text=True
            )
            seen[word] = cuda_proof(machine, tmp_path), set(fabric_states(printed.stdout).values())
    finally:
        shutil.rmtree(switch)
        shutil.rmtree(state.parent)
    assert seen[""][1] == {"Not Started"}
    assert seen["In Progress"][1] == {"In Progress"}
    assert seen["In Progress"][0][1]["error"]["text"] == "cuInit: CUDA_ERROR_SYSTEM_NOT_READY"
    assert (seen["Completed"][0][0], seen["Completed"][1]) == (0, {"Completed"})


def test_a_cuda_library_of_another_release_does_not_start(machine: dict[str, str], tmp_path: Path) -> None:
    built = Path(machine["LD_LIBRARY_PATH"])
    shutil.copy(built / "libcuda.so.1", tmp_path / "libcuda.so.590.48.01")
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so.590.48.01")
    status, result = cuda_proof(machine, tmp_path, LD_LIBRARY_PATH=str(tmp_path))
    assert (status, result["error"]["code"]) == (1, 803)


def test_utilisation_is_what_the_load_asks_for(machine: dict[str, str]) -> None:
    port, control = str(free_port()), str(free_port())
    service = [sys.executable, SCRIPTS / "sample_service.py", "--port", port, "--drain-quiet", "0.2"]
    load = [sys.executable, SCRIPTS / "load.py", f"http://127.0.0.1:{port}", "--port", control, "--gpus", "0.6"]
    with running(*service, env=machine, ready="serving"), running(*load, env=machine, ready="listening"):
        deadline = time.monotonic() + SETTLES_S
        used: list[int] = []
        while not (used and 58 <= used[0] <= 62):
            assert time.monotonic() < deadline, f"0.6 GPU-seconds a second use {used} %"
            used = [int(percent) for percent in smi(machine, "utilization.gpu")]
    assert used[1] == 0


def test_the_service_counts_what_it_was_asked_for(machine: dict[str, str]) -> None:
    port = str(free_port())
    service = [sys.executable, SCRIPTS / "sample_service.py", "--port", port, "--drain-quiet", "0.2"]
    with running(*service, env=machine, ready="serving"):

        def get(path: str) -> str:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}").read().decode()

        for _request in range(3):
            get("/work?ms=20")
        counters = dict(line.rsplit(" ", 1) for line in get("/metrics").splitlines() if not line.startswith("#"))

    outcomes = {"served": "3", "rejected": "0", "failed": "0"}
    of_requests = {f'sample_requests_total{{outcome="{outcome}"}}': count for outcome, count in outcomes.items()}
    assert counters == {**of_requests, "sample_gpu_busy_seconds_total": "0.060"}


def test_profiling_and_utilisation_are_two_numbers(machine: dict[str, str]) -> None:
    assert ask(machine, "set 0 util 90") == ask(machine, "set 0 prof 7") == ask(machine, "set 0 mem 3") == ["ok"]
    assert ask(machine, "state")[1].split()[5:8] == ["90", "7", "3"]
    assert smi(machine, "utilization.gpu") == ["90", "0"]
    for field in ("util", "prof", "mem"):
        assert ask(machine, f"set 0 {field} auto") == ["ok"]
    util, prof, mem = map(int, ask(machine, "state")[1].split()[5:8])
    assert util == prof < 90
    assert mem == util // 2


def test_each_process_is_known_with_what_it_takes(machine: dict[str, str]) -> None:
    """Two on one GPU, as with time-slicing; who only looks is none of them."""
    assert ask(machine, "processes 0") == ["processes 0"]
    spin = "from cuda import Gpu; import time; gpu = Gpu(); print('on it', flush=True)\n"
    spin += "while True: gpu.spin({}), time.sleep(0.05)"
    busy, quiet = ([sys.executable, "-c", spin.format(milliseconds)] for milliseconds in (100, 10))
    environment = machine | {"PYTHONPATH": str(SCRIPTS)}
    with (
        running(*busy, env=environment, ready="on it") as first,
        running(*quiet, env=environment, ready="on it") as other,
    ):
        deadline, found = time.monotonic() + SETTLES_S, {}
        while not (len(found) == 2 and found[first.pid][0] > 2 * found[other.pid][0] > 0):
            assert time.monotonic() < deadline, f"{found} on processes {first.pid} and {other.pid}"
            lines = [line.split() for line in ask(machine, "processes 0")[1:]]
            found = {int(pid): (int(percent), int(held)) for pid, percent, held in lines}
        assert {held for _, held in found.values()} == {256 << 20}
    assert ask(machine, "processes 1") == ["processes 0"]


COUNTERS = """DCGM_FI_DEV_GPU_UTIL, gauge, busy
DCGM_FI_DEV_FB_RESERVED, gauge, reserved
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, active
DCGM_FI_PROF_DRAM_ACTIVE, gauge, memory
"""


@pytest.fixture(scope="module")
def exporter(machine: dict[str, str]) -> Iterator[str]:
    """Address of one that reads every 100 ms and is to ask a kubelet whose socket nobody serves."""
    root, port = Path(machine["LAB_GPU_ROOT"]), free_port()
    counters, kubelet = root / "counters.csv", root / "kubelet.sock"
    counters.write_text(COUNTERS)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(kubelet))
    settings = {
        "DCGM_EXPORTER_COLLECTORS": str(counters),
        "DCGM_EXPORTER_INTERVAL": "100",
        "DCGM_EXPORTER_KUBERNETES": "true",
        "DCGM_EXPORTER_LISTEN": f"127.0.0.1:{port}",
        "DCGM_POD_RESOURCES_KUBELET_SOCKET": str(kubelet),
    }
    with running(program("dcgm-exporter"), env=machine | settings):
        yield f"http://127.0.0.1:{port}"


def readings(exporter: str) -> dict[str, str]:
    """Values of the first GPU by field; empty while the exporter does not answer."""
    return {line.partition("{")[0]: line.rpartition(" ")[2] for line in metrics(exporter) if 'gpu="0"' in line}


def test_the_exporter_tells_profiling_from_utilisation(machine: dict[str, str], exporter: str) -> None:
    """And answers as upstream since 4.5.3, while the kubelet does not: without pods."""
    assert ask(machine, "set 0 util 97") == ask(machine, "set 0 prof 0") == ask(machine, "set 0 mem 40") == ["ok"]
    wanted = {
        "DCGM_FI_DEV_GPU_UTIL": "97",
        "DCGM_FI_DEV_FB_RESERVED": "512",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.000000",
        "DCGM_FI_PROF_DRAM_ACTIVE": "0.400000",
    }
    deadline = time.monotonic() + SETTLES_S
    while (found := readings(exporter)) != wanted:
        assert time.monotonic() < deadline, found


@pytest.mark.parametrize("variable", ["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", "KUBERNETES_ENABLE_DRA"])
def test_the_exporter_refuses_a_setting_that_it_lacks(machine: dict[str, str], variable: str) -> None:
    ended = subprocess.run(program("dcgm-exporter"), env=machine | {variable: "true"}, capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"{variable} is" in ended.stderr
