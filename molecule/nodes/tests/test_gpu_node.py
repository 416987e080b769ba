"""A GPU server as its owner finds it: GPUs answer, stay pinned, and reach the containers that ask for them."""

from __future__ import annotations

import os
import re

from server import driver_packages
from testinfra.host import Host

testinfra_hosts = ["ansible://kube_node"]

IMAGE = "docker.io/library/python:3.11-slim"
IN_CONTAINER = "import os; print(sorted(name for name in os.listdir('/dev') if name.startswith('nvidia')))"


def test_packages_come_from_the_repositories_of_its_system(host: Host) -> None:
    system, number, codename = host.check_output(". /etc/os-release; echo $ID $VERSION_ID $VERSION_CODENAME").split()
    sources = host.check_output("cat /etc/apt/sources.list.d/kubegpu-*.sources")

    assert f"{system}-{number}" == os.environ["LAB_SYSTEM"]
    assert f"/compute/cuda/repos/{system}{number.replace('.', '')}/x86_64\n" in sources
    assert f"/linux/{system}\nSuites: {codename}\n" in sources


def test_driver_shows_every_gpu_that_pci_shows(host: Host) -> None:
    devices = host.check_output("cat /sys/bus/pci/devices/*/vendor").split()

    assert len(host.check_output("nvidia-smi -L").splitlines()) == devices.count("0x10de")


def test_driver_stays_loaded_and_comes_back_after_a_boot(host: Host) -> None:
    service = host.service("nvidia-persistenced")

    assert service.is_running
    assert service.is_enabled


def test_an_upgrade_leaves_the_driver_alone(host: Host) -> None:
    packages = driver_packages(host)

    assert len(packages) >= 4
    for package, version in packages.items():
        assert f"{version} 1000" in host.check_output(f"apt-cache policy {package}")


def test_nouveau_is_kept_away(host: Host) -> None:
    assert "blacklist nouveau" in host.check_output("modprobe --showconfig")


def test_container_gets_the_gpu_it_asks_for_and_no_other(host: Host) -> None:
    """Pulled by its upstream name, so the registry mirror answers, too."""
    host.check_output(f"ctr --namespace k8s.io images pull --hosts-dir /etc/containerd/certs.d {IMAGE}")

    devices = host.check_output(
        "ctr --namespace k8s.io run --rm --runc-binary /usr/bin/nvidia-container-runtime "
        f'--env NVIDIA_VISIBLE_DEVICES=1 {IMAGE} gpu-test python -c "{IN_CONTAINER}"'
    )

    assert re.findall(r"'nvidia(\d+)'", devices) == ["1"]


def test_kubernetes_knows_the_runtime_nvidia(host: Host) -> None:
    merged = host.check_output("containerd config dump")

    assert ".containerd.runtimes.nvidia.options]" in merged
    assert "default_runtime_name = 'runc'" in merged


def test_swap_is_off_now_and_at_each_boot(host: Host) -> None:
    """Ubuntu's installer makes /swap.img, and the kubelet does not start with it. Here it is a list that is emptied."""
    assert host.check_output("cat /run/swapped") == "/usr/local/sbin/swapoff --all"
    assert host.check_output("cat /proc/swaps") == "Filename"
    assert "ConditionPathExists=!/etc/systemd/system/swap.d/kubegpu.conf" in host.check_output(
        "cat /etc/systemd/system/swap.d/kubegpu.conf"
    )
