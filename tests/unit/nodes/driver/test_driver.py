"""What the role nvidia_driver does to machines that no lab has: names by system and branch, and what it rejects."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.driver.checks import AFTER, BEFORE
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.driver.packages import PINNED
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.gpu_node import OURS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.host import AUTHORITIES, CLUSTERS, read_host
from collection import ROOT
from driver_machines import B200, BRIDGE, H100, K80, L4, LOST, MUTE, NVSWITCH, RUBIN, V100, Machine, node_facts, plan

from lab import upstream
from lab.systems import systems
from lab.versions import versions

ROLE = ROOT / "roles" / "nvidia_driver"
PIN = versions()["packages"]["nvidia-driver"].partition("-")[0]
UBUNTU = {"system": "Ubuntu 24.04", "kernel": "6.8.0-79-generic"}
PREBUILT = {"nvidia_driver_source": "ubuntu_prebuilt"}
ARCHIVE = {"nvidia_driver_source": "debian"}
AT_580, AT_570, AT_590 = ({"nvidia_driver_version": f"{branch}.0.1-*"} for branch in (580, 570, 590))

DEBIAN_PACKAGES = ["nvidia-driver-cuda", "libnvidia-cfg1", "nvidia-persistenced", "nvidia-modprobe"]
UNSUFFIXED = ["nvidia-persistenced", "nvidia-modprobe"]
PREBUILT_PACKAGES = [
    f"{name}-580-server" for name in ("libnvidia-compute", "libnvidia-cfg1", "nvidia-compute-utils", "nvidia-utils")
]
ARCHIVE_PACKAGES = ["libcuda1", "libnvidia-ml1", "nvidia-smi", "libnvidia-cfg1", "nvidia-persistenced"]

# Names: NVIDIA's Driver Installation Guide, "Recent Updates"; NVIDIA/gpu-driver-container; packages.ubuntu.com.
PACKAGES = {
    "Debian": (Machine(), [*DEBIAN_PACKAGES, "nvidia-kernel-open-dkms"]),
    "Debian, before Turing": (
        Machine(devices=(V100,)),
        [*DEBIAN_PACKAGES, "nvidia-kernel-dkms"],
    ),
    "Ubuntu up to 580": (
        Machine(**UBUNTU, options=AT_580),
        ["libnvidia-compute-580", "libnvidia-cfg1-580", "nvidia-utils-580", *UNSUFFIXED, "nvidia-dkms-580-open"],
    ),
    "Ubuntu from 590 on": (
        Machine(**UBUNTU, options=AT_590),
        ["libnvidia-compute", "libnvidia-cfg1", *UNSUFFIXED, "nvidia-dkms-open"],
    ),
    "Ubuntu, prebuilt": (
        Machine(**UBUNTU, options=PREBUILT),
        PREBUILT_PACKAGES,
    ),
    # Debian's open modules do not build for the kernels of its updates.
    "Debian 12's own": (Machine(options=ARCHIVE), [*ARCHIVE_PACKAGES, "nvidia-kernel-dkms"]),
    "Debian 13's own": (Machine(system="Debian 13", options=ARCHIVE), [*ARCHIVE_PACKAGES, "nvidia-kernel-dkms"]),
    "Debian's own, before Turing": (
        Machine(system="Debian 13", devices=(V100,), options=ARCHIVE),
        [*ARCHIVE_PACKAGES, "nvidia-kernel-dkms"],
    ),
    "NVSwitches": (
        Machine(devices=(H100, NVSWITCH)),
        [*DEBIAN_PACKAGES, "nvidia-kernel-open-dkms", "nvidia-fabricmanager"],
    ),
    "NVSwitches at 570": (
        Machine(devices=(H100, NVSWITCH), options=AT_570),
        [*DEBIAN_PACKAGES, "nvidia-kernel-open-dkms", "nvidia-fabricmanager-570"],
    ),
    "NVLink 5 whose bridge cannot be asked": (
        Machine(devices=(B200, MUTE)),
        [*DEBIAN_PACKAGES, "nvidia-kernel-open-dkms"],
    ),
    "NVSwitches, prebuilt": (
        Machine(**UBUNTU, devices=(H100, NVSWITCH), options=PREBUILT),
        [*PREBUILT_PACKAGES, "nvidia-fabricmanager-580"],
    ),
}

# What comes beside them: headers of the kernel that runs and of those to come, prebuilt modules, the subnet manager.
BESIDE = {
    "Debian": (Machine(), ["linux-headers-amd64", "linux-headers-6.1.0-40-amd64"]),
    "Debian's cloud kernel": (
        Machine(kernel="6.1.0-40-cloud-amd64"),
        ["linux-headers-cloud-amd64", "linux-headers-6.1.0-40-cloud-amd64"],
    ),
    "Debian 13": (
        Machine(system="Debian 13", kernel="6.12.48+deb13-amd64"),
        ["linux-headers-amd64", "linux-headers-6.12.48+deb13-amd64"],
    ),
    "Ubuntu's hardware enablement kernel": (
        Machine(
            **UBUNTU | {"kernel": "6.14.0-33-generic"},
            installed=(
                "linux-image-6.14.0-33-generic install installed 6.14.0-33.33~24.04.1",
                "linux-image-generic-hwe-24.04 install installed 6.14.0-33.33~24.04.1",
            ),
        ),
        ["linux-headers-generic-hwe-24.04", "linux-headers-6.14.0-33-generic"],
    ),
    "Ubuntu's hardware enablement kernel beside the first one": (
        Machine(
            **UBUNTU | {"kernel": "6.14.0-33-generic"},
            installed=(
                "linux-image-generic install installed 6.8.0-79.79",
                "linux-image-generic-hwe-24.04 install installed 6.14.0-33.33~24.04.1",
            ),
        ),
        ["linux-headers-generic-hwe-24.04", "linux-headers-6.14.0-33-generic"],
    ),
    "Ubuntu in a virtual machine": (
        Machine(**UBUNTU, installed=("linux-image-virtual install installed 6.8.0-79.79",)),
        ["linux-headers-generic", "linux-headers-6.8.0-79-generic"],
    ),
    "a kernel that was built with another compiler than the system's": (
        Machine(system="Ubuntu 22.04", kernel="6.8.0-101-generic", compiler="gcc-12"),
        ["linux-headers-generic", "linux-headers-6.8.0-101-generic", "gcc-12"],
    ),
    "prebuilt for a cloud's kernel": (
        Machine(**UBUNTU | {"kernel": "6.8.0-1036-aws"}, options=PREBUILT, compiler="gcc-13"),
        ["linux-modules-nvidia-580-server-open-aws", "nvidia-modprobe"],
    ),
    "prebuilt, before Turing": (
        Machine(**UBUNTU, devices=(V100,), options=PREBUILT),
        ["linux-modules-nvidia-580-server-generic", "nvidia-modprobe"],
    ),
    "NVLink 5": (
        Machine(devices=(B200, BRIDGE)),
        ["linux-headers-amd64", "linux-headers-6.1.0-40-amd64", "nvlsm=2025.10.*", "infiniband-diags"],
    ),
}

# What brings the whole kernel that prebuilt modules are made for: they bring its image alone.
KERNELS = {
    "generic": (
        Machine(**UBUNTU, installed=("linux-image-generic install installed 6.8.0-79.79",), options=PREBUILT),
        ["linux-image-generic"],
    ),
    "the one that runs": (
        Machine(
            **UBUNTU | {"kernel": "6.14.0-33-generic"},
            installed=(
                "linux-image-generic install installed 6.8.0-79.79",
                "linux-image-generic-hwe-24.04 install installed 6.14.0-33.33~24.04.1",
            ),
            options=PREBUILT,
        ),
        ["linux-image-generic-hwe-24.04"],
    ),
    "a virtual machine's": (
        Machine(**UBUNTU, installed=("linux-image-virtual install installed 6.8.0-79.79",), options=PREBUILT),
        ["linux-image-virtual"],
    ),
    "a cloud's, with the rest apart": (
        Machine(
            **UBUNTU | {"kernel": "6.8.0-1036-aws"},
            installed=(
                "linux-image-aws install installed 6.8.0-1036.38",
                "linux-modules-extra-aws install installed 6.8.0-1036.38",
                "linux-modules-extra-6.8.0-1036-aws install installed 6.8.0-1036.38",
            ),
            options=PREBUILT,
        ),
        ["linux-image-aws", "linux-modules-extra-aws"],
    ),
    "without a meta package": (Machine(**UBUNTU, options=PREBUILT), ["linux-image-generic"]),
    "with its modules already": (
        Machine(
            **UBUNTU,
            installed=(
                "linux-image-generic install installed 6.8.0-79.79",
                "linux-modules-nvidia-580-server-open-generic install installed 6.8.0-79.79",
            ),
            options=PREBUILT,
        ),
        [],
    ),
    "by DKMS": (Machine(**UBUNTU, installed=("linux-image-generic install installed 6.8.0-79.79",)), []),
}

OLD_UBUNTU = (
    "libnvidia-compute-570 install installed 570.172.08-0ubuntu1",
    "nvidia-dkms-570-open install installed 570.172.08-0ubuntu1",
    "nvidia-container-toolkit install installed 1.18.0-1",
    "nvidia-support install installed 20220217+3~deb12u1",
)

# What has to move, or to go, on the way to the wanted set.
STRANGERS = {
    "nothing": (Machine(installed=(f"libnvidia-ml1 install installed {PIN}-1",)), []),
    "another release": (
        Machine(installed=("libnvidia-ml1 install installed 570.172.08-1",)),
        ["libnvidia-ml1"],
    ),
    "another branch, and neither the toolkit nor Debian's helpers": (
        Machine(**UBUNTU, installed=OLD_UBUNTU, options=AT_580),
        ["libnvidia-compute-570", "nvidia-dkms-570-open"],
    ),
    "the other flavour at the same version": (
        Machine(installed=(f"nvidia-kernel-dkms install installed {PIN}-1",)),
        ["nvidia-kernel-dkms"],
    ),
    "a fabric manager of another release": (
        Machine(
            devices=(H100, NVSWITCH),
            installed=(
                f"libnvidia-ml1 install installed {PIN}-1",
                "nvidia-fabricmanager install installed 580.205.08-1",
            ),
        ),
        ["nvidia-fabricmanager"],
    ),
    "from DKMS to prebuilt": (
        Machine(
            **UBUNTU,
            installed=(
                f"libnvidia-compute-580 install installed {PIN}-0ubuntu1",
                f"nvidia-dkms-580-open install installed {PIN}-0ubuntu1",
            ),
            options=PREBUILT,
        ),
        ["libnvidia-compute-580", "nvidia-dkms-580-open"],
    ),
    "from prebuilt to DKMS": (
        Machine(
            **UBUNTU,
            installed=(
                "libnvidia-compute-580-server install installed 580.0.1-0ubuntu0.24.04.1",
                "linux-modules-nvidia-580-server-open-generic install installed 6.8.0-79.79",
            ),
            options=AT_580,
        ),
        ["libnvidia-compute-580-server", "linux-modules-nvidia-580-server-open-generic"],
    ),
    "Debian's own, with parts that have numbers of their own": (
        Machine(
            system="Debian 13",
            installed=(
                "libnvidia-ml1 install installed 550.163.01-2",
                "nvidia-modprobe install installed 570.133.07-1",
                "nvidia-kernel-dkms install installed 550.163.01-2",
            ),
            options=ARCHIVE,
        ),
        [],
    ),
    "another flavour that did not build": (
        Machine(
            system="Debian 13",
            installed=(
                "libnvidia-ml1 install installed 550.163.01-2",
                "nvidia-open-kernel-dkms install half-configured 550.163.01-2",
            ),
            options=ARCHIVE,
        ),
        ["nvidia-open-kernel-dkms"],
    ),
    "from Debian's own to NVIDIA's": (
        Machine(
            installed=(
                "libnvidia-ml1 install installed 535.261.03-1",
                "nvidia-open-kernel-dkms install installed 535.261.03-1",
                "nvidia-modprobe install installed 535.161.07-1~deb12u1",
            ),
        ),
        ["libnvidia-ml1", "nvidia-modprobe", "nvidia-open-kernel-dkms"],
    ),
    "Ubuntu's own driver at the release that NVIDIA's is to have": (
        Machine(
            **UBUNTU,
            installed=(
                "libnvidia-compute-580 install installed 580.0.1-0ubuntu0.24.04.1",
                "nvidia-dkms-580-open install installed 580.0.1-0ubuntu1",
            ),
            options=AT_580,
        ),
        ["libnvidia-compute-580"],
    ),
    "GPUDirect Storage of Ubuntu's kernel for NVIDIA's servers": (
        Machine(
            **UBUNTU | {"kernel": "6.17.0-1019-nvidia"},
            installed=(
                "linux-modules-nvidia-fs-6.17.0-1019-nvidia install installed 6.17.0-1019.19",
                "linux-modules-nvidia-580-server-open-nvidia-hwe-24.04 install installed 6.17.0-1019.19",
            ),
            options=AT_580,
        ),
        ["linux-modules-nvidia-580-server-open-nvidia-hwe-24.04"],
    ),
    "prebuilt stays": (
        Machine(
            **UBUNTU,
            installed=(
                f"libnvidia-compute-580-server install installed {PIN}-0ubuntu0.24.04.1",
                "linux-modules-nvidia-580-server-open-generic install installed 6.8.0-79.79",
            ),
            options=PREBUILT,
        ),
        [],
    ),
}

NEWER = ("libnvidia-ml1 install installed 590.48.01-1",)
MEMBER = Machine(loaded="570.172.08", installed=("libnvidia-ml1 install installed 570.172.08-1",), member=True)

# Ubuntu enrolls no key before a module of DKMS is there; Debian 12's dkms has no `generate_mok`.
MOK_OF_UBUNTU = (
    "`apt-get install dkms mokutil openssl shim-signed && update-secureboot-policy --new-key && "
    "mokutil --import /var/lib/shim-signed/mok/MOK.der`; then reboot"
)
MOK_OF_DEBIAN = (
    "`apt-get install dkms mokutil openssl && openssl req -new -x509 -nodes -days 36500 "
    '-subj "/CN=DKMS module signing key" '
    "-newkey rsa:2048 -keyout /var/lib/dkms/mok.key -outform DER -out /var/lib/dkms/mok.pub && "
    "mokutil --import /var/lib/dkms/mok.pub`; then reboot"
)

REFUSED = {
    "open modules before Turing": (
        Machine(devices=(V100,), options={"nvidia_driver_flavour": "open"}),
        "need the proprietary kernel modules",
    ),
    "proprietary modules on Blackwell": (
        Machine(devices=(B200,), options={"nvidia_driver_flavour": "proprietary"}),
        "need the open kernel modules",
    ),
    "fewer GPUs than are expected": (
        Machine(devices=(L4,), options={"nvidia_driver_expected_gpus": 2}),
        "has 1 GPUs by PCI, and nvidia_driver_expected_gpus is 2",
    ),
    "Volta and Blackwell": (Machine(devices=(V100, B200)), "no single driver supports"),
    "Volta after 580": (Machine(devices=(V100,), options=AT_590), "their last branch is 580"),
    "Kepler at 580": (Machine(devices=(K80,)), "their last branch is 470"),
    "Blackwell before 570": (
        Machine(devices=(B200,), options={"nvidia_driver_version": "565.57.01-*"}),
        "their first branch is 570",
    ),
    "newer than Blackwell before 570": (
        Machine(devices=(RUBIN,), options={"nvidia_driver_version": "565.57.01-*"}),
        "their first branch is 570",
    ),
    "proprietary modules on what is newer than Blackwell": (
        Machine(devices=(RUBIN,), options={"nvidia_driver_flavour": "proprietary"}),
        "need the open kernel modules",
    ),
    "a GPU that has fallen off the bus": (
        Machine(devices=(H100, LOST)),
        "does not report the device id of 0000:01:00.0",
    ),
    "prebuilt on Debian": (Machine(options=PREBUILT), "nvidia_driver_source: ubuntu_prebuilt is for Ubuntu alone"),
    "Debian's own on Ubuntu": (Machine(**UBUNTU, options=ARCHIVE), "is for Debian alone"),
    "Debian's own with NVSwitches": (
        Machine(devices=(H100, NVSWITCH), options=ARCHIVE),
        "needs a fabric manager, which Debian does not have",
    ),
    "Debian's own for Blackwell": (Machine(devices=(B200,), options=ARCHIVE), "Debian has no other branch"),
    "Volta where NVIDIA has no 580": (
        Machine(system="Ubuntu 26.04", devices=(V100,), options={"nvidia_driver_version": "595.91.07-*"}),
        "for Ubuntu 26.04 begins with branch 595. Nothing was changed. Next: set nvidia_driver_source: ubuntu_prebuilt",
    ),
    "Volta on Debian 13": (
        Machine(system="Debian 13", devices=(V100,), options={"nvidia_driver_version": "595.91.07-*"}),
        "for Debian 13 begins with branch 590. Nothing was changed. Next: set nvidia_driver_source: debian",
    ),
    "a branch that the system's repository does not have": (
        Machine(system="Debian 13", options=AT_580),
        "has no branch 580: it begins with 590",
    ),
    "prebuilt with NVLink 5": (
        Machine(**UBUNTU, devices=(B200, BRIDGE), options=PREBUILT),
        "needs the NVLink subnet manager, which Ubuntu does not have",
    ),
    "a downgrade that nobody asked for": (Machine(installed=NEWER), f"newer than {PIN}-*"),
    "a downgrade within the branch": (
        Machine(installed=("libnvidia-ml1 install installed 580.205.08-1",)),
        'set nvidia_driver_version: "580.205.08-*" to keep it',
    ),
    "a held package": (
        Machine(
            installed=(
                "libnvidia-ml1 install installed 570.172.08-1",
                "nvidia-driver-cuda hold installed 570.172.08-1",
            )
        ),
        "`apt-mark unhold nvidia-driver-cuda`",
    ),
    "a driver that no package brought": (Machine(loaded=f"{PIN}"), "`nvidia-uninstall`"),
    "another driver under the pods of a node": (
        MEMBER,
        "Next: `ansible-playbook kubegpu.autoscale.upgrade_driver`, which drains one node after the other; "
        "or set nvidia_driver_version, nvidia_driver_flavour and nvidia_driver_source to what is installed",
    ),
    "Secure Boot": (Machine(secure_boot=True), MOK_OF_DEBIAN),
    "Secure Boot on Ubuntu": (Machine(**UBUNTU, secure_boot=True), "set nvidia_driver_source: ubuntu_prebuilt"),
    "Secure Boot on Ubuntu, with DKMS all the same": (Machine(**UBUNTU, secure_boot=True), MOK_OF_UBUNTU),
    "what cannot work, where the kernel's own driver holds the GPUs": (
        Machine(system="Ubuntu 26.04", bound="NovaCore", secure_boot=True),
        MOK_OF_UBUNTU,
    ),
    "Debian without contrib": (
        Machine(components=("main", "non-free-firmware")),
        "uses Debian without contrib. Cause: the driver's packages, or packages that they depend on, are in these",
    ),
    "prebuilt without multiverse": (
        Machine(**UBUNTU, options=PREBUILT, components=("main", "restricted", "universe")),
        "uses Ubuntu without multiverse",
    ),
    "Debian's own without its components": (
        Machine(system="Debian 13", options=ARCHIVE, components=("main",)),
        "uses Debian without contrib, non-free, non-free-firmware",
    ),
    "all at once": (
        Machine(
            devices=(V100,),
            secure_boot=True,
            installed=("nvidia-driver-cuda hold installed 570.172.08-1",),
            options=AT_590,
        ),
        "`apt-mark unhold nvidia-driver-cuda`",
    ),
}

ALLOWED = {
    "a downgrade that was asked for": Machine(installed=NEWER, options=AT_580),
    "a branch that holds what is newer": Machine(
        **UBUNTU,
        installed=("libnvidia-compute-580-server install installed 580.173.02-0ubuntu0.24.04.1",),
        options=PREBUILT,
    ),
    "a held package that stays": Machine(
        installed=(
            f"libnvidia-ml1 install installed {PIN}-1",
            f"nvidia-driver-cuda hold installed {PIN}-1",
        )
    ),
    "Debian 13 without contrib": Machine(system="Debian 13", components=("main",)),
    "what is newer than Blackwell": Machine(devices=(RUBIN,)),
    "a GPU that has fallen off the bus, and somebody who knows better": Machine(
        devices=(H100, LOST), options={"nvidia_driver_flavour": "open"}
    ),
    "another driver on a server in no cluster": replace(MEMBER, member=False),
    "another driver on a node that is drained first": replace(MEMBER, options={"nvidia_driver_reboot_ok": True}),
    "a first driver on a node": Machine(member=True),
    "Secure Boot with an enrolled key": Machine(secure_boot=True, enrolled=True),
    "Secure Boot with prebuilt modules": Machine(**UBUNTU, secure_boot=True, options=PREBUILT),
    "Secure Boot with a driver in use": Machine(
        secure_boot=True, loaded=f"{PIN}", installed=(f"libnvidia-ml1 install installed {PIN}-1",)
    ),
    "Secure Boot that is off": Machine(secure_boot=False),
    "no GPU, whatever else": Machine(devices=(), secure_boot=True, installed=NEWER),
}

# What each system can be asked for, with switches between the GPUs where the source has a fabric manager.
ASKED_FOR = {
    f"{system}, {source}, {flavour}": Machine(
        system=" ".join(system.capitalize().split("-")),
        kernel="6.8.0-79-generic" if system.startswith("ubuntu") else "6.1.0-40-amd64",
        devices=(L4,) if source == "debian" else (H100, NVSWITCH),
        options={"nvidia_driver_source": source, "nvidia_driver_flavour": flavour},
    )
    for system in systems()
    for source in ("cuda_repo", "ubuntu_prebuilt" if system.startswith("ubuntu") else "debian")
    for flavour in ("open", "proprietary")
}


def apt(folder: Path, machine: Machine) -> dict[str, Any]:
    found: dict[str, Any] = plan(folder, machine)["packages"]["apt"]
    return found


def refusal(folder: Path, machine: Machine) -> str:
    return "\n".join(plan(folder, machine)["refused"])


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_by_system_and_branch(tmp_path: Path, name: str) -> None:
    assert apt(tmp_path, PACKAGES[name][0])["packages"] == PACKAGES[name][1]


@pytest.mark.parametrize("name", ASKED_FOR)
def test_a_system_has_what_is_asked_for_there(tmp_path: Path, name: str) -> None:
    system, source, *_ = name.split(", ")
    made = plan(tmp_path, ASKED_FOR[name])
    assert made["refused"] == []
    values = made["packages"]["apt"]
    of_archive = source != "cuda_repo"
    there = {
        (package.name, package.version)
        for package in upstream.packages()
        if package.repository in upstream.systems()[system]
        and (not upstream.repositories()[package.repository].path) == of_archive
    }
    modules = [package for package in values["extra"] if package.startswith("linux-modules-")]
    missing = [
        package
        for package in values["packages"]
        if not any(name == package and fnmatchcase(version, values["version"]) for name, version in there)
    ]

    assert missing == []
    assert set(modules) <= {name for name, _ in there}
    if not of_archive:
        (repository,) = (upstream.repositories()[name] for name in upstream.systems()[system] if "nvidia-cuda" in name)
        key = upstream.keys()[repository.key]
        assert values["url"] == f"https://{repository.path}"
        assert values["key_url"] == f"https://{repository.path}/{key.file}"
        assert values["fingerprint"] == key.fingerprint


@pytest.mark.parametrize("name", BESIDE)
def test_packages_beside_the_driver(tmp_path: Path, name: str) -> None:
    assert apt(tmp_path, BESIDE[name][0])["extra"] == BESIDE[name][1]


@pytest.mark.parametrize("name", KERNELS)
def test_prebuilt_modules_come_with_a_whole_kernel(tmp_path: Path, name: str) -> None:
    """The drivers of many network cards are in linux-modules-extra, on which an image does not depend."""
    assert plan(tmp_path, KERNELS[name][0])["packages"]["kernel"] == KERNELS[name][1]


@pytest.mark.parametrize("name", STRANGERS)
def test_packages_that_have_to_move(tmp_path: Path, name: str) -> None:
    assert sorted(plan(tmp_path, STRANGERS[name][0])["packages"]["foreign"]) == sorted(STRANGERS[name][1])


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_with_the_way_out(tmp_path: Path, name: str) -> None:
    assert REFUSED[name][1] in refusal(tmp_path, REFUSED[name][0])


LAGGING = {
    "rc": 100,
    "stdout": "The following packages have unmet dependencies:\n nvidia-fabricmanager-580 : Depends: "
    "nvidia-kernel-common-580-server-580.159.03",
}


@pytest.mark.parametrize(("answer", "lags"), [(LAGGING, True), ({**LAGGING, "rc": 0}, False), ({"rc": 100}, False)])
def test_a_fabric_manager_that_lags_is_refused(tmp_path: Path, answer: dict[str, Any], lags: bool) -> None:
    """An apt without lists proves nothing: it does not know the packages yet."""
    made = plan(tmp_path, PACKAGES["NVSwitches, prebuilt"][0], solution={"stdout": "", **answer})

    assert made["steps"]["ask_solution"]
    assert ("apt-cache policy nvidia-fabricmanager-580 libnvidia-compute-580-server" in str(made["refused"])) is lags


def test_only_an_archive_s_fabric_manager_is_solved_before(tmp_path: Path) -> None:
    made = [plan(tmp_path / name, PACKAGES[name][0]) for name in ("NVSwitches", "Ubuntu, prebuilt")]

    assert [plan["steps"]["ask_solution"] for plan in made] == [False, False]


def test_each_reason_happens() -> None:
    """Of the findings before a change each has a machine above."""
    with TemporaryDirectory() as folder:
        said = "\n".join(
            refusal(Path(folder) / str(number), machine) for number, (machine, _words) in enumerate(REFUSED.values())
        )
        lagging = plan(Path(folder) / "lags", PACKAGES["NVSwitches, prebuilt"][0], solution=LAGGING)
        said += "\n".join(lagging["refused"])
    assert [kind.id for check in BEFORE for kind in check.types if f"({kind.doc})" not in said] == []


def test_all_reasons_are_told_at_once(tmp_path: Path) -> None:
    said = refusal(tmp_path, REFUSED["all at once"][0])

    assert [said.count(words) for words in ("their last branch is 580", "mokutil --import", "apt-mark unhold")] == [
        1,
        1,
        1,
    ]


@pytest.mark.parametrize("name", ALLOWED)
def test_what_can_work_is_let_through(tmp_path: Path, name: str) -> None:
    assert plan(tmp_path, ALLOWED[name])["refused"] == []


def test_prebuilt_modules_need_no_repository_and_hold_the_kernel(tmp_path: Path) -> None:
    values = apt(tmp_path, PACKAGES["Ubuntu, prebuilt"][0])

    assert (values["url"], values["version"]) == ("", "580.*")
    assert [pattern for pattern in values["unattended"] if pattern.startswith("linux-")]


def test_dkms_leaves_the_kernel_to_unattended_upgrades(tmp_path: Path) -> None:
    unattended = apt(tmp_path, PACKAGES["Ubuntu up to 580"][0])["unattended"]

    assert not [pattern for pattern in unattended if pattern.startswith("linux-")]


@pytest.mark.parametrize(
    ("driver", "counts"), [("", 1), ("nvidia", 1), ("nouveau", 1), ("NovaCore", 1), ("vfio-pci", 0)]
)
def test_a_virtual_machines_gpu_gets_no_driver(tmp_path: Path, driver: str, counts: int) -> None:
    """Those that the kernel's own driver holds are no virtual machine's."""
    assert plan(tmp_path, Machine(bound=driver))["steps"]["install"] is bool(counts)
    assert ((driver or None) in OURS) is bool(counts)


@pytest.mark.parametrize(
    ("driver", "unloads"), [("nouveau", ["nouveau"]), ("NovaCore", ["--remove-holders", "nova_core"]), ("nvidia", [])]
)
def test_the_kernels_own_driver_is_unloaded_by_its_name(tmp_path: Path, driver: str, unloads: list[str]) -> None:
    rows = (f"libnvidia-ml1 install installed {PIN}-1",)
    machine = Machine(bound=driver, loaded=PIN if driver == "nvidia" else "", installed=rows)
    made = plan(tmp_path, machine)

    assert made["steps"]["unload"] == unloads
    assert made["reboot"]["required"] is bool(unloads)


@pytest.mark.parametrize("module", ["nouveau", "nova_core", "nova_drm"])
def test_the_kernels_own_driver_stays_away(tmp_path: Path, module: str) -> None:
    [path] = plan(tmp_path, Machine())["files"]["modules"]
    assert f"blacklist {module}" in (ROLE / "files" / path.lstrip("/")).read_text()


def test_each_file_that_may_be_written_is_shipped(tmp_path: Path) -> None:
    files = plan(tmp_path, Machine(devices=(B200, BRIDGE)))["files"]
    shipped = {f"/{path.relative_to(ROLE / 'files')}" for path in (ROLE / "files").rglob("*.*") if path.is_file()}

    assert shipped == {*files["all"]}
    compared = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__nvidia_driver_files"]
    assert {file["path"]: file["content"] for file in compared} == {
        path: f"{{{{ lookup('ansible.builtin.file', '{path.lstrip('/')}', rstrip=false) }}}}" for path in files["all"]
    }
    assert files["modules"] == ["/etc/modprobe.d/kubegpu-nouveau.conf", "/etc/modules-load.d/kubegpu-nvlink.conf"]
    assert files["units"] == []
    assert files["boot"] == ["/etc/systemd/system/kubegpu-nvidia-uvm.service"]
    assert plan(tmp_path / "ubuntu", PACKAGES["Ubuntu, prebuilt"][0])["files"]["units"] == [
        f"{files['unit_folder']}/kubegpu.conf"
    ]


def test_all_that_is_pinned_is_listed() -> None:
    [survey] = yaml.safe_load((ROLE / "tasks" / "survey.yml").read_text())
    assert {*PINNED, "nvlsm"} <= {*survey["ansible.builtin.command"]["argv"]}


@pytest.mark.parametrize(
    ("pinned", "before", "stays"),
    [(False, "", True), (True, "", False), (True, "libnvidia-ml1", True), (True, "nvidia-container-toolkit", False)],
)
def test_a_driver_that_was_there_before_stays_as_a_whole(
    tmp_path: Path, pinned: bool, before: str, stays: bool
) -> None:
    rows = (f"libnvidia-ml1 install installed {PIN}-1", f"nvidia-kernel-open-dkms install installed {PIN}-1")
    record = b64encode(f"# Written by kubegpu.autoscale\n{before}\n".encode()).decode()
    machine = Machine(installed=rows, loaded=PIN, options={"nvidia_driver_state": "absent"})
    made = plan(tmp_path, machine, pin={"exists": pinned}, before={"content": record})

    assert made["steps"]["remove"]
    assert made["steps"]["stay"] is stays
    assert made["packages"]["apt"]["packages"] == ([] if stays else ["nvidia-kernel-open-dkms", "libnvidia-ml1"])
    assert made["reboot"]["reason"] == ("" if stays else f"driver {PIN} is removed, but loaded")
    assert not made["steps"]["reboot"]


MOVES = {
    "another release": (
        Machine(installed=("libnvidia-ml1 install installed 570.172.08-1",)),
        [f"libnvidia-ml1 | {PIN}-1 | cuda", "libnvidia-ml1 | 570.172.08-1 | cuda"],
        [f"libnvidia-ml1={PIN}-*"],
        [],
    ),
    "what the wanted release has no more": (
        Machine(installed=("libnvidia-ml1 install installed 570.172.08-1",)),
        ["libnvidia-ml1 | 570.172.08-1 | cuda"],
        [],
        ["libnvidia-ml1-"],
    ),
    "another flavour": (
        Machine(installed=(f"nvidia-kernel-dkms install installed {PIN}-1",)),
        [f"nvidia-kernel-dkms | {PIN}-1 | cuda"],
        [],
        ["nvidia-kernel-dkms-"],
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_one_transaction_moves_what_is_offered_and_removes_the_rest(tmp_path: Path, name: str) -> None:
    machine, offered, comes, goes = MOVES[name]
    made = plan(tmp_path, machine, offered={"rc": 0, "stdout": "\n".join(offered)})
    wanted = [f"{package}={PIN}-*" for package in [*DEBIAN_PACKAGES, "nvidia-kernel-open-dkms"]]

    assert made["packages"]["move"] == [
        *wanted, *comes, "linux-headers-amd64", "linux-headers-6.1.0-40-amd64", *goes
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "allowed", "drains"),
    [
        (replace(MEMBER, member=False), True, True),
        (replace(MEMBER, member=False, local=True), False, False),
        (MEMBER, False, False),
        (replace(MEMBER, options={"nvidia_driver_reboot_ok": "true"}), True, True),
        (replace(MEMBER, options={"nvidia_driver_reboot_ok": "false"}), False, False),
        (replace(MEMBER, member=False, options={"nvidia_driver_reboot_ok": "false"}), False, False),
        (replace(MEMBER, loaded="", member=False), True, False),
        (replace(MEMBER, devices=(), member=False), True, False),
    ],
)
def test_only_a_bare_server_reboots_by_itself(tmp_path: Path, machine: Machine, allowed: bool, drains: bool) -> None:
    """A text of the command line counts as what it says."""
    made = plan(tmp_path, machine)

    assert (made["reboot"]["allowed"], made["steps"]["drain"]) == (allowed, drains)


# Beside the files that the product reads: the kubeconfig of each distribution's kubelet.
KUBELETS = {
    "kubeadm, kubespray": "etc/kubernetes/kubelet.conf",
    "EKS, kops, GKE, AKS": "var/lib/kubelet/kubeconfig",
    "k3s": "var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "rke2": "var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    "k0s": "var/lib/k0s/kubelet.conf",
    "microk8s": "var/snap/microk8s/current/credentials/kubelet.config",
}


@pytest.mark.parametrize("reboot_ok", ["", "true"])
@pytest.mark.parametrize("sign", sorted({*KUBELETS.values(), *CLUSTERS, *AUTHORITIES}))
def test_no_driver_is_replaced_under_the_pods_of_any_distribution(tmp_path: Path, sign: str, reboot_ok: str) -> None:
    """The server is a node by this file alone. out_of_service.yml reads `clusters`, and a removal `is_member`."""
    options = {"nvidia_driver_reboot_ok": reboot_ok} if reboot_ok else {}
    made = plan(tmp_path, replace(MEMBER, sign=sign, options=options))
    server = read_host(tmp_path / "root")[0]

    assert server["clusters"]
    assert server["identity"]["is_member"]
    assert made["steps"]["drain"] == bool(reboot_ok)
    assert any("under its pods" in line for line in made["refused"]) != bool(reboot_ok)


@pytest.mark.parametrize("version", [580, "580", 580.1])
def test_a_version_may_be_a_number(tmp_path: Path, version: float | str) -> None:
    assert apt(tmp_path, Machine(options={"nvidia_driver_version": version}))["version"] == f"{version}-*"


SHOWN = "00000000:00:00.0, {release}, {persistence}"
IN_USE = Machine(installed=(f"libnvidia-ml1 install installed {PIN}-1",), loaded=PIN)
EXISTING = replace(IN_USE, options={"nvidia_driver_state": "existing"})
RELOADS = Machine(installed=(f"libnvidia-ml1 install installed {PIN}-1",), loaded="570.172.08")
BUILD_LOG = b64encode(b"cc -c nv.c\nnv.c:12:3: error: too few arguments to function\n").decode()


def shown(*lines: str, rc: int = 0, stderr: str = "") -> dict[str, Any]:
    """An answer of nvidia-smi."""
    return {"rc": rc, "stdout": "\n".join(lines), "stderr": stderr}


def gpu(release: str = PIN, persistence: str = "Enabled") -> str:
    return SHOWN.format(release=release, persistence=persistence)


# What is wrong after the work: machine, what was read besides, id of the finding, and words.
NO_UVM = ("null", "nvidia0", "nvidiactl")
FABRIC = """
GPU 00000000:10:00.0
    Performance State                     : P0
    Fabric
        State                             : In Progress
        Status                            : N/A
"""
BROKEN = {
    "a module that does not build": (
        Machine(),
        {
            "failure": {"msg": "dpkg returned an error"},
            "build_logs": [{"path": "/var/lib/dkms/nvidia/580.178.04/build/make.log", "mtime": 1.5}],
            "build_log": {"content": BUILD_LOG},
        },
        "DRIVER_NOT_BUILT",
        f"did not get driver {PIN}-*: nv.c:12:3: error: too few arguments to function (/var/lib/dkms/nvidia/",
    ),
    "a package that is nowhere": (
        Machine(),
        {"failure": {"msg": "no package linux-headers-6.1.0-40-amd64", "stderr": "E: nothing"}},
        "DRIVER_NOT_INSTALLED",
        f"did not get driver {PIN}-*: no package linux-headers-6.1.0-40-amd64 E: nothing",
    ),
    "parts of another release": (
        replace(IN_USE, installed=("libnvidia-ml1 install installed 570.172.08-1",), loaded="570.172.08"),
        {},
        "DRIVER_MIXED_RELEASES",
        "libnvidia-ml1 570.172.08-1",
    ),
    "a reboot that changed nothing": (
        RELOADS,
        {"rebooted": True},
        "DRIVER_REBOOT_WITHOUT_EFFECT",
        f"has rebooted, and still driver 570.172.08 is loaded, but {PIN} is installed",
    ),
    "no answer of the driver": (
        IN_USE,
        {"shown": shown(rc=9, stderr="couldn't communicate with the NVIDIA driver")},
        "DRIVER_GPUS_NOT_SHOWN",
        "1 GPUs by PCI, and nvidia-smi fails: couldn't communicate with the NVIDIA driver",
    ),
    "no nvidia-smi": (
        IN_USE,
        {"shown": {"rc": 2, "stdout": "", "msg": "No such file or directory: nvidia-smi"}},
        "DRIVER_GPUS_NOT_SHOWN",
        "nvidia-smi fails: No such file or directory: nvidia-smi",
    ),
    "a GPU too few": (replace(IN_USE, devices=(L4, L4)), {"shown": shown(gpu())}, "DRIVER_GPUS_NOT_SHOWN", "shows 1"),
    "persistence mode off": (
        IN_USE,
        {"shown": shown(gpu(persistence="Disabled"))},
        "DRIVER_NOT_PERSISTENT",
        "has persistence mode off",
    ),
    "no nvidia-uvm": (
        replace(IN_USE, device_files=NO_UVM),
        {"shown": shown(gpu())},
        "DRIVER_WITHOUT_UVM",
        f"has driver {PIN} loaded and no /dev/nvidia-uvm",
    ),
    "a fabric that does not complete": (
        replace(IN_USE, devices=(H100, NVSWITCH)),
        {"shown": shown(gpu()), "described": {"rc": 0, "stdout": FABRIC}},
        "DRIVER_FABRIC_NOT_COMPLETED",
        "reports Fabric State In Progress, not Completed",
    ),
    "an existing driver with libraries of another release": (
        EXISTING,
        {"shown": shown(gpu("570.172.08"))},
        "DRIVER_EXISTING_UNUSABLE",
        f"{PIN} is loaded",
    ),
    "an existing driver that is not loaded": (
        replace(EXISTING, loaded=""),
        {"shown": shown(rc=9, stderr="Failed to initialize NVML")},
        "DRIVER_EXISTING_UNUSABLE",
        "none is loaded",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_does_not_work_afterwards_is_named(tmp_path: Path, name: str) -> None:
    machine, survey, finding, words = BROKEN[name]
    [said] = plan(tmp_path, machine, **survey)["broken"]

    assert words in said
    assert f"docs/doctor/driver.md#{finding.lower()}" in said
    assert "Nothing was changed" not in said


WARNED = {
    "bare": (RELOADS, {}, "DRIVER_REBOOT_PENDING", "Reboot it, or set nvidia_driver_reboot_ok"),
    "a node": (
        replace(RELOADS, member=True),
        {},
        "DRIVER_NODE_REBOOT_PENDING",
        "Run the playbook kubegpu.autoscale.upgrade_driver",
    ),
    "the controller": (replace(RELOADS, local=True), {}, "DRIVER_LOCAL_REBOOT_PENDING", "Reboot it, after draining it"),
    "the controller, a node": (
        replace(RELOADS, member=True, local=True),
        {},
        "DRIVER_LOCAL_REBOOT_PENDING",
        "Reboot it, after draining it",
    ),
    "an existing driver that is not kept loaded": (
        EXISTING,
        {"shown": shown(gpu(persistence="Disabled"))},
        "DRIVER_EXISTING_NOT_PERSISTENT",
        "has persistence mode off",
    ),
    "an existing driver without nvidia-uvm": (
        replace(EXISTING, device_files=NO_UVM),
        {"shown": shown(gpu())},
        "DRIVER_EXISTING_WITHOUT_UVM",
        "no /dev/nvidia-uvm",
    ),
    "a next kernel without the module": (
        Machine(),
        {
            "gpu_facts": node_facts(
                1, kernel_pending="6.1.0-41-amd64", next_boot_problem="kernel 6.1.0-41-amd64 boots next"
            )
        },
        "DRIVER_NEXT_KERNEL_WITHOUT_MODULE",
        "`dkms autoinstall -k 6.1.0-41-amd64`",
    ),
    "a branch that is no longer supported": (
        Machine(),
        {"gpu_facts": node_facts(1, driver_version_loaded="535.261.03")},
        "DRIVER_BRANCH_ENDED",
        "uses driver 535.261.03, whose branch was supported until June 2026",
    ),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_is_to_be_known_afterwards_is_named(tmp_path: Path, name: str) -> None:
    machine, survey, finding, words = WARNED[name]
    made = plan(tmp_path, machine, **survey)

    assert made["broken"] == []
    assert [(words in said, f"#{finding.lower()})" in said) for said in made["notices"]] == [(True, True)]


def test_each_finding_afterwards_happens() -> None:
    happened = {finding for _machine, _survey, finding, _words in [*BROKEN.values(), *WARNED.values()]}
    assert {kind.id for check in AFTER for kind in check.types} == happened


@pytest.mark.parametrize("machine", [IN_USE, EXISTING], ids=["present", "existing"])
def test_a_driver_that_serves_its_gpus_is_well(tmp_path: Path, machine: Machine) -> None:
    with_uvm = replace(machine, device_files=("nvidia0", "nvidia-uvm"))
    made = plan(tmp_path, with_uvm, shown=shown(gpu()))
    assert (made["broken"], made["notices"]) == ([], [])


def test_an_ignored_card_is_not_counted_though_the_driver_shows_it(tmp_path: Path) -> None:
    """The command line gives a text for a list."""
    lines = [gpu().replace("00:00.0", "0A:00.0"), gpu()]
    for ignored, counts in ([], False), (["0000:0a:00.0"], True), ("0000:0a:00.0,0000:0b:00.0", True):
        folder = tmp_path / str(len(ignored))
        machine = replace(IN_USE, options={"kubegpu_ignored_gpus": ignored})
        assert (plan(folder, machine, shown=shown(*lines))["broken"] == []) is counts


@pytest.mark.parametrize(
    ("logs", "blamed"),
    [
        ({"nvidia/580.178.04": 1, "zfs/2.2.2": 2}, "nvidia/580.178.04"),
        ({"nvidia-current/550.163.01": 1, "nvidia/580.178.04": 2}, "nvidia/580.178.04"),
        ({"zfs/2.2.2": 1}, ""),
    ],
    ids=["the driver's", "the last one", "none of it"],
)
def test_a_module_of_somebody_else_is_not_why_a_driver_did_not_come(
    tmp_path: Path, logs: dict[str, int], blamed: str
) -> None:
    """A log of DKMS stays, and apt may have failed for another reason."""
    files = [{"path": f"/var/lib/dkms/{name}/build/make.log", "mtime": time} for name, time in logs.items()]
    made = plan(tmp_path, Machine(), failure={"msg": "failed"}, build_logs=files)

    assert made["steps"]["read_log"] == (f"/var/lib/dkms/{blamed}/build/make.log" if blamed else "")


@pytest.mark.parametrize(("nodes", "joins"), [((H100, NVSWITCH), True), ((H100,), False)])
def test_the_fabric_manager_starts_where_switches_are(tmp_path: Path, nodes: tuple[str, ...], joins: bool) -> None:
    machine = replace(IN_USE, devices=nodes)
    assert plan(tmp_path, machine)["steps"]["join_gpus"] is joins
    assert not plan(tmp_path / "waits", replace(machine, loaded="570.172.08"))["steps"]["join_gpus"]
