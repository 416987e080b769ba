# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the kernels of a machine, and the NVIDIA drivers built for them, installed and loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from .driver import Driver, Kernel
from .files import Files

_NVRM = re.compile(r"^NVRM version:.*?Kernel Module\s+(?:for \S+\s+)?([0-9]{1,9}(?:\.[0-9]{1,9})+)", re.MULTILINE)

# The library that must match the loaded module: one package at Debian and NVIDIA, one per branch at Ubuntu, where
# branches for servers exist beside those for desktops.
_LIBRARY = re.compile(r"libnvidia-(?:tesla-(?:[0-9]+-)?)?ml1|libnvidia-compute(?:-[0-9]+)?(?:-server)?")
# Source of the kernel modules: DKMS sources (NVIDIA, Debian, Ubuntu), or modules that Ubuntu has built for a kernel.
_MODULES = re.compile(
    r"nvidia-(?:tesla-)?(?:[0-9]+-)?(?:open-)?kernel-(?:open-)?dkms"
    r"|nvidia-dkms(?:-[0-9]+)?(?:-server)?(?:-open)?"
    r"|linux-modules-nvidia-[0-9]+(?:-server)?(?:-open)?-.+"
)
_OPEN = re.compile(r"-open(?:-|$)")
_UPSTREAM_VERSION = re.compile(r"(?:[0-9]+:)?([0-9]{1,9}(?:\.[0-9]{1,9})+)")
_INSTALLED = frozenset({"installed", "triggers-awaited", "triggers-pending"})

# DKMS, Ubuntu's prebuilt modules, NVIDIA's .run installer, and where other distributions put what does not come with
# the kernel. Debian renames the file: nvidia-current.ko, nvidia-current-open.ko.
_MODULE_FOLDERS = ("updates/**", "kernel/nvidia*", "kernel/drivers/video", "extra/**", "weak-updates/**")
_MODULE_FILE = re.compile(r"nvidia(?:-current|-tesla(?:-[0-9]+)?)?(?:-open)?\.ko(?:\.(?:xz|zst|gz))?")
_SIGNATURE = b"~Module signature appended~\n"


def running_kernel(files: Files) -> str | None:
    release = files.text("proc/sys/kernel/osrelease")
    if release is not None and not re.fullmatch(r"[\w.+~-]+", release):
        files.warn("proc/sys/kernel/osrelease", "names no kernel")
        return None
    return release


def compiler(files: Files) -> str | None:
    """Package of the compiler that Ubuntu has built the running kernel with, `gcc-12`; None if it names none.

    Modules are built with the same, and headers do not depend on it. Kernels of later releases for Ubuntu 22.04 have
    another one than the release itself (LP#1991664).
    """
    found = re.search(r"\b(gcc-[0-9]+) \(Ubuntu ", files.text("proc/version") or "")
    return found[1] if found else None


def headers(files: Files, release: str) -> bool | None:
    """Whether DKMS can build for that kernel. The link `build` remains without the headers, so check its target."""
    build = f"lib/modules/{release}/build"
    folders = (files.link(build) or PurePosixPath(build), PurePosixPath(f"usr/src/linux-headers-{release}"))
    answers = [files.is_there(folder / "Makefile") for folder in folders]
    return True if True in answers else None if None in answers else False


def kernels(files: Files) -> Iterator[Kernel]:
    images = files.names("boot")
    for release in files.names("lib/modules"):
        module = _module(files, release)
        yield Kernel(
            release=release,
            bootable=f"vmlinuz-{release}" in images or f"vmlinux-{release}" in images,
            module=module,
            signed=_signed(files, f"lib/modules/{module}") if module else None,
        )


def _module(files: Files, release: str) -> str | None:
    """Name of nvidia.ko below lib/modules; the folders are in modprobe's order, updates before the kernel's own."""
    for folder in _MODULE_FOLDERS:
        for name in files.below(f"lib/modules/{release}", f"{folder}/nvidia*.ko*"):
            if _MODULE_FILE.fullmatch(PurePosixPath(name).name):
                return str(PurePosixPath(name).relative_to("lib/modules"))
    return None


def _signed(files: Files, module: str) -> bool | None:
    """The end of a compressed module is not readable."""
    if not module.endswith(".ko"):
        return None
    tail = files.tail(module, len(_SIGNATURE))
    return None if tail is None else tail == _SIGNATURE


def loaded_driver(files: Files) -> Driver | None:
    name = "proc/driver/nvidia/version"
    text = files.text(name)
    if text is None:
        return None
    found = _NVRM.search(text)
    if found is None:
        files.warn(name, "names no driver version")
        return Driver()
    return Driver(found.group(1), "open" if "Open Kernel Module" in found.group(0) else "proprietary")


def installed_driver(files: Files) -> Driver | None:
    name = "var/lib/dpkg/status"
    text = files.text(name)
    if text is None:
        return None
    if not re.search(r"^Package: ", text, re.MULTILINE):
        files.warn(name, "lists no packages")
        return None
    packages = dict(_nvidia_packages(text))
    libraries = [version for package, version in packages.items() if _LIBRARY.fullmatch(package)]
    if not libraries:
        return None
    flavours = {
        "open" if _OPEN.search(package) else "proprietary" for package in packages if _MODULES.fullmatch(package)
    }
    return Driver(
        version=max(libraries, key=lambda version: [int(part) for part in version.split(".")]),
        flavour=flavours.pop() if len(flavours) == 1 else None,
    )


def _nvidia_packages(status: str) -> Iterator[tuple[str, str]]:
    """Name and upstream version of each installed package related to nvidia, including held ones."""
    for stanza in re.split(r"\n\s*\n", status):
        if "nvidia" not in stanza:
            continue
        fields = dict(re.findall(r"^(Package|Status|Version): *(.*?)\s*$", stanza, re.MULTILINE))
        version = _UPSTREAM_VERSION.match(fields.get("Version", ""))
        state = fields.get("Status", "").split()
        if "Package" in fields and state and state[-1] in _INSTALLED and version:
            yield fields["Package"], version.group(1)
