"""What the role nvidia_driver gives to apt, solved by the real apt-get against an index of upstream's rows.

A cell is a system, a source, what is installed, and GPUs. If one of REASONS holds, it is refused for it with a next
step. Otherwise apt solves it and one driver remains, of one release and flavour, with the programs of all units that
the role starts. `pytest -rP` shows the counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.apt.checks import OFFER
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.apt.offer import AptOffer
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.apt.repository import (
    AptOptions,
    AptPaths,
    AptRepository,
    AptSurvey,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.apt.sources import AptSet
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.driver.checks import BEFORE
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.findings import errors
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.gpu_facts import GpuFacts
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.host import Host
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.program_output import Answer
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.apt_offer import Offer
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.pci import (
    GENERATIONS,
    NVIDIA,
    PciDevice,
    first_branch,
)
from apt_root import AptRoot, Installed, Outcome, is_there, stub
from collection import ROOT
from driver_machines import BRIDGE, LOST, NVSWITCH, Machine, machine_facts, plan
from jinja2.nativetypes import NativeEnvironment
from planned import said

from lab import upstream
from lab.systems import systems
from lab.versions import versions

ROLE = ROOT / "roles" / "nvidia_driver"
SPEC = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
SOURCES = SPEC["nvidia_driver_source"]["choices"]
SURVEY = yaml.safe_load((ROLE / "tasks" / "survey.yml").read_text())[0]["ansible.builtin.command"]["argv"]
PATHS = AptPaths(**yaml.safe_load((ROOT / "roles/_common/vars/main.yml").read_text())["_common_apt_paths"])
# Releases of kernels by the suffix of their packages.
KERNELS = {
    "debian-12": {"amd64": "6.1.0-40-amd64", "cloud-amd64": "6.1.0-40-cloud-amd64"},
    "debian-13": {"amd64": "6.12.48+deb13-amd64", "cloud-amd64": "6.12.48+deb13-cloud-amd64"},
    "ubuntu-22.04": {
        "generic": "5.15.0-160-generic",
        "aws": "5.15.0-1100-aws",
        "generic-hwe-22.04": "6.8.0-90-generic",
    },
    "ubuntu-24.04": {
        "generic": "6.8.0-90-generic",
        "aws": "6.8.0-1044-aws",
        "generic-hwe-24.04": "6.17.0-14-generic",
    },
    "ubuntu-26.04": {
        "generic": "7.0.0-34-generic",
        "aws": "7.0.0-1010-aws",
        "generic-hwe-26.04": "7.0.0-35-generic",
    },
}
# Of the system: nothing of it may go.
BASE = (stub("dpkg", Essential="yes"), stub("dkms"), stub("libc6"))
DESKTOP = (stub("ubuntu-desktop", Depends="gdm3, xserver-xorg-core"), stub("gdm3"), stub("xserver-xorg-core"))

pytestmark = pytest.mark.skipif(not is_there(), reason="apt-get, apt-cache or dpkg-query is missing")


@dataclass(frozen=True)
class Present:
    """What is installed. names: packages with a part of their version, whose dependencies come along.

    of_nvidia:  whether they are of NVIDIA's repository, which stays configured.
    twins:      names of libraries that are installed for i386, too.
    change:     applied to each package.
    more:       of the machine.
    kernel:     the suffix of its packages, or a release that the archive no longer has; empty for the system's first.
    lags:       whether the archive's fabric manager is older than its driver.
    """

    names: tuple[tuple[str, str], ...] = ()
    of_nvidia: bool = False
    twins: bool = False
    change: Callable[[Installed], Installed] = lambda row: row
    more: Mapping[str, Any] = field(default_factory=dict)
    kernel: str = ""
    lags: bool = False


def on_hold(row: Installed) -> Installed:
    return replace(row, want="hold")


def half_configured(row: Installed) -> Installed:
    return replace(row, state="half-configured") if "dkms" in row.package.name else row


OLD, NEW, NEWER = "580.159.03", "580.178.04", "595.71.05"


def at(version: str, *names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, version) for name in names)


# Ubuntu has it at a release of its own.
SETTINGS = ("nvidia-settings", "")
UP = {"nvidia_driver_version": "595.91.07-*"}
DOWN = {"nvidia_driver_version": "580.178.04-*"}
OPEN_DESKTOP = (*at(OLD, "nvidia-driver-580-open"), SETTINGS)
PREBUILT_SERVER = (
    *at(NEW, "nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server"),
    ("linux-modules-nvidia-580-server-open-generic", ""),
)
# Without a driver, each fails with some sources, systems and GPUs.
BARE = {
    "nothing": Present(),
    "a .run file": Present(more={"loaded": NEW}),
    "Secure Boot": Present(more={"secure_boot": True}),
    "Secure Boot, enrolled": Present(more={"secure_boot": True, "enrolled": True}),
    "components main alone": Present(more={"components": ("main",)}),
    "fewer GPUs than expected": Present(more={"options": {"nvidia_driver_expected_gpus": 2}}),
    "the proprietary modules are asked for": Present(more={"options": {"nvidia_driver_flavour": "proprietary"}}),
    "branch 580 is asked for": Present(more={"options": DOWN}),
    "a release that nobody published": Present(more={"options": {"nvidia_driver_version": "595.1.1-*"}}),
    "a package that nobody published": Present(more={"options": {"nvidia_driver_packages": ["nvidia-nothing"]}}),
    "a kernel that the archive has replaced": Present(kernel="5.0.0-1"),
}

UBUNTU = {
    **BARE,
    "desktop, proprietary": Present((*at(OLD, "nvidia-driver-580"), SETTINGS)),
    "desktop, open": Present(OPEN_DESKTOP),
    "desktop at the wanted release": Present(at(NEW, "nvidia-driver-580")),
    "desktop, open, newer": Present(at(NEWER, "nvidia-driver-595-open")),
    "desktop, newer, and a release that is asked for": Present(
        at(NEWER, "nvidia-driver-595-open"), more={"options": DOWN}
    ),
    "desktop with i386 libraries": Present(OPEN_DESKTOP, twins=True),
    "desktop of a server branch": Present(at(OLD, "nvidia-driver-580-server")),
    "headless": Present(at(OLD, "nvidia-headless-580", "nvidia-utils-580")),
    "headless, open": Present(at(OLD, "nvidia-headless-580-open", "nvidia-utils-580")),
    "server": Present(at(OLD, "nvidia-headless-580-server", "nvidia-utils-580-server")),
    "server, open": Present(at(OLD, "nvidia-headless-580-server-open", "nvidia-utils-580-server")),
    "server, prebuilt": Present(PREBUILT_SERVER),
    "server, prebuilt, of a cluster": Present(PREBUILT_SERVER, more={"member": True}),
    "desktop, prebuilt": Present((*at(NEW, "nvidia-driver-580-open"), ("linux-modules-nvidia-580-open-generic", ""))),
    "on hold": Present(OPEN_DESKTOP, change=on_hold),
    "half configured": Present(OPEN_DESKTOP, change=half_configured),
    "NVIDIA's, proprietary": Present(at("=", "cuda-drivers"), of_nvidia=True),
    "NVIDIA's, open": Present(at("=", "nvidia-open"), of_nvidia=True),
    "NVIDIA's headless, proprietary": Present(at("=", "nvidia-headless{series}"), of_nvidia=True),
    "NVIDIA's headless, open": Present(at("=", "nvidia-headless{series}-open"), of_nvidia=True),
    "NVIDIA's headless, older": Present(at("<", "nvidia-headless{series}-open", "nvidia-settings"), of_nvidia=True),
    "NVIDIA's, and another branch that is asked for": Present(
        at("<", "nvidia-headless{series}"), of_nvidia=True, more={"options": UP}
    ),
    "NVIDIA's desktop, and another branch that is asked for": Present(
        at("<", "cuda-drivers"), of_nvidia=True, more={"options": UP}
    ),
    "NVIDIA's desktop, open, with i386 libraries": Present(at("<", "nvidia-open"), of_nvidia=True, twins=True),
    "NVIDIA's fabric manager": Present(at("<", "nvidia-headless{series}-open", "nvidia-fabricmanager"), of_nvidia=True),
    "a cloud's kernel": Present(kernel="aws"),
    "hardware enablement": Present(kernel="generic-hwe"),
    "a fabric manager that lags": Present(lags=True),
}
DEBIANS = {
    **BARE,
    "desktop": Present((("nvidia-driver", ""), ("nvidia-settings", ""))),
    "desktop, open": Present((("nvidia-open-kernel-dkms", ""), ("nvidia-driver", ""))),
    "headless": Present((("nvidia-kernel-dkms", ""), ("nvidia-smi", ""), ("libcuda1", ""))),
    "on hold": Present((("nvidia-kernel-dkms", ""), ("nvidia-smi", "")), change=on_hold),
    "half configured": Present((("nvidia-kernel-dkms", ""), ("nvidia-smi", "")), change=half_configured),
    "NVIDIA's, proprietary": Present(at("=", "cuda-drivers"), of_nvidia=True),
    "NVIDIA's, open": Present(at("=", "nvidia-open"), of_nvidia=True),
    "NVIDIA's headless, older": Present(at("<", "nvidia-driver-cuda", "nvidia-kernel-open-dkms"), of_nvidia=True),
    "NVIDIA's headless, proprietary, older": Present(
        at("<", "nvidia-driver-cuda", "nvidia-kernel-dkms"), of_nvidia=True
    ),
    "NVIDIA's, newer": Present(at(">", "nvidia-open"), of_nvidia=True),
    "headless, of a cluster": Present((("nvidia-kernel-dkms", ""), ("nvidia-smi", "")), more={"member": True}),
    "a cloud's kernel": Present(kernel="cloud-amd64"),
}


@cache
def gpus() -> dict[str, tuple[str, ...]]:
    """One GPU of each generation, with NVSwitches and without; and what no driver can be chosen for."""
    first = {PciDevice("", NVIDIA, number, 0x0302).generation: number for number in range(0x3FFF, 0, -1)}
    assert set(first) == set(GENERATIONS)
    found: dict[str, tuple[str, ...]] = {}
    for generation in GENERATIONS:
        device = f"10de:{first[generation]:04x}"
        found[generation] = (device,)
        found[f"{generation} with switches"] = (
            device,
            BRIDGE if GENERATIONS.index(generation) >= GENERATIONS.index("blackwell") else NVSWITCH,
        )
    found["one that fell off the bus"] = (LOST,)
    found["volta and blackwell"] = (*found["volta"], *found["blackwell"])
    return found


@cache
def facts_of(name: str) -> GpuFacts:
    with TemporaryDirectory() as folder:
        return GpuFacts.of(machine_facts(Path(folder), Machine(devices=gpus()[name])))


@cache
def alike() -> dict[str, list[str]]:
    """Names of those GPUs of which the planner knows the same, by the first of them."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for name in gpus():
        facts = facts_of(name)
        drives = (facts.flavour, facts.branch_max, first_branch(facts.generations), bool(facts.unidentified))
        known = (*drives, facts.needs_fabric_manager, facts.needs_nvlsm, len(facts.gpus))
        found.setdefault(known, []).append(name)
    return {names[0]: names for names in found.values()}


@dataclass(frozen=True)
class Cell:
    system: str
    source: str
    present: str
    gpus: str

    def __str__(self) -> str:
        return f"{self.system}, {self.source}, {self.present}, {self.gpus}"


@dataclass(frozen=True)
class Verdict:
    """refused: sentences. wrong: what is wrong. Both are empty if apt solves it."""

    refused: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    @property
    def codes(self) -> set[str]:
        return {code.upper() for text in self.refused for code in re.findall(r"\(docs/doctor/\w+\.md#(\w+)\)", text)}


def presents(system: str) -> Mapping[str, Present]:
    return UBUNTU if system.startswith("ubuntu") else DEBIANS


def is_source_of(system: str, source: str) -> bool:
    return source == "cuda_repo" or source.startswith(system.partition("-")[0])


def cells(system: str, source: str) -> Iterator[Cell]:
    """A source of another distribution is refused whatever is installed."""
    for present in presents(system) if is_source_of(system, source) else ["nothing"]:
        for generation in alike():
            yield Cell(system, source, present, generation)


@dataclass(frozen=True)
class Case:
    """What holds in a cell, by upstream's rows and the description of the cell: without the planner."""

    cell: Cell

    @cached_property
    def present(self) -> Present:
        return presents(self.cell.system)[self.cell.present]

    @cached_property
    def gpus(self) -> GpuFacts:
        return facts_of(self.cell.gpus)

    @property
    def options(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.present.more.get("options", {})
        return found

    @property
    def is_prebuilt(self) -> bool:
        return self.cell.source == "ubuntu_prebuilt"

    @property
    def has_switches(self) -> bool:
        return "switches" in self.cell.gpus

    # What is installed.

    @cached_property
    def chosen(self) -> list[tuple[str, str]]:
        return chosen(self.cell.system, self.present)

    @property
    def exists(self) -> bool:
        return bool(self.chosen) or not self.present.names

    @property
    def release(self) -> str:
        return upstream.upstream_of(self.chosen[0][1]) if self.chosen else ""

    # What is asked for.

    @property
    def offered(self) -> tuple[upstream.Package, ...]:
        return offered(self.cell.system, self.cell.source)

    @cached_property
    def wanted(self) -> str:
        """A pattern of versions: of an archive's own driver, the only branch that it keeps."""
        default = default_release(self.cell.system)
        if self.is_prebuilt:
            default = str(versions()["packages"]["nvidia-driver"].partition(".")[0])
        elif self.cell.source == "debian":
            default = max((package.upstream.partition(".")[0] for package in self.offered), default="0")
        return str(self.options.get("nvidia_driver_version", f"{default}*"))

    @property
    def branch(self) -> int:
        return numbers(self.wanted)[0]

    @property
    def flavour(self) -> str:
        """The open modules by default; Debian's own do not build for its kernels."""
        of_gpus = self.gpus.flavour if self.gpus.flavour in ("open", "proprietary") else None
        default = "proprietary" if self.cell.source == "debian" else "open"
        return str(self.options.get("nvidia_driver_flavour") or of_gpus or default)

    @property
    def fits(self) -> bool:
        """Whether the branch drives the GPUs."""
        return first_branch(self.gpus.generations) <= self.branch <= (self.gpus.branch_max or self.branch)

    @property
    def first_branch(self) -> int:
        """Of NVIDIA's repository. The rows are a lower bound where they have the last branch before Turing."""
        first = min((numbers(package.upstream)[0] for package in self.offered), default=0)
        return first if self.cell.source == "cuda_repo" and first > LAST_BEFORE_TURING else 0

    @property
    def changes(self) -> bool:
        """Whether another release, flavour or source replaces what is installed."""
        names = [name for name, _version in self.chosen]
        is_open = any("open" in name for name in names)
        is_of_source = self.present.of_nvidia == (self.cell.source == "cuda_repo") and (
            not self.is_prebuilt or any(re.match("linux-modules-nvidia-.*-server", name) for name in names)
        )
        is_same = (
            is_of_source and is_open == (self.flavour == "open") and fnmatchcase(self.release, self.release_wanted)
        )
        return bool(names) and not is_same

    @property
    def release_wanted(self) -> str:
        return self.wanted.partition("-")[0]

    @property
    def is_newer(self) -> bool:
        wanted = numbers(self.release_wanted)
        return numbers(self.release)[: len(wanted)] > wanted


LAST_BEFORE_TURING = 580
# By the failure: where it has to be, and nowhere else.
REASONS: dict[str, Callable[[Case], bool]] = {
    "DRIVER_GPU_UNIDENTIFIED": lambda case: (
        bool(case.gpus.unidentified) and "nvidia_driver_flavour" not in case.options
    ),
    "DRIVER_GPU_MISSING": lambda case: len(case.gpus.gpus) < case.options.get("nvidia_driver_expected_gpus", 0),
    "DRIVER_FLAVOUR_MIXED": lambda case: case.gpus.flavour is None and not case.gpus.unidentified,
    "DRIVER_FLAVOUR_WRONG": lambda case: case.gpus.flavour not in (None, "either", case.flavour),
    "DRIVER_SOURCE_OF_OTHER_SYSTEM": lambda case: not is_source_of(case.cell.system, case.cell.source),
    "DRIVER_SOURCE_LACKS_FABRIC": lambda case: (
        is_source_of(case.cell.system, case.cell.source)
        and {"ubuntu_prebuilt": case.gpus.needs_nvlsm, "debian": case.has_switches}.get(case.cell.source, False)
    ),
    "DRIVER_BRANCH_UNFIT": lambda case: (
        not case.fits and case.cell.source != "debian" and case.first_branch <= (case.gpus.branch_max or 9999)
    ),
    "DRIVER_ARCHIVE_BRANCH_UNFIT": lambda case: (
        not case.fits and case.cell.source == "debian" and is_source_of(case.cell.system, case.cell.source)
    ),
    "DRIVER_REPOSITORY_TOO_NEW": lambda case: not case.fits and case.first_branch > (case.gpus.branch_max or 9999),
    "DRIVER_BRANCH_MISSING": lambda case: case.branch < case.first_branch,
    "DRIVER_NOT_PACKAGED": lambda case: "loaded" in case.present.more and not case.chosen,
    "DRIVER_NEWER_INSTALLED": lambda case: case.is_newer and "nvidia_driver_version" not in case.options,
    "DRIVER_USED_BY_PODS": lambda case: case.changes and "member" in case.present.more,
    "DRIVER_PACKAGES_HELD": lambda case: case.changes and case.present.change is on_hold,
    "DRIVER_COMPONENTS_MISSING": lambda case: (
        "components" in case.present.more
        and (case.cell.source != "cuda_repo" or case.cell.system == "debian-12")
        and is_source_of(case.cell.system, case.cell.source)
    ),
    "DRIVER_FABRIC_MANAGER_LAGS": lambda case: (
        case.present.lags and case.is_prebuilt and case.has_switches and not case.gpus.needs_nvlsm
    ),
    "DRIVER_KEY_NOT_ENROLLED": lambda case: (
        "secure_boot" in case.present.more and "enrolled" not in case.present.more and not case.is_prebuilt
    ),
    "APT_HEADERS_MISSING": lambda case: (
        not case.is_prebuilt and kernel_of(case.cell.system, case.present)[1] not in KERNELS[case.cell.system].values()
    ),
    "APT_VERSION_MISSING": lambda case: (
        not any(fnmatchcase(package.upstream, case.release_wanted) for package in case.offered)
    ),
    "APT_PACKAGE_MISSING": lambda case: "nvidia_driver_packages" in case.options,
}
CODES = {asked: {kind.id for found in asked for kind in found.types} for asked in (BEFORE, OFFER)}


def reasons(cell: Cell) -> set[str]:
    """Failures that a cell has to have. apt is asked for the packages if the server can have them."""
    case = Case(cell)
    before, offer = ({code for code in codes if REASONS[code](case)} for codes in CODES.values())
    return before or offer


class Apt:
    """The real apt for all cells. The same question is asked once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = 0
        self._roots: dict[tuple[str, bool, bool], AptRoot] = {}
        self._surveys: dict[str, list[str]] = {}
        self._outcomes: dict[tuple[Any, ...], Outcome] = {}
        self._offers: dict[tuple[Any, ...], Offer] = {}
        self._states: dict[tuple[str, str], tuple[Installed, ...] | None] = {}

    def root(self, system: str, has_nvidia: bool, lags: bool) -> AptRoot:
        key = (system, has_nvidia, lags)
        if key not in self._roots:
            packages = [package for package in rows(system) if has_nvidia or not is_nvidias(package)]
            if lags:
                packages = [p for p in packages if not (p.name == "nvidia-fabricmanager-580" and NEW in p.version)]
            folder = self.folder / f"{system}-{has_nvidia}-{lags}"
            self._roots[key] = AptRoot(folder, [*packages, *BASE, *DESKTOP, *kernels(system)])
        return self._roots[key]

    def state(self, system: str, present: str) -> tuple[Installed, ...] | None:
        if (system, present) not in self._states:
            whole = self.root(system, True, False)
            self._states[system, present] = state_of(whole, system, presents(system)[present])
        return self._states[system, present]

    def survey(self, root: AptRoot, installed: Iterable[Installed]) -> list[str]:
        """The answer of the role's own query."""
        text = root.status(installed)
        if text not in self._surveys:
            admin = f"--admindir={root.folder}/var/lib/dpkg"
            self._surveys[text] = root.run(SURVEY[0], admin, *SURVEY[1:]).stdout.splitlines()
        return self._surveys[text]

    def solve(self, root: AptRoot, installed: Sequence[Installed], pin: str, argv: Sequence[str]) -> Outcome:
        text = root.status(installed)
        key = (root.folder, text, pin, *argv)
        if key not in self._outcomes:
            self.asked += 1
            root.pin(pin)
            self._outcomes[key] = root.simulate(argv)
        return self._outcomes[key]

    def offer(self, root: AptRoot, names: Sequence[str]) -> Offer:
        key = (root.folder, *names)
        if key not in self._offers:
            root.status(())
            self._offers[key] = Offer(lambda *words: (0, root.run(*words).stdout, ""))
            self._offers[key].learn(names, root.folder / "apt.conf")
        return self._offers[key]


@cache
def rows(system: str) -> tuple[upstream.Package, ...]:
    there = [name for name in upstream.systems()[system] if not re.match("docker|kubernetes|nvidia-container", name)]
    return tuple(package for package in upstream.packages() if package.repository in there)


@cache
def offered(system: str, source: str) -> tuple[upstream.Package, ...]:
    """The source's rows of drivers."""
    return tuple(
        package
        for package in rows(system)
        if is_nvidias(package) == (source == "cuda_repo")
        and ("-server" in package.name or source != "ubuntu_prebuilt")
        and is_part(package)
    )


def is_nvidias(package: upstream.Package) -> bool:
    return package.repository.startswith("nvidia-cuda")


def kernels(system: str) -> list[upstream.Package]:
    found = []
    for suffix, release in KERNELS[system].items():
        version = f"{release.rpartition('-')[0]}.1"
        found += [stub(f"linux-{part}-{suffix}", version) for part in ("image", "headers")]
        found += [stub(f"linux-{part}-{release}", version) for part in ("image", "headers")]
    return [*{package.name: package for package in found}.values(), stub("infiniband-diags")]


def default_release(system: str) -> str:
    name = " ".join(system.capitalize().split("-"))
    own = versions()["packages_by_system"].get(name, {})
    return str(own.get("nvidia-driver", versions()["packages"]["nvidia-driver"])).partition("-")[0]


def chosen(system: str, present: Present) -> list[tuple[str, str]]:
    """Names and versions, in the repository of the description."""
    wanted = default_release(system)
    found = []
    for name, version in present.names:
        order = [
            package
            for package in sorted(rows(system), key=lambda package: numbers(package.version))
            if is_nvidias(package) == present.of_nvidia
            and package.name == name.replace("{series}", series(package.version))
            and {
                "=": package.upstream == wanted,
                "<": numbers(package.upstream) < numbers(wanted),
                ">": numbers(package.upstream) > numbers(wanted),
            }.get(version, package.upstream.startswith(version))
        ]
        if not order:
            return []
        found.append((order[-1].name, order[-1].version))
    return found


def series(version: str) -> str:
    return f"-{version.partition('.')[0]}" if numbers(version)[0] < 590 else ""


@cache
def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall("[0-9]+", version))


def state_of(whole: AptRoot, system: str, present: Present) -> tuple[Installed, ...] | None:
    """The dpkg status; None if the system has no such packages."""
    suffix, release = kernel_of(system, present)
    base = [(package.name, package.version) for package in (*BASE, *DESKTOP)]
    images = (f"linux-image-{suffix}", f"linux-image-{release}")
    base += [(package.name, package.version) for package in kernels(system) if package.name in images]
    fixed = whole.closure(base)
    names = chosen(system, present)
    if present.names and not names:
        return None
    full = whole.closure(names, fixed)
    keys = {row.key for row in fixed}
    changed = [row if row.key in keys else present.change(row) for row in full]
    twins = [
        Installed(row.package, "i386")
        for row in changed
        if present.twins and "i386" in row.package.architectures and row.architecture == "amd64"
    ]
    return tuple(sorted([*changed, *twins], key=lambda row: row.key))


def kernel_of(system: str, present: Present) -> tuple[str, str]:
    """The suffix of its packages, and its release."""
    known = KERNELS[system]
    suffix = next((name for name in known if name.startswith(present.kernel or name)), "")
    first = next(iter(known))
    return (suffix, known[suffix]) if suffix else (first, f"{present.kernel}-{first}")


def machine_of(cell: Cell, present: Present, survey: Sequence[str], loaded: str) -> Machine:
    more = {"loaded": loaded} | dict(present.more)
    options = {"nvidia_driver_source": cell.source} | dict(more.pop("options", {}))
    return Machine(
        system=" ".join(cell.system.capitalize().split("-")),
        kernel=kernel_of(cell.system, present)[1],
        devices=gpus()[cell.gpus],
        installed=survey,
        options=options,
        **more,
    )


class Judge:
    """Makes the plan of a cell, and has apt solve it."""

    def __init__(self, apt: Apt, folder: Path) -> None:
        self.apt = apt
        self.folder = folder
        self._machines: dict[str, Path] = {}
        self._verdicts: dict[tuple[str, ...], Verdict] = {}

    def plan(self, machine: Machine, **survey: Any) -> dict[str, Any]:
        """Machines that differ in their options alone have one folder."""
        files = repr(replace(machine, options={}))
        folder = self._machines.setdefault(files, self.folder / str(len(self._machines)))
        return plan(folder, machine, **survey)

    def verdict(self, cell: Cell) -> Verdict | None:
        present = presents(cell.system)[cell.present]
        has_nvidia = present.of_nvidia or cell.source == "cuda_repo"
        root = self.apt.root(cell.system, has_nvidia, present.lags)
        installed = self.apt.state(cell.system, cell.present)
        if installed is None:
            return None
        survey = self.apt.survey(root, installed)
        loaded = next(
            (p.package.upstream for p in installed if re.match("libnvidia-(compute|ml1)", p.package.name)), ""
        )
        machine = machine_of(cell, present, survey, loaded)
        made = self.plan(machine)
        if made["steps"]["ask_solution"]:
            root.pin("")
            root.status(installed)
            told = root.run(*simulation(made))
            made = self.plan(machine, solution={"rc": told.returncode, "stdout": told.stdout, "stderr": told.stderr})
        key = (cell.system, cell.source, cell.present, *(repr(made[part]) for part in ("refused", "packages", "steps")))
        if key not in self._verdicts:
            self._verdicts[key] = self._judge(root, installed, machine, made)
        return self._verdicts[key]

    def _judge(
        self, root: AptRoot, installed: tuple[Installed, ...], machine: Machine, made: Mapping[str, Any]
    ) -> Verdict:
        refused = made["refused"] or self._not_offered(root, machine, made)
        if refused:
            return Verdict(tuple(refused), tuple(f"no next step: {text}" for text in refused if "Next: " not in text))
        return Verdict(wrong=tuple(self._transact(root, installed, machine, made)))

    def _not_offered(self, root: AptRoot, machine: Machine, made: Mapping[str, Any]) -> list[str]:
        """What the first play finds out before any change."""
        asked = AptSet.of(made["packages"]["apt"]).asked
        offer = self.apt.offer(root, sorted({name.partition("=")[0] for name in asked}))
        missing = [
            {
                "repository": "nvidia_driver",
                "uri": "",
                "package": name,
                "offered": offer.versions.get(name.partition("=")[0], []),
            }
            for name in asked
            if not offer.has(name)
        ]
        host = Host("server", machine.system, machine.kernel, "x86_64")
        brings = {"nvidia_driver": made["packages"]["sources"]}
        return errors(OFFER, AptOffer(host, brings, answer={"missing": missing}))

    def _transact(
        self, root: AptRoot, installed: tuple[Installed, ...], machine: Machine, made: Mapping[str, Any]
    ) -> Iterator[str]:
        before = installed
        named = {*made["packages"]["foreign"]}
        pin = self._repository(machine, made, installed, root).pin
        for argv in self._commands(root, machine, made, installed):
            outcome = self.apt.solve(root, installed, pin, argv)
            if outcome.problem:
                yield f"apt does not solve {' '.join(argv[argv.index('install') :])}: {outcome.problem}"
                return
            for name, arch in sorted(outcome.removes):
                if name not in named and f"{name}:{arch}" not in named:
                    yield f"{name}:{arch} goes, and the plan does not name it"
            installed = root.after(installed, outcome)
        repository = self._repository(machine, made, installed, root)
        if repository.missing:
            argv = ["apt-get", "--yes", "--no-install-recommends", "--allow-downgrades", "install", *repository.missing]
            outcome = self.apt.solve(root, installed, pin, argv)
            if outcome.problem:
                yield f"apt does not solve {' '.join(argv[4:])}: {outcome.problem}"
                return
            for name, arch in sorted(outcome.removes):
                yield f"{name}:{arch} goes with the second installation"
            installed = root.after(installed, outcome)
        yield from self._left(root, before, installed, machine, made)

    def _commands(
        self, root: AptRoot, machine: Machine, made: Mapping[str, Any], installed: Sequence[Installed]
    ) -> Iterator[list[str]]:
        if made["packages"]["kernel"]:
            yield ["apt-get", "--yes", "--no-install-recommends", "install", *made["packages"]["kernel"]]
        if made["steps"]["move"]:
            offer = self.apt.offer(root, sorted(made["packages"]["foreign"]))
            shown = [f"{name} | {version} | x" for name, found in offer.versions.items() for version in found]
            yield move_command(self.plan(machine, offered=said(*shown)))

    def _repository(
        self, machine: Machine, made: Mapping[str, Any], installed: Iterable[Installed], root: AptRoot
    ) -> AptRepository:
        shown = [
            f"{row.package.name}={row.package.version} {row.state}" for row in installed if row.architecture == "amd64"
        ]
        survey = AptSurvey(packages=Answer.of(said(*shown)))
        host = Host("server", machine.system, machine.kernel, "x86_64")
        return AptRepository(host, AptOptions("", "", ""), AptSet.of(made["packages"]["apt"]), PATHS, survey)

    def _left(
        self,
        root: AptRoot,
        before: Iterable[Installed],
        installed: Sequence[Installed],
        machine: Machine,
        made: Mapping[str, Any],
    ) -> Iterator[str]:
        after = self.plan(replace(machine, installed=self.apt.survey(root, installed)))
        if after["packages"]["foreign"]:
            yield f"the next run moves {after['packages']['foreign']}"
        # Without a question to apt nothing depends on what the archive has by then.
        if after["refused"] or after["steps"]["ask_solution"]:
            yield f"the next run asks apt or fails: {after['refused']}"
        if missing := self._repository(machine, after, installed, root).missing:
            yield f"the next run installs {missing}"
        drivers = {row.key: row.package.upstream for row in installed if is_part(row.package)}
        if len({*drivers.values()}) > 1:
            yield f"more than one release remains: {drivers}"
        modules = {
            row.package.name for row in installed if re.search(r"nvidia.*dkms|^linux-modules-nvidia", row.package.name)
        }
        modules -= {name for name in modules if "no-dkms" in name}
        if len({"open" in name for name in modules}) != 1:
            yield f"not one flavour: {sorted(modules)}"
        kept = {row.package.name for row in installed}
        for row in before:
            if not row.package.repository and row.package.name not in kept:
                yield f"{row.package.name} of the system goes"
        files = {path for row in installed for path in row.package.files}
        units = {unit for row in installed for unit in row.package.units}
        for unit, program in started(made).items():
            if program and program not in files:
                yield f"{unit} starts {program}, which no package has"
            if not program and unit not in units:
                yield f"no package has {unit}"


# With numbers of their own in an archive; firmware of several releases lies side by side.
OWN_NUMBERS = re.compile(r"nvidia-(modprobe|persistenced|settings)$|libxnvctrl0$|nvidia-firmware-.*\.")


def is_part(package: upstream.Package) -> bool:
    return bool(re.match(r"[3-9][0-9]{2}\.", package.version)) and not OWN_NUMBERS.match(package.name)


def started(made: Mapping[str, Any]) -> dict[str, str]:
    """Units that the role starts, by its tasks, each with its program if the role has the unit's file."""
    found = {}
    for page in ("configure", "fabric"):
        if page == "fabric" and not made["steps"]["join_gpus"]:
            continue
        for task in tasks_of(page):
            unit = task.get("ansible.builtin.systemd_service", {}).get("name")
            if unit:
                shipped = [ROLE / "files" / path.lstrip("/") for path in made["files"]["boot"] + made["files"]["units"]]
                texts = [path.read_text() for path in shipped if path.name == unit or path.parent.name == f"{unit}.d"]
                found[unit] = next(iter(re.findall(r"^ExecStart=(\S+)", "".join(texts), re.MULTILINE)), "")
    return found


@cache
def tasks_of(page: str) -> tuple[dict[str, Any], ...]:
    return tuple(_flat(yaml.safe_load((ROLE / "tasks" / f"{page}.yml").read_text())))


def _flat(tasks: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for task in tasks:
        yield task
        yield from _flat(task.get("block", []))


@cache
def move_template() -> str:
    [task] = [
        task for task in tasks_of("move") if "argv" in task.get("ansible.builtin.command", {}) and "async" in task
    ]
    return str(task["ansible.builtin.command"]["argv"])


def move_command(made: Mapping[str, Any]) -> list[str]:
    """The role's own command line."""
    template = NativeEnvironment().from_string(move_template())
    return list(template.render(kubegpu_apt_lock_timeout=900, __nvidia_driver_plan=made))


def simulation(made: Mapping[str, Any]) -> list[str]:
    """The role's question before a change."""
    [argv] = [
        task["ansible.builtin.command"]["argv"]
        for task in tasks_of("ask")
        if "--simulate" in task.get("ansible.builtin.command", {}).get("argv", "")
    ]
    return list(NativeEnvironment().from_string(argv).render(__nvidia_driver_plan=made))


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return Judge(Apt(tmp_path_factory.mktemp("apt")), tmp_path_factory.mktemp("machines"))


@pytest.mark.parametrize("family", [UBUNTU, DEBIANS], ids=["Ubuntu", "Debian"])
def test_each_state_exists_on_a_system(family: Mapping[str, Present]) -> None:
    """Otherwise it is not judged."""
    of_family = [system for system in systems() if presents(system) is family]
    nowhere = [
        name
        for name, present in family.items()
        if present.names and not any(chosen(system, present) for system in of_family)
    ]
    assert nowhere == []


@pytest.mark.parametrize("system", systems())
def test_each_state_is_one_that_apt_leaves(judge: Judge, system: str) -> None:
    """A server whose dependencies are broken before the role comes proves nothing."""
    root = judge.apt.root(system, True, False)
    broken = {}
    for name in presents(system):
        state = judge.apt.state(system, name)
        if state is not None:
            root.status(state)
            told = root.run("apt-get", "check")
            if told.returncode:
                broken[name] = told.stdout + told.stderr
    assert broken == {}


@pytest.mark.parametrize(
    ("system", "source"),
    [
        ("debian-12", "cuda_repo"),
        ("debian-12", "debian"),
        ("ubuntu-24.04", "cuda_repo"),
        ("ubuntu-24.04", "ubuntu_prebuilt"),
    ],
)
def test_no_package_on_hold_is_named_in_a_transaction(judge: Judge, system: str, source: str) -> None:
    """apt-get --yes stops at it, after the drain."""
    tried, unseen = 0, []
    for name, present in presents(system).items():
        state = judge.apt.state(system, name)
        if state is None or not present.names:
            continue
        survey = judge.apt.survey(judge.apt.root(system, True, False), state)
        machine = machine_of(Cell(system, source, name, "ada"), present, survey, "")
        made = judge.plan(machine)
        named = {word.partition("=")[0].removesuffix("-") for word in made["packages"]["move"]}
        for number, row in enumerate(survey if made["packages"]["foreign"] else []):
            package, _want, rest = row.split(maxsplit=2)
            if " installed " in row and re.sub(":amd64$", "", package) in named:
                held = [*survey[:number], f"{package} hold {rest}", *survey[number + 1 :]]
                tried += 1
                if "on hold" not in str(judge.plan(replace(machine, installed=held))["refused"]):
                    unseen.append(f"{name}: {package}")
    assert tried
    assert unseen == []


def test_each_failure_has_a_reason_and_a_cell() -> None:
    """Only a failure that a cell reaches is judged below."""
    assert REASONS.keys() == set().union(*CODES.values())
    reached = {
        code
        for system in systems()
        for source in SOURCES
        for cell in cells(system, source)
        if Case(cell).exists
        for code in reasons(cell)
    }
    assert REASONS.keys() - reached == set()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("system", systems())
def test_apt_solves_what_the_role_asks_for(judge: Judge, system: str, source: str) -> None:
    counts: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    asked = judge.apt.asked
    for cell in cells(system, source):
        verdict = judge.verdict(cell)
        if verdict is None:
            continue
        texts = [*verdict.wrong]
        if verdict.codes != reasons(cell):
            texts.append(f"fails with {sorted(verdict.codes)}, and its reasons are {sorted(reasons(cell))}")
        counts["wrong" if texts else "refused" if verdict.refused else "solved"] += len(alike()[cell.gpus])
        for text in texts:
            wrong.setdefault(f"{cell.present}: {text}", []).extend(alike()[cell.gpus])

    print(f"{system}, {source}: {dict(counts)}; apt-get was asked {judge.apt.asked - asked} times")
    told = [f"{text} [{', '.join(found)}]" for text, found in wrong.items()]
    assert not told, f"{counts['wrong']} cells are wrong:\n" + "\n".join(told)
