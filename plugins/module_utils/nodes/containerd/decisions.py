# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans the role containerd: its package, settings, mirrors and proxy, and its removal.

nodes/containerd/drop_in.py decides how settings are added to containerd's configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...formats.toml import to_toml
from ..apt import dpkg
from ..apt.mirrors import hostname
from ..apt.sources import AptSet
from ..apt.versions import any_revision, fits, is_newer
from ..survey.files import Found, WantedFile
from ..survey.host import Host
from ..survey.program_output import Answer, lines_of
from .drop_in import MainFile, Paths

REPOSITORY = "https://download.docker.com/linux"
PACKAGE = "containerd.io"
OF_DISTRIBUTION = "containerd"
WRITTEN = "# Written by kubegpu.autoscale\n"
DROP_IN = "10-kubegpu.toml"
# Namespaces of Kubernetes and of the role's own check.
OWN_NAMESPACES = frozenset({"k8s.io", "kubegpu"})


@dataclass(frozen=True)
class ContainerdOptions:
    state: str
    version: str
    versions: Mapping[str, Any]
    systemd_cgroup: bool
    sandbox_image: str
    mirrored_registries: tuple[str, ...]
    image_mirror: str
    proxy: str
    no_proxy: tuple[str, ...]
    upgrade_ok: bool


@dataclass(frozen=True)
class ContainerdSurvey:
    """What was read on the server so far. An answer is None, and a search empty, until it was queried.

    runtimes:    programs of container runtimes from other packages than this collection's.
    packages:    dpkg's rows of containerd.io and of the distribution's containerd: name, state, version.
    found:       containerd's files.
    main:        its main configuration.
    plugins:     answer of `ctr plugins list`.
    purge:       apt's actions to remove the package.
    tasks:       folders of running containers.
    is_ours:     whether the package is pinned by this collection.
    before:      names of packages that were installed before that pin.
    programs:    paths of containerd that remain after its package was removed.
    pretends:    whether this is check mode.
    """

    runtimes: tuple[str, ...] = ()
    packages: Answer | None = None
    found: Found = field(default_factory=Found)
    main: str = ""
    plugins: Answer | None = None
    purge: Answer | None = None
    tasks: Found = field(default_factory=Found)
    is_ours: bool = False
    before: tuple[str, ...] = ()
    programs: Found = field(default_factory=Found)
    pretends: bool = False


@dataclass(frozen=True)
class Containerd:
    """The decisions, as properties; nodes/containerd/checks.py checks them."""

    host: Host
    options: ContainerdOptions
    paths: Paths
    survey: ContainerdSurvey
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_wanted(self) -> bool:
        return self.options.state == "present"

    # The package.

    @property
    def version(self) -> str:
        return any_revision(self.options.version or self.options.versions["packages"][PACKAGE])

    @cached_property
    def packages(self) -> dict[str, str]:
        """Versions of installed packages."""
        return dpkg.versions(self.survey.packages)

    @property
    def installed(self) -> str:
        return self.packages.get(PACKAGE, "")

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
    def others(self) -> tuple[str, ...]:
        """Runtimes that this one would replace or conflict with."""
        of_distribution = f"the distribution's package {OF_DISTRIBUTION}"
        return (*self.survey.runtimes, *((of_distribution,) if OF_DISTRIBUTION in self.packages else ()))

    @property
    def apt(self) -> AptSet:
        """Docker's repository has containerd.io, and is named after it."""
        url = f"{REPOSITORY}/{self.host.distribution.lower()}"
        return AptSet(
            name="docker",
            url=url,
            suite=self.host.release,
            components="stable",
            key_url=f"{url}/gpg",
            fingerprint=self.options.versions["repositories"]["docker"]["fingerprint"],
            packages=(PACKAGE,),
            version=self.version,
            services=("containerd.service",),
        )

    # Settings.

    @property
    def drop_in(self) -> dict[str, Any]:
        """The role's drop-in for each version of the configuration; 4 has the settings of 3."""
        image, registry = self.options.sandbox_image, {"config_path": self.paths.registries}
        runc = {"runtimes": {"runc": {"options": {"SystemdCgroup": self.options.systemd_cgroup}}}}
        # The folder of kubernetes-cni's plugins; distributions compile other defaults in.
        folder = "/opt/cni/bin"
        cri = {"sandbox_image": image, "registry": registry, "cni": {"bin_dir": folder}, "containerd": runc}
        images = {"pinned_images": {"sandbox": image}, "registry": registry}
        runtime = {"cni": {"bin_dirs": [folder]}, "containerd": runc}
        return {
            "name": DROP_IN,
            "settings": {
                "2": {"plugins": {"io.containerd.grpc.v1.cri": cri}},
                "3": {"plugins": {"io.containerd.cri.v1.images": images, "io.containerd.cri.v1.runtime": runtime}},
            },
        }

    # Mirrors of registries.

    @property
    def mirrors(self) -> tuple[str, ...]:
        return tuple(f"{self.paths.registries}/{name}/hosts.toml" for name in self.options.mirrored_registries)

    @property
    def mirror_files(self) -> tuple[WantedFile, ...]:
        if not (self.is_wanted and self.options.image_mirror):
            return ()
        names = zip(self.options.mirrored_registries, self.mirrors, strict=True)
        return tuple(WantedFile(path, self._mirror(name)) for name, path in names)

    def _mirror(self, registry: str) -> str:
        server = f"{self.options.image_mirror.rstrip('/')}/v2/{registry}"
        return WRITTEN + to_toml({"server": server, "capabilities": ["pull", "resolve"], "override_path": True})

    @property
    def mirrors_to_write(self) -> tuple[WantedFile, ...]:
        return tuple(file for file in self.mirror_files if not self.survey.found.is_as_wanted(file))

    @property
    def mirrors_unwanted(self) -> tuple[str, ...]:
        """Existing files that are not wanted. Their first line shows what wrote them."""
        wanted = {file.path for file in self.mirror_files}
        return tuple(path for path in self.mirrors if path in self.survey.found and path not in wanted)

    # The proxy.

    @property
    def uses_proxy(self) -> bool:
        return self.is_wanted and bool(self.options.proxy)

    @property
    def has_proxy(self) -> bool:
        return self.paths.proxy in self.survey.found

    @property
    def bypass(self) -> tuple[str, ...]:
        """Hosts that are reached without the proxy."""
        mirror = hostname(self.options.image_mirror)
        return ("localhost", "127.0.0.1", *((mirror,) if mirror else ()), *self.options.no_proxy)

    # Its removal.

    @property
    def main(self) -> MainFile:
        return MainFile(self.survey.main, self.paths)

    @property
    def before(self) -> tuple[str, ...]:
        return self.survey.before if self.survey.is_ours else ()

    @property
    def goes_along(self) -> tuple[str, ...]:
        """Packages that apt would remove together with containerd."""
        found = (re.match(r"Purg (\S+)", line) for line in lines_of(self.survey.purge))
        return tuple(match[1] for match in found if match and match[1] != PACKAGE)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces of running containers, except those of Kubernetes."""
        found = (re.search(r"\.task/([^/]+)/[^/]+$", path) for path in self.survey.tasks.entries)
        return tuple(dict.fromkeys(match[1] for match in found if match and match[1] not in OWN_NAMESPACES))

    @property
    def users(self) -> tuple[str, ...]:
        """Why a removal keeps containerd, one clause each."""
        before, along, namespaces = map(", ".join, (self.before, self.goes_along, self.namespaces))
        return (
            *((f"{before} was installed before this collection",) if before else ()),
            *((f"{along} would be removed with it",) if along else ()),
            *((f"containers run in its namespaces {namespaces}, not for Kubernetes",) if namespaces else ()),
            *((f"{self.paths.config} has existing settings",) if self.main.has_settings else ()),
        )

    @property
    def remaining(self) -> tuple[str, ...]:
        """Programs that this collection did not install. Check mode does not remove the collection's own."""
        own = self.survey.pretends and self.survey.is_ours
        return () if own else tuple(self.survey.programs.entries)

    @property
    def purges(self) -> bool:
        return not self.users

    @property
    def leaves_data(self) -> bool:
        """Whether images, containers and settings of others stay."""
        return bool(self.users or self.remaining)

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of the role, or of containerd after its package is removed. They are removed if they are empty."""
        registries = [path.rpartition("/")[0] for path in self.mirrors]
        own = [*registries, self.paths.registries]
        left = [] if self.leaves_data else ["/etc/cni", "/var/lib/cni", self.paths.config_folder]
        return (*own, *left, self.paths.proxy.rpartition("/")[0])
