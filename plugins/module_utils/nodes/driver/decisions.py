# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans the role nvidia_driver: the release and its packages, replacements, removals and reboots.

Called by plan.py for the tasks of the role, and by checks.py. In: the role's options, and what the tasks read of the
server. Out: properties, which plan.py names as steps, packages and files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...server.fabric import COMPLETED, fabric_states
from ...server.pci import first_branch
from ..apt.dpkg import Package, names, version_pattern
from ..apt.sources import AptSet, Pin
from ..apt.versions import any_revision, number, numbers
from ..survey.gpu_facts import GpuFacts
from ..survey.host import Host
from ..survey.program_output import Answer, lines_of
from .packages import (
    CUDA_REPO,
    DEBIAN,
    OPEN,
    PINNED,
    PROPRIETARY,
    UBUNTU_PREBUILT,
    UNATTENDED,
    UNATTENDED_KERNEL,
    PackageSet,
    System,
    of_system,
    package_set,
    prebuilt_modules,
)

REPOSITORY = "https://developer.download.nvidia.com/compute/cuda/repos"
ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}
NO_LIMIT = 9999


@dataclass(frozen=True)
class DriverOptions:
    """The role's options. None stands for a default that depends on the server."""

    state: str
    source: str
    version: str
    flavour: str
    nvlsm_version: str
    versions: Mapping[str, Any]
    packages: tuple[str, ...] | None = None
    fabric_packages: tuple[str, ...] | None = None
    kernel_headers: tuple[str, ...] | None = None
    mok_certificate: str | None = None
    reboot_ok: bool | None = None
    ignored_gpus: tuple[str, ...] = ()
    expected_gpus: int | None = None


@dataclass(frozen=True)
class Failure:
    """Why packages could not be installed.

    message: apt's message.
    logs:    paths of DKMS's logs, the last one last.
    log:     content of the last one of NVIDIA's modules; empty until it was read.
    """

    message: str
    logs: tuple[str, ...] = ()
    log: str = ""

    @property
    def path(self) -> str:
        """The relevant log. Logs of other modules, such as zfs, may have been there for months."""
        return next((log for log in reversed(self.logs) if log.startswith("/var/lib/dkms/nvidia")), "")

    @property
    def build_error(self) -> str:
        found = re.search(r"^.*: (fatal )?error: .*$", self.log, re.MULTILINE)
        return found[0] if found else ""


@dataclass(frozen=True)
class DriverSurvey:
    """What was read on the server so far. An answer is None until it was queried.

    packages:   packages of the driver and of kernels.
    components: the distribution's components in apt, `Debian/main`; empty if not queried.
    key_test:   mokutil's answer.
    solution:   answer of `apt-get --simulate` to the packages of the archive.
    offered:    output of `apt-cache madison`.
    shown:      output of nvidia-smi, one line per GPU: PCI address, release, persistence mode.
    described:  full output of nvidia-smi, if NVSwitches connect the GPUs.
    rebooted:   whether this run has rebooted the server.
    is_ours:    whether the packages are pinned by this collection; None if it was not queried.
    before:     names of packages that were installed before that pin.
    """

    facts: GpuFacts
    packages: tuple[Package, ...] = ()
    components: tuple[str, ...] = ()
    key_test: Answer | None = None
    solution: Answer | None = None
    offered: Answer | None = None
    shown: Answer | None = None
    described: Answer | None = None
    rebooted: bool = False
    is_ours: bool | None = None
    before: tuple[str, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True)
class Driver:
    """The decisions, as properties; nodes/driver/checks.py checks them."""

    host: Host
    options: DriverOptions
    survey: DriverSurvey
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def facts(self) -> GpuFacts:
        return self.survey.facts

    @property
    def system(self) -> System:
        return of_system(self.host.system)

    @property
    def is_wanted(self) -> bool:
        return self.options.state == "present" and bool(self.facts.gpus)

    @property
    def is_existing(self) -> bool:
        return self.options.state == "existing" and bool(self.facts.gpus)

    @property
    def is_prebuilt(self) -> bool:
        return self.options.source == UBUNTU_PREBUILT

    # Release, branch and flavour.

    @cached_property
    def version(self) -> str:
        """In apt's notation."""
        return any_revision(self.options.version or self.default_version)

    @property
    def default_version(self) -> str:
        """A distribution's archive has only the latest release of a branch, so its default is just the branch."""
        packages = self.options.versions["packages"]
        if self.options.source == DEBIAN:
            return f"{self.system.archive}.*"
        if self.is_prebuilt:
            return f"{packages['nvidia-driver'].partition('.')[0]}.*"
        of_system: Mapping[str, str] = self.options.versions["packages_by_system"].get(self.host.system, {})
        return of_system.get("nvidia-driver", packages["nvidia-driver"])

    @property
    def number(self) -> tuple[int, ...]:
        return numbers(number(self.version))

    @property
    def branch(self) -> int:
        return self.number[0] if self.number else 0

    @property
    def first_branch(self) -> int:
        return first_branch(self.facts.generations)

    @property
    def last_branch(self) -> int:
        return self.facts.branch_max or NO_LIMIT

    @property
    def flavour(self) -> str:
        if self.options.flavour != "auto":
            return self.options.flavour
        if self.facts.flavour in (OPEN, PROPRIETARY):
            return self.facts.flavour
        return self.system.archive_flavour if self.options.source == DEBIAN else OPEN

    @property
    def goes_down(self) -> bool:
        """Compared by the numbers in the wanted version: 580.105.08 is not newer than 580."""
        present = numbers(self.facts.installed or "0")
        return present[: len(self.number)] > self.number

    # Packages.

    @cached_property
    def set(self) -> PackageSet:
        return package_set(self.host.system, self.options.source, self.branch)

    @property
    def mok_certificate(self) -> str:
        return self.options.mok_certificate or self.set.mok_certificate

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages of the pinned set, without the fabric manager."""
        if self.options.packages is not None:
            return self.options.packages
        return self.set.packages + self.set.modules[self.flavour]

    @property
    def fabric_packages(self) -> tuple[str, ...]:
        if not self.facts.needs_fabric_manager:
            return ()
        if self.options.fabric_packages is not None:
            return self.options.fabric_packages
        return (self.set.fabric_manager,)

    @property
    def extra(self) -> tuple[str, ...]:
        """Packages with separate versions: headers or prebuilt modules, the subnet manager, its tools, and others."""
        nvlsm = (f"nvlsm={self.options.nvlsm_version}", "infiniband-diags") if self.facts.needs_nvlsm else ()
        return (*((self.prebuilt_modules,) if self.is_prebuilt else self.kernel_headers), *self.set.extra, *nvlsm)

    @property
    def kernel_headers(self) -> tuple[str, ...]:
        if self.options.kernel_headers is not None:
            return self.options.kernel_headers
        compiler = (self.facts.compiler,) if self.facts.compiler else ()
        return (f"linux-headers-{self.kernel}", f"linux-headers-{self.host.kernel}", *compiler)

    @property
    def apt(self) -> AptSet:
        url = f"{REPOSITORY}/{self.system.repository}/{ARCHITECTURES.get(self.host.architecture, '')}"
        return AptSet(
            name="nvidia-cuda",
            url=url if self.options.source == CUDA_REPO else "",
            suite="/",
            key_url=f"{url}/{self.system.key_file}",
            fingerprint=self.options.versions["repositories"][self.system.key]["fingerprint"],
            packages=self.removed if self.options.state == "absent" else self.packages + self.fabric_packages,
            version=self.version,
            extra=self.extra,
            pinned=PINNED,
            also_pinned=(Pin(("nvlsm",), self.options.nvlsm_version),),
            unattended=UNATTENDED + (UNATTENDED_KERNEL if self.is_prebuilt else ()),
            services=("nvidia-fabricmanager.service", "nvidia-persistenced.service"),
        )

    # The kernel package that the server upgrades to.

    @cached_property
    def _kernel_images(self) -> tuple[str, ...]:
        """Meta packages of kernels, those of the running release first, because several may be installed."""
        metas = [
            package
            for package in self.survey.packages
            if re.match(r"linux-image-(?!unsigned|extra)[a-z]", package.name)
        ]
        running = re.match(r"[0-9.]+", self.host.kernel)
        release = running[0] if running else ""
        return names(sorted(metas, key=lambda package: not package.version.startswith(release)))

    @cached_property
    def kernel(self) -> str:
        """Suffix of its meta package, such as `generic-hwe-24.04`; without one, the flavour of the running kernel."""
        if not self._kernel_images:
            return re.sub(r"^[^-]*-([0-9]+-)?", "", self.host.kernel)
        return re.sub("^virtual", "generic", self._kernel_images[0].removeprefix("linux-image-"))

    @property
    def prebuilt_modules(self) -> str:
        return prebuilt_modules(self.branch, self.flavour, self.kernel)

    @property
    def kernel_packages(self) -> tuple[str, ...]:
        """Packages of the kernel that the prebuilt modules are made for.

        The modules depend on its image, but not on linux-modules-extra, which has the drivers of many network cards.
        """
        present = names(self.survey.packages)
        if not self.is_prebuilt or self.prebuilt_modules in present:
            return ()
        image = next(iter(self._kernel_images), f"linux-image-{self.kernel}")
        rest = f"linux-modules-extra-{self.kernel}"
        return (image, rest) if rest in present else (image,)

    # Installed and conflicting packages.

    @cached_property
    def installed(self) -> tuple[Package, ...]:
        """Packages with a driver's version numbers."""
        apart = re.compile(f"linux-|{self.set.apart}")
        return tuple(
            package
            for package in self.survey.packages
            if re.match(r"([0-9]+:)?[3-9][0-9]{2}\.", package.version) and not apart.match(package.base)
        )

    @cached_property
    def misnamed(self) -> tuple[Package, ...]:
        """Packages of another flavour or source, at any version."""
        pattern = re.compile(self.set.misnamed[self.flavour])
        return tuple(package for package in self.survey.packages if pattern.match(package.base))

    @cached_property
    def foreign(self) -> tuple[Package, ...]:
        """Packages to change to the wanted release, or to remove."""
        others = [package for package in self.installed if not self._wanted_version.fullmatch(package.version)]
        return tuple(dict.fromkeys([*others, *self.misnamed]))

    @cached_property
    def held(self) -> tuple[str, ...]:
        """Packages on hold that the transaction names: apt-get changes or keeps none of them without another option."""
        moved = {name.partition("=")[0].removesuffix("-") for name in self.move} if self.foreign else ()
        return names(package for package in self.survey.packages if package.want == "hold" and package.name in moved)

    @property
    def replaces_loaded(self) -> bool:
        """Whether another release or flavour replaces a driver in use."""
        return bool(self.foreign) and self.facts.loaded is not None

    @cached_property
    def _wanted_version(self) -> re.Pattern[str]:
        """Ubuntu's own packages may have the release and the names of NVIDIA's."""
        not_of_ubuntu = "(?!.*-0ubuntu0[.])" if self.options.source == CUDA_REPO else ""
        return re.compile(not_of_ubuntu + version_pattern(self.version))

    # From one release, branch, flavour or source to another.

    @cached_property
    def offered(self) -> tuple[str, ...]:
        """Names of packages that apt has at the wanted release."""
        rows = [[part.strip() for part in line.split("|")] for line in lines_of(self.survey.offered)]
        return tuple(name for name, version, *_source in rows if self._wanted_version.fullmatch(version))

    @cached_property
    def move(self) -> tuple[str, ...]:
        """Arguments of one apt-get transaction: packages with versions to install, and with a dash those to remove."""
        foreign, misnamed = names(self.foreign), names(self.misnamed)
        comes = [name for name in foreign if name not in misnamed and name in self.offered]
        # Named too, because apt would later remove what only a metapackage needed that goes now.
        stays = [name for name in names(self.installed) if name not in foreign]
        wanted = list(dict.fromkeys([*self.apt.packages, *comes, *stays]))
        goes = [name for name in foreign if name not in {*wanted, *self.extra}]
        return (*(f"{name}={self.version}" for name in wanted), *self.extra, *(f"{name}-" for name in goes))

    # Queries of the server's programs.

    @property
    def asks_components(self) -> bool:
        """Whether to query apt, before a first driver."""
        return self.is_wanted and bool(self.set.components) and self.facts.installed is None

    @property
    def asks_key(self) -> bool:
        """Whether to query mokutil, if modules must be signed with the server's key."""
        comes = self.facts.loaded is None or bool(self.foreign)
        return self.is_wanted and self.facts.secure_boot and not self.is_prebuilt and comes

    @property
    def asks_solution(self) -> bool:
        """Whether apt solves the packages before a first driver: Ubuntu's fabric manager may lag behind the driver."""
        is_first = not self.installed and not self.foreign
        return self.is_wanted and self.is_prebuilt and bool(self.fabric_packages) and is_first

    @property
    def asks_gpus(self) -> bool:
        """Whether to query nvidia-smi: a driver is loaded, and its files show no error that would explain a failure."""
        facts = self.facts
        is_meant = self.is_wanted or self.is_existing
        return is_meant and facts.loaded is not None and not facts.problem and not facts.reboot_reason

    @property
    def missing_components(self) -> tuple[str, ...]:
        present = {component.rpartition("/")[2] for component in self.survey.components}
        return tuple(component for component in self.set.components if component not in present)

    @property
    def shown(self) -> tuple[str, ...]:
        """nvidia-smi's lines without the ignored GPUs. It shows their addresses with a domain of eight digits."""
        ignored = [address.lower() for address in self.options.ignored_gpus]
        return tuple(
            line for line in lines_of(self.survey.shown) if not any(address in line.lower() for address in ignored)
        )

    @property
    def unfinished_fabric(self) -> tuple[str, ...]:
        """States of the NVLink fabric that are not completed."""
        states = fabric_states("\n".join(lines_of(self.survey.described)))
        return tuple(sorted({state for state in states.values() if state != COMPLETED}))

    @property
    def is_in_use(self) -> bool:
        """Whether the loaded release is that of the packages; for an existing driver, that of the libraries."""
        if self.is_existing:
            return {line.split(", ")[1] for line in lines_of(self.survey.shown)} == {self.facts.loaded}
        return self.facts.loaded == self.facts.installed

    # Reboots and drains.

    @property
    def reboot_reason(self) -> str:
        """Why the kernel does not yet use the driver on the disk; empty if it does."""
        if self.options.state == "absent":
            gone = self.facts.loaded is not None and not self.stays
            return f"driver {self.facts.loaded} is removed, but loaded" if gone else ""
        return self.facts.reboot_reason

    @property
    def may_reboot(self) -> bool:
        """Whether the role may reboot: by default a server in no cluster, unless Ansible runs on it."""
        if self.options.reboot_ok is not None:
            return self.options.reboot_ok
        return not self.host.clusters and not self.host.is_local

    @property
    def drains(self) -> bool:
        """Whether to drain: new pods would get the libraries of one release with the kernel module of another."""
        return self.is_wanted and self.may_reboot and self.replaces_loaded

    # Removal.

    @property
    def stays(self) -> bool:
        """Whether a removal keeps the driver: completely, because a partial driver does not work."""
        was_there = not set(self.survey.before).isdisjoint(names(self.installed))
        return bool(self.installed) and (self.survey.is_ours is False or was_there)

    @property
    def removed(self) -> tuple[str, ...]:
        if self.stays:
            return ()
        named = [name for name in names(self.survey.packages) if name in (*self.packages, "nvlsm")]
        return tuple(dict.fromkeys([*named, *names(self.installed)])) or self.packages
