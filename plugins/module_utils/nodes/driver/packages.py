# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Names of the driver's packages by system, source, branch and flavour.

Sources:
  CUDA repository: NVIDIA's Driver Installation Guide, compute-only systems, and "Recent Updates" for names on Ubuntu.
  These carry the branch up to 580, the fabric manager's up to 575 (NVIDIA/gpu-driver-container,
  ubuntu22.04/precompiled/local-repo.sh);
  Ubuntu's archive: packages.ubuntu.com, sources linux-restricted-modules, nvidia-graphics-drivers-580-server and
  fabric-manager-580;
  Debian's archive: packages.debian.org, sources nvidia-graphics-drivers, nvidia-open-gpu-kernel-modules and
  nvidia-persistenced.
The persistence daemon needs libnvidia-cfg.so.1, and not every branch depends on its package, so it is listed. So is
nvidia-modprobe, which creates the device files of nvidia-uvm; Ubuntu has it in multiverse, at another release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CUDA_REPO, DEBIAN, UBUNTU_PREBUILT = "cuda_repo", "debian", "ubuntu_prebuilt"
OPEN, PROPRIETARY = "open", "proprietary"


@dataclass(frozen=True)
class System:
    """Packages of NVIDIA and the distribution for one system. lab/upstream/ has sources and dates.

    repository:      its name in NVIDIA's CUDA repository.
    key, key_file:   row of the version file with the repository's fingerprint, and the key's file.
    first_branch:    first branch in that repository, if it is later than a GPU may need.
    components:      Debian's components for dependencies of NVIDIA's packages.
    archive:         branch of Debian's own packages.
    archive_flavour: flavour whose modules build for the kernels of Debian's updates. The open ones, 535.261.03 and
                     550.163.01-2, call pci_resize_resource with one argument less.
    """

    repository: str
    key: str = "nvidia-cuda"
    key_file: str = "3bf863cc.pub"
    first_branch: int = 0
    components: tuple[str, ...] = ()
    archive: int = 0
    archive_flavour: str = OPEN


SYSTEMS = {
    "Debian 12": System("debian12", components=("contrib",), archive=535, archive_flavour=PROPRIETARY),
    "Debian 13": System(
        "debian13",
        key="nvidia-cuda-debian13",
        key_file="8793F200.pub",
        first_branch=590,
        archive=550,
        archive_flavour=PROPRIETARY,
    ),
    "Ubuntu 22.04": System("ubuntu2204"),
    "Ubuntu 24.04": System("ubuntu2404"),
    "Ubuntu 26.04": System("ubuntu2604", key="nvidia-cuda-ubuntu2604", key_file="60DF8A40.pub", first_branch=595),
}

# Patterns of names for apt's pins. Dependencies are >=, so each omitted part would diverge from the
# others (dstackai/dstack#2348).
PINNED = (
    *(
        "nvidia-*",
        "libnvidia-*",
        "lib*-nvidia*",
        "firmware-nvidia-gsp*",
        "libcuda1",
        "libcudadebugger1",
        "libnvcuvid1",
        "libnvsdm*",
    ),
    *("libxnvctrl*", "xserver-xorg-video-nvidia*", "cuda-drivers*"),
)
# Patterns of names for unattended-upgrades.
UNATTENDED = (
    *(
        "(lib)?nvidia-(?!container)",
        "lib[a-z0-9]+-nvidia",
        "firmware-nvidia-gsp",
        "libcuda",
        "libnvcuvid",
        "libnvsdm",
        "libxnvctrl",
    ),
    *("xserver-xorg-video-nvidia", "cuda-drivers", "nvlsm"),
)
# Prebuilt modules are built for one kernel and need one driver. A kernel without them boots without GPUs
# (Azure/batch-shipyard#174).
UNATTENDED_KERNEL = (
    "linux-(image|headers|modules|objects|signatures)-",
    "linux-(generic|virtual|aws|azure|gcp|oracle|nvidia)",
)

# linux-modules-nvidia-fs-* is GPUDirect Storage, a part of Ubuntu's kernel linux-nvidia, whose image depends on it.
_OF_UBUNTU = r"linux-(modules|objects|signatures)-nvidia-(?!fs-)|.*-[0-9]+-server(-|$)"
_OF_NVIDIA = (
    r"libnvidia-(cfg1|common|compute|decode|encode|extra|fbc1|gl|gpucomp)(-[0-9]+)?$"
    r"|nvidia-(compute-utils|driver|headless|headless-no-dkms|kernel-common|kernel-source|utils)(-[0-9]+)?(-open)?$"
    r"|nvidia-(dkms|fabricmanager$|persistenced)|nvidia-(open|firmware)(-[0-9]+)?(-[0-9.]+)?$"
    r"|xserver-xorg-video-nvidia(-[0-9]+)?$|cuda-drivers"
)
# Metapackages of one flavour, which depend on its modules, and their sources: those of two flavours conflict.
_FLAVOURED = r"nvidia-(dkms|driver|headless|headless-no-dkms|kernel-source)(-[0-9]+)?"
_PROPRIETARY_ALONE, _OPEN_ALONE = r"cuda-drivers(-[0-9]+)?$", r"nvidia-open(-[0-9]+)?$"


@dataclass(frozen=True)
class PackageSet:
    """Packages of one source and branch.

    modules:         kernel modules by flavour.
    misnamed:        patterns by flavour of packages of another flavour or source, which this set replaces.
    extra:           packages with separate version numbers.
    apart:           pattern of packages with separate version numbers.
    fabric_manager:  empty if the source has none.
    mok_certificate: certificate of the key with which DKMS signs modules.
    components:      the distribution's components for the packages or their dependencies.
    """

    packages: tuple[str, ...]
    modules: Mapping[str, tuple[str, ...]]
    misnamed: Mapping[str, str]
    extra: tuple[str, ...] = ()
    apart: str = "$"
    fabric_manager: str = ""
    mok_certificate: str = ""
    components: tuple[str, ...] = field(default=())


def package_set(system: str, source: str, branch: int) -> PackageSet:
    """A source that the system lacks is rejected elsewhere; here NVIDIA's repository replaces it."""
    if system.startswith("Ubuntu"):
        return _ubuntu_prebuilt(branch) if source == UBUNTU_PREBUILT else _ubuntu(branch)
    return _debian_archive() if source == DEBIAN else _debian(branch, of_system(system))


def of_system(system: str) -> System:
    """An unsupported system is rejected before a plan is made."""
    return SYSTEMS.get(system, SYSTEMS["Debian 12"])


def prebuilt_modules(branch: int, flavour: str, kernel: str) -> str:
    return f"linux-modules-nvidia-{branch}-server{'-open' if flavour == OPEN else ''}-{kernel}"


def _debian(branch: int, system: System) -> PackageSet:
    return PackageSet(
        packages=("nvidia-driver-cuda", "libnvidia-cfg1", "nvidia-persistenced", "nvidia-modprobe"),
        modules={OPEN: ("nvidia-kernel-open-dkms",), PROPRIETARY: ("nvidia-kernel-dkms",)},
        misnamed={
            OPEN: rf"nvidia-smi$|nvidia-(open-)?kernel-dkms$|{_PROPRIETARY_ALONE}",
            PROPRIETARY: rf"nvidia-smi$|nvidia-(open-kernel|kernel-open)-dkms$|{_OPEN_ALONE}",
        },
        fabric_manager=_fabric_manager(branch),
        mok_certificate="/var/lib/dkms/mok.pub",
        components=system.components,
    )


def _debian_archive() -> PackageSet:
    return PackageSet(
        packages=("libcuda1", "libnvidia-ml1", "nvidia-smi", "libnvidia-cfg1", "nvidia-persistenced"),
        extra=("nvidia-modprobe",),
        modules={OPEN: ("nvidia-open-kernel-dkms",), PROPRIETARY: ("nvidia-kernel-dkms",)},
        misnamed={
            OPEN: r"nvidia-driver-cuda$|nvidia-kernel-(open-)?dkms$",
            PROPRIETARY: r"nvidia-driver-cuda$|nvidia-(open-kernel|kernel-open)-dkms$",
        },
        apart=r"nvidia-(modprobe|persistenced|settings|xconfig)$|libxnvctrl",
        mok_certificate="/var/lib/dkms/mok.pub",
        components=("contrib", "non-free", "non-free-firmware"),
    )


def _ubuntu(branch: int) -> PackageSet:
    suffix = f"-{branch}" if branch < 590 else ""
    utils = (f"nvidia-utils{suffix}",) if suffix else ()
    return PackageSet(
        packages=(
            *(f"libnvidia-compute{suffix}", f"libnvidia-cfg1{suffix}", *utils),
            *("nvidia-persistenced", "nvidia-modprobe"),
        ),
        modules={OPEN: (f"nvidia-dkms{suffix}-open",), PROPRIETARY: (f"nvidia-dkms{suffix}",)},
        misnamed={
            OPEN: rf"{_OF_UBUNTU}|{_FLAVOURED}$|{_PROPRIETARY_ALONE}",
            PROPRIETARY: rf"{_OF_UBUNTU}|{_FLAVOURED}-open$|{_OPEN_ALONE}",
        },
        fabric_manager=_fabric_manager(branch),
        mok_certificate="/var/lib/shim-signed/mok/MOK.der",
    )


def _ubuntu_prebuilt(branch: int) -> PackageSet:
    """Its modules have the kernel's version, so they are not part of the set: see prebuilt_modules.

    Metapackages that depend on modules of DKMS are replaced: those would be loaded instead, without a signature.
    """
    names = ("libnvidia-compute", "libnvidia-cfg1", "nvidia-compute-utils", "nvidia-utils")
    others = rf"{_OF_NVIDIA}|nvidia-(driver|headless)-[0-9]+-server"
    return PackageSet(
        packages=tuple(f"{name}-{branch}-server" for name in names),
        extra=("nvidia-modprobe",),
        modules={OPEN: (), PROPRIETARY: ()},
        misnamed={
            OPEN: rf"{others}|linux-modules-nvidia-[0-9]+-(?!server-open)",
            PROPRIETARY: rf"{others}|linux-modules-nvidia-[0-9]+-(?!server-(?!open))",
        },
        apart=r"nvidia-(modprobe|settings)$|libxnvctrl",
        components=("restricted", "multiverse"),
        fabric_manager=f"nvidia-fabricmanager-{branch}",
    )


def _fabric_manager(branch: int) -> str:
    return f"nvidia-fabricmanager-{branch}" if branch < 580 else "nvidia-fabricmanager"
