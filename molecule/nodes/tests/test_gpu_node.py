"""A GPU server as its owner finds it: GPUs answer, stay pinned, and reach the containers that ask for them."""

from __future__ import annotations

import re

from testinfra.host import Host

testinfra_hosts = ["ansible://kube_node"]

IMAGE = "docker.io/library/python:3.11-slim"
IN_CONTAINER = "import os; print(sorted(name for name in os.listdir('/dev') if name.startswith('nvidia')))"


def test_driver_shows_every_gpu_that_pci_shows(host: Host) -> None:
    devices = host.check_output("cat /sys/bus/pci/devices/*/vendor").split()

    assert len(host.check_output("nvidia-smi -L").splitlines()) == devices.count("0x10de")


def test_driver_stays_loaded_and_comes_back_after_a_boot(host: Host) -> None:
    service = host.service("nvidia-persistenced")

    assert service.is_running
    assert service.is_enabled


def test_an_upgrade_leaves_the_driver_alone(host: Host) -> None:
    for package in ("nvidia-driver-cuda", "libnvidia-ml1", "nvidia-kernel-open-dkms", "nvidia-persistenced"):
        policy = host.check_output(f"apt-cache policy {package}")
        installed = re.search(r"Installed: (\S+)", policy)
        assert installed
        assert f"{installed[1]} 1000" in policy


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
