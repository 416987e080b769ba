"""The lab's driver with GPUs that are split by MIG: what NVIDIA's programs and the lab's exporter make of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from control_plane import free_port
from driver_machine import ROOT, SETTLES_S, ask, build, loaded, metrics, running
from programs import program

SCRIPTS = ROOT / "roles" / "gpu_workload" / "files"
LIBRARY = "libnvidia-ml.so.580.178.04"
# NVIDIA's programs read /proc/driver and write to the kubelet's folder: here in a mount namespace of their own.
_ON_MACHINE = """
mount --rbind "$LAB_GPU_ROOT/proc/driver" /proc/driver
mount -t tmpfs own /var/lib
mkdir -p /var/lib/kubelet/device-plugins
exec "$@"
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("gpu") / "built")


@pytest.fixture
def machine(tmp_path: Path, built: Path) -> Iterator[dict[str, str]]:
    """Two H100, and NVML where a driver's package puts it."""
    libraries = tmp_path / "root" / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    shutil.copy(built / "libnvidia-ml.so.1", libraries / LIBRARY)
    (libraries / "libnvidia-ml.so.1").symlink_to(LIBRARY)
    with loaded(tmp_path / "root", built, "H100") as environment:
        yield environment


def smi(machine: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [f"{machine['LD_LIBRARY_PATH']}/nvidia-smi", *arguments]
    return subprocess.run(command, env=machine, capture_output=True, text=True)


def split(machine: dict[str, str], gpu: int, *profiles: str) -> None:
    """As an administrator does it."""
    assert smi(machine, "-i", str(gpu), "-mig", "1").returncode == 0
    done = smi(machine, "mig", "-i", str(gpu), "-cgi", ",".join(profiles), "-C")
    assert done.returncode == 0, done.stdout


def listed(machine: dict[str, str]) -> list[str]:
    """Each GPU by its number, each MIG device by its profile."""
    names = re.findall(r"^GPU (\d)|^  MIG (\S+) +Device +\d+: \(UUID: MIG-", smi(machine, "-L").stdout, re.MULTILINE)
    return [gpu or profile for gpu, profile in names]


def on_machine(machine: dict[str, str], *argv: str | Path) -> str:
    """What a program says until it ends, or is ended."""
    command = ["unshare", "--mount", "sh", "-ec", _ON_MACHINE, "sh", *argv]
    return subprocess.run(command, env=machine, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def test_a_gpu_that_is_not_split_says_what_a_real_one_says(machine: dict[str, str]) -> None:
    """An H200 with driver 580.159.04."""
    asked = smi(machine, "--query-gpu=index,mig.mode.current,utilization.gpu", "--format=csv,noheader")
    assert asked.stdout == "0, Disabled, 0 %\n1, Disabled, 0 %\n"
    assert smi(machine, "mig", "-lgi").stdout == "No MIG-enabled devices found.\n"
    root = Path(machine["LAB_GPU_ROOT"])
    minors = (root / "proc/driver/nvidia-caps/mig-minors").read_text().splitlines()
    assert minors[:4] == ["config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4"]
    assert (minors[11], minors[-1]) == ("gpu0/gi1/access 12", "gpu31/gi14/ci7/access 4322")
    nodes = {node.name: node.stat().st_mode & 0o777 for node in (root / "dev/nvidia-caps").iterdir()}
    assert nodes == {"nvidia-cap1": 0o400, "nvidia-cap2": 0o444}


def test_instances_take_what_is_free(machine: dict[str, str]) -> None:
    split(machine, 1, "3g.40gb", "14", "1g.10gb")

    modes = smi(machine, "--query-gpu=index,mig.mode.current,utilization.gpu", "--format=csv,noheader").stdout
    assert modes == "0, Disabled, 0 %\n1, Enabled, [N/A]\n"
    # In the order of their numbers, which begin with the second half of the memory.
    assert listed(machine) == ["0", "1", "3g.40gb", "2g.20gb", "1g.10gb"]
    rows = [line.strip("| ").split()[-3:] for line in smi(machine, "mig", "-lgi").stdout.splitlines()]
    assert rows == [["19", "9", "6:1"], ["14", "3", "4:2"], ["9", "2", "0:4"]]


def test_a_full_gpu_has_no_room(machine: dict[str, str]) -> None:
    split(machine, 0, *["1g.10gb"] * 7)

    more = smi(machine, "mig", "-i", "0", "-cgi", "19", "-C")

    assert "Insufficient Resources" in more.stdout
    assert more.returncode == 23
    assert listed(machine) == ["0", *["1g.10gb"] * 7, "1"]


def test_a_gpu_is_whole_again_once_nothing_is_left_of_it(machine: dict[str, str]) -> None:
    split(machine, 0, "7g.80gb")
    assert "In use" in smi(machine, "-i", "0", "-mig", "0").stdout
    assert "In use" in smi(machine, "mig", "-dgi").stdout

    for step in (["mig", "-dci"], ["mig", "-dgi"], ["-mig", "0"]):
        assert smi(machine, *step).returncode == 0

    assert listed(machine) == ["0", "1"]
    assert len(list((Path(machine["LAB_GPU_ROOT"]) / "dev/nvidia-caps").iterdir())) == 2


def test_a_container_sees_the_instance_whose_nodes_it_has(machine: dict[str, str]) -> None:
    split(machine, 0, "1g.10gb", "1g.10gb")
    caps = Path(machine["LAB_GPU_ROOT"]) / "dev/nvidia-caps"
    (caps / "nvidia-cap102").unlink()  # gpu0/gi11/access

    assert listed(machine) == ["0", "1g.10gb", "1"]


def specification(machine: dict[str, str], folder: Path) -> dict[str, list[str]]:
    """Device nodes by the name of a CDI device, by the real nvidia-ctk."""
    root = machine["LAB_GPU_ROOT"]
    written = folder / "nvidia.yaml"
    said = on_machine(
        machine, program("nvidia-ctk"), "cdi", "generate", "--mode=nvml", f"--driver-root={root}", f"--output={written}"
    )
    assert written.exists(), said
    return {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in yaml.safe_load(written.read_text())["devices"]
    }


def test_the_toolkit_offers_instances_instead_of_their_gpu(machine: dict[str, str], tmp_path: Path) -> None:
    split(machine, 1, "1g.10gb", "2g.20gb")

    offered = specification(machine, tmp_path)

    assert {name for name in offered if re.match(r"\d", name)} == {"0", "1:0", "1:1"}
    assert offered["0"] == ["/dev/nvidia0"]
    assert offered["1:1"] == ["/dev/nvidia1", *(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in (237, 238))]


@pytest.mark.parametrize(
    ("strategy", "profiles", "served"),
    [
        ("mixed", (["1g.10gb", "1g.10gb", "2g.20gb"], []), {"gpu", "mig-1g.10gb", "mig-2g.20gb"}),
        ("single", (["1g.10gb"] * 7, ["19"] * 7), {"gpu"}),
        ("none", (["1g.10gb"], []), {"gpu"}),
    ],
)
def test_the_device_plugin_serves_them_as(
    machine: dict[str, str], strategy: str, profiles: tuple[list[str], list[str]], served: set[str]
) -> None:
    for gpu, wanted in enumerate(profiles):
        if wanted:
            split(machine, gpu, *wanted)

    said = on_machine(machine, "timeout", "4", program("nvidia-device-plugin"), f"--mig-strategy={strategy}")

    # It gives up at the first resource that no kubelet registers. Which one is first is chance.
    assert set(re.findall(r"Starting GRPC server for 'nvidia.com/(\S+)'", said)) <= served, said
    assert "Starting GRPC server for" in said, said


def test_the_device_plugin_refuses_instances_of_two_sizes_as_one_resource(machine: dict[str, str]) -> None:
    split(machine, 0, "1g.10gb", "2g.20gb")
    split(machine, 1, "1g.10gb")

    said = on_machine(machine, "timeout", "10", program("nvidia-device-plugin"), "--mig-strategy=single")

    assert "more than one MIG device type present on node" in said


def test_the_load_of_an_instance_is_its_own(machine: dict[str, str], tmp_path: Path) -> None:
    """From CUDA in what would be a pod, to the exporter; the GPU has no utilisation then."""
    split(machine, 0, "1g.10gb", "1g.10gb")
    assert smi(machine, "-i", "1", "-mig", "1").returncode == 0  # CUDA takes a whole GPU before a part
    counters, port = tmp_path / "counters.csv", free_port()
    fields = ("DEV_GPU_UTIL", "DEV_POWER_USAGE", "DEV_FB_USED", "PROF_GR_ENGINE_ACTIVE")
    counters.write_text("".join(f"DCGM_FI_{field}, gauge, of interest\n" for field in fields))
    settings = {
        "DCGM_EXPORTER_COLLECTORS": str(counters),
        "DCGM_EXPORTER_INTERVAL": "100",
        "DCGM_EXPORTER_LISTEN": f"127.0.0.1:{port}",
    }
    name = subprocess.run(
        [sys.executable, SCRIPTS / "vector_add.py"], env=machine, check=True, capture_output=True, text=True
    ).stdout
    assert re.match(r"NVIDIA H100 80GB HBM3 MIG 1g.10gb \(", name)
    spin = "from cuda import Gpu; import time; gpu = Gpu(); print('on it', flush=True)\n"
    spin += "while True: gpu.spin(50), time.sleep(0.05)"
    with (
        running(program("dcgm-exporter"), env=machine | settings),
        running(sys.executable, "-c", spin, env=machine | {"PYTHONPATH": str(SCRIPTS)}, ready="on it"),
    ):
        deadline, found = time.monotonic() + SETTLES_S, {}

        def value(field: str, part: str) -> float:
            return float(found.get((field, part), "nan"))

        def of_one_gpu() -> bool:
            """That of the GPU, read a moment apart: a percent of its utilisation is 5.6 W, and 140 W an idle one."""
            return value("DEV_POWER_USAGE", "12") == pytest.approx(value("DEV_POWER_USAGE", "11"), abs=12)

        # On a busy machine the load changes between the two reads of its power.
        while not (0.3 < value("PROF_GR_ENGINE_ACTIVE", "11") < 0.7 and of_one_gpu()):
            assert time.monotonic() < deadline, found
            rows = [
                re.match(r'DCGM_FI_(\w+){.*GPU_I_PROFILE="1g.10gb",GPU_I_ID="(\d+)".* (\S+)$', line)
                for line in metrics(f"http://127.0.0.1:{port}")
            ]
            found = {(row[1], row[2]): row[3] for row in rows if row}
        assert ask(machine, "state")[1].split()[5] != "0"  # what the driver knows of it, and NVML does not say
    assert found.keys() == {(field, part) for field in fields if field != "DEV_GPU_UTIL" for part in ("11", "12")}
    assert float(found["PROF_GR_ENGINE_ACTIVE", "12"]) == 0
    assert found["DEV_FB_USED", "11"] == "256"
