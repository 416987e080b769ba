# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans the role nvidia_container_toolkit: the release, and the devices that containers can request.

Called by plan.py and checks.py. In: the role's options, and what the tasks read of the server. Out: packages, files
and steps, and whether containers get the GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..apt.sources import AptSet
from ..apt.versions import fits, is_newer
from ..survey.gpu_facts import GpuFacts
from ..survey.host import Host
from ..survey.program_output import Answer, lines_of

REPOSITORY = "https://nvidia.github.io/libnvidia-container"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# All four, because their dependencies on each other are loose (NVIDIA/nvidia-container-toolkit#59).
PACKAGES = (
    *("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
    *("libnvidia-container-tools", "libnvidia-container1"),
)
RUNTIME = "/usr/bin/nvidia-container-runtime"
DROP_IN = "20-kubegpu-nvidia.toml"
# Devices in a CDI specification: a whole GPU, or a part of one.
_DEVICE = re.compile(r"nvidia\.com/gpu=([0-9]+(?::[0-9]+)?)")


@dataclass(frozen=True)
class ToolkitOptions:
    state: str
    version: str
    versions: Mapping[str, Any]
    runtimes: tuple[str, ...]
    default_runtime: bool
    systemd_cgroup: bool
    verify_container: bool
    upgrade_ok: bool


@dataclass(frozen=True)
class ToolkitSurvey:
    """What was read on the server so far. An answer is None until it was queried.

    installed: dpkg's row of nvidia-container-toolkit-base: name, state, version.
    has_spec:  whether a CDI specification of the driver's release exists.
    devices:   output of `nvidia-ctk cdi list`.
    modes:     nvidia-smi's index and MIG mode of each GPU.
    listed:    output of `nvidia-smi --list-gpus`.
    shown:     GPUs that a container saw, and its output.
    strategy:  the device plugin's migStrategy in the inventory; empty if the GPU operator sets it.
    """

    facts: GpuFacts
    installed: Answer | None = None
    has_spec: bool = False
    devices: Answer | None = None
    modes: Answer | None = None
    listed: Answer | None = None
    shown: Mapping[str, Any] | None = None
    strategy: str = ""


@dataclass(frozen=True)
class Toolkit:
    """The decisions, as properties; nodes/toolkit/checks.py checks them."""

    host: Host
    options: ToolkitOptions
    survey: ToolkitSurvey
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def facts(self) -> GpuFacts:
        return self.survey.facts

    @property
    def is_wanted(self) -> bool:
        return self.options.state == "present" and bool(self.facts.gpus)

    @property
    def driver(self) -> str:
        """Release of the libraries. For NVIDIA's installer and the operator's container no package shows it."""
        return self.facts.installed or self.facts.loaded or ""

    # Packages.

    @property
    def version(self) -> str:
        version: str = self.options.version or self.options.versions["packages"]["nvidia-container-toolkit"]
        return version

    @property
    def installed(self) -> str:
        """Version of the installed toolkit; empty if it is not installed."""
        rows = [line.split() for line in lines_of(self.survey.installed)]
        return next((version[0] for _name, state, *version in rows if state == "installed"), "")

    @property
    def goes_down(self) -> bool:
        return is_newer(self.installed, self.version)

    @property
    def is_upgraded(self) -> bool:
        """Whether an installed release is replaced by a newer one."""
        return bool(self.installed) and not self.goes_down and not fits(self.installed, self.version)

    @property
    def changes_in_service(self) -> bool:
        """Whether a node of a cluster would get another release under its pods."""
        return bool(self.host.clusters) and self.is_upgraded and not self.options.upgrade_ok

    @property
    def apt(self) -> AptSet:
        return AptSet(
            name="nvidia-container-toolkit",
            url=f"{REPOSITORY}/stable/deb/{ARCHITECTURES.get(self.host.architecture, '')}",
            suite="/",
            key_url=f"{REPOSITORY}/gpgkey",
            fingerprint=self.options.versions["repositories"]["nvidia-container-toolkit"]["fingerprint"],
            packages=PACKAGES,
            version=self.version,
        )

    # The runtime nvidia of containerd.

    @property
    def drop_in(self) -> dict[str, Any]:
        """For configuration version 2, and for 3 and later."""
        default = {"default_runtime_name": "nvidia"} if self.options.default_runtime else {}
        own = {"BinaryName": RUNTIME, "SystemdCgroup": self.options.systemd_cgroup}
        runtimes = {"nvidia": {"runtime_type": "io.containerd.runc.v2", "options": own}}
        section = {"containerd": {**default, "runtimes": runtimes}}
        return {
            "name": DROP_IN,
            "settings": {
                "2": {"plugins": {"io.containerd.grpc.v1.cri": section}},
                "3": {"plugins": {"io.containerd.cri.v1.runtime": section}},
            },
        }

    # Devices.

    @property
    def names(self) -> tuple[str, ...]:
        """Devices of the CDI specification: 0 1 2:0 2:1."""
        found = (_DEVICE.fullmatch(line) for line in lines_of(self.survey.devices))
        return tuple(sorted({match[1] for match in found if match}))

    @property
    def offered(self) -> int:
        """GPUs of the CDI specification, each counted once."""
        return len({name.partition(":")[0] for name in self.names})

    @cached_property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """Numbers of MIG devices by the number of their GPU, as the driver lists them."""
        found: dict[str, list[str]] = {}
        for line in lines_of(self.survey.listed):
            if gpu := re.match(r"GPU ([0-9]+):", line):
                parts = found.setdefault(gpu[1], [])
            elif part := re.match(r" +MIG .*?Device +([0-9]+):", line):
                parts.append(part[1])
        return {gpu: tuple(parts) for gpu, parts in found.items()}

    @property
    def in_mig_mode(self) -> frozenset[str]:
        return frozenset(
            line.partition(",")[0] for line in lines_of(self.survey.modes) if line.strip().endswith(", Enabled")
        )

    @property
    def told(self) -> tuple[str, ...]:
        """Devices in the driver's list; empty if it was not queried."""
        found = []
        for gpu, parts in self.parts.items():
            whole = [] if gpu in self.in_mig_mode else [gpu]
            found += [f"{gpu}:{part}" for part in parts] or whole
        return tuple(sorted(found))

    @property
    def expected(self) -> int:
        """GPUs with devices to offer. A GPU in MIG mode without an instance has none."""
        modes = self.survey.modes
        if modes is None or modes.rc != 0:
            return len(self.facts.gpus)
        bare = self.in_mig_mode & {gpu for gpu, parts in self.parts.items() if not parts}
        return len(modes.lines) - len(bare)

    @property
    def reads_modes(self) -> bool:
        """Whether to read the modes, because a GPU that is split, or split differently, still counts as one."""
        return self.offered != len(self.facts.gpus) or any(gpu.may_split for gpu in self.facts.gpus)

    @property
    def writes_spec(self) -> bool:
        """A specification has at least one device."""
        differs = self.offered != self.expected or self.told not in ((), self.names)
        return self.expected > 0 and (not self.survey.has_spec or differs)

    @property
    def runs_container(self) -> bool:
        return self.expected > 0 and self.options.verify_container and "containerd" in self.options.runtimes
