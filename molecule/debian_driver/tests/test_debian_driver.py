"""Debian's own driver: the module is there for Debian's kernel, all parts are of one release, and they stay."""

from __future__ import annotations

import os

import pytest
from server import SCENARIO, Server, run
from testinfra.host import Host

testinfra_hosts = ["ansible://kube_node"]

BRANCH = {"debian-12": "535", "debian-13": "550"}[os.environ["LAB_SYSTEM"]]
# Debian's names of them; its modprobe.d takes these where nvidia and nvidia-uvm are asked for.
MODULES = ["nvidia-current", *(f"nvidia-current-{part}" for part in ("modeset", "drm", "uvm", "peermem"))]
# As in molecule.yml: no server of the lab runs a kernel of Debian.
SKIPPED = ["--skip-tags", "nvidia_driver_configure,nvidia_driver_verify"]
PIN = "/etc/apt/preferences.d/kubegpu-nvidia-cuda.pref"
# A repository with a newer release of a package that is installed.
NEWER = """
set -e
mkdir -p /root/newer && cd /root/newer
apt-get download nvidia-smi 2>&1
dpkg-deb --raw-extract nvidia-smi_*.deb tree
sed -i -E 's/^Version: .*/Version: 999.1-1/; s/^(Pre-Depends|Depends|Recommends): .*//; /^$/d' tree/DEBIAN/control
dpkg-deb --build tree newer.deb
rm -r tree nvidia-smi_*.deb
dpkg-scanpackages . >Packages
echo 'deb [trusted=yes] file:/root/newer ./' >/etc/apt/sources.list.d/newer.list
apt-get update 2>&1
"""


@pytest.fixture
def server(host: Host) -> Server:
    return Server(host)


def release(server: Server, package: str) -> str:
    """The upstream release of an installed package: without epoch and revision."""
    version = server.sh(f"dpkg-query --show --showformat '${{Version}}' {package}")
    return version.rpartition(":")[2].partition("-")[0]


@pytest.mark.parametrize("module", MODULES)
def test_dkms_has_built_the_module_for_the_kernel_of_debian(server: Server, module: str) -> None:
    kernel = server.sh("ls /lib/modules").split()[-1]

    found = dict(
        line.split(":", 1) for line in server.sh(f"modinfo --set-version {kernel} {module}").splitlines() if ":" in line
    )

    assert kernel.endswith("-cloud-amd64")
    assert found["version"].strip() == release(server, "libcuda1")
    assert found["vermagic"].split()[0] == kernel


@pytest.mark.parametrize("module", ["nvidia", "nvidia-uvm"])
def test_modprobe_takes_it_for_what_the_role_loads(server: Server, module: str) -> None:
    kernel = server.sh("ls /lib/modules").split()[-1]

    assert module.replace("nvidia", "nvidia-current") in server.sh(
        f"modprobe --set-version {kernel} --show-depends {module}"
    )


def test_all_parts_are_of_one_release(server: Server) -> None:
    packages = ["libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "nvidia-smi"]

    releases = {release(server, package) for package in packages}

    assert len(releases) == 1
    assert releases.pop().startswith(f"{BRANCH}.")


def test_nothing_is_upgraded_by_accident(server: Server) -> None:
    server.sh(NEWER)
    try:
        pinned = server.sh("apt-get --simulate dist-upgrade")
        server.sh(f"mv {PIN} /root/pin")
        free = server.sh("apt-get --simulate dist-upgrade")
    finally:
        server.sh(f"mv /root/pin {PIN}; rm -r /root/newer /etc/apt/sources.list.d/newer.list; apt-get update 2>&1")

    assert "Inst nvidia-smi" not in pinned
    assert "Inst nvidia-smi" in free


@pytest.mark.skipif(BRANCH == "535", reason="the open modules of Debian 12 cannot be installed at all")
def test_a_module_that_does_not_build_is_named_with_the_compiler_s_words(server: Server) -> None:
    failed = run(SCENARIO / "converge.yml", *SKIPPED, nvidia_driver_flavour="open")

    mended = run(SCENARIO / "converge.yml", *SKIPPED)

    assert not failed.succeeded
    assert "did not get driver 550" in failed.text
    assert "too few arguments to function" in failed.text
    assert "make.log" in failed.text
    assert mended.succeeded
    assert server.sh("dpkg --audit") == ""
