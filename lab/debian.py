"""What comes from Debian: base systems for the nodes and the images, runc and haproxy.

Of stable suites alone. Their mirrors keep them for years, and archive.debian.org, which LAB_DEBIAN_MIRROR may name, for
ever; a suite that moves would take a pinned program away from under a released tag.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from lab.artifacts import Artifact, Shell

THIS = Path(__file__)
SUITE = "bookworm"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

# A server as its installer leaves it: nothing that a role is meant to bring.
NODE = [
    "systemd",
    "systemd-sysv",
    "dbus",
    "python3",
    "python3-apt",
    "sudo",
    "iproute2",
    "procps",
    "ca-certificates",
    "kmod",
    "mount",
    "util-linux",
]

# Under those of the images that need more than one static binary, and under the mirror.
USERLAND = ["iptables", "conntrack", "kmod", "python3-minimal", "libpython3-stdlib", "ca-certificates", "nginx-light"]

# What the roles install from the distribution, and what servers run beside it, by component; the mirror serves it with
# its dependencies.
FROM_DISTRIBUTION = {
    "main": [
        "conntrack",
        "iptables",
        "kmod",
        "ca-certificates",
        "infiniband-diags",
        "unattended-upgrades",
        "openssh-server",
        "nftables",
    ],
    "contrib": ["nvidia-kernel-common"],
}

# Debian's own NVIDIA driver by suite, with the headers of the kernel that its module is built for.
_DRIVER = [
    "libcuda1",
    "libnvidia-ml1",
    "nvidia-smi",
    "libnvidia-cfg1",
    "nvidia-persistenced",
    "linux-headers-cloud-amd64",
]
# The open modules of trixie stay in the view, since how they fail to build is a test.
DRIVERS = {
    "bookworm": [*_DRIVER, "nvidia-kernel-dkms"],
    "trixie": [*_DRIVER, "nvidia-kernel-dkms", "nvidia-open-kernel-dkms"],
}


def root_filesystem(name: str, suite: str, packages: list[str], expected: int) -> Artifact:
    """`root.tar`: a Debian with these packages."""

    def build(out: Path, run: Shell) -> None:
        source = f"deb [signed-by={KEYRING}] {mirror()} {suite} main"
        run(
            *(
                "mmdebstrap",
                "--quiet",
                "--variant=apt",
                "--aptopt=Acquire::Retries 3",
                f"--include={','.join(packages)}",
            ),
            *(
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=path-exclude=/usr/share/man/*",
                "--dpkgopt=path-exclude=/usr/share/locale/*",
            ),
            '--customize-hook=rm "$1/etc/apt/sources.list"',  # a server's mirror is its site's affair
            *(suite, out / "root.tar", source),
        )

    return Artifact(name, build, sources=(THIS,), facts=(suite, *packages), expected=expected)


def node_filesystem(suite: str = SUITE) -> Artifact:
    return root_filesystem(f"node-root-{suite}", suite, NODE, expected=60)


def userland() -> Artifact:
    return root_filesystem("userland", SUITE, USERLAND, expected=60)


def unpacked(name: str, packages: Sequence[str]) -> Artifact:
    """The content of packages of the stable suite, unpacked side by side as below `/`."""

    def build(out: Path, run: Shell) -> None:
        with _Apt(out / ".apt", SUITE) as apt:
            run("apt-get", *apt.options, "download", *packages, cwd=apt.home)
            for archive in sorted(apt.home.glob("*.deb")):
                run("dpkg", "-x", archive, out)

    return Artifact(name, build, sources=(THIS,), facts=(SUITE, *packages), expected=20)


def distribution_packages(node: Artifact, suite: str = SUITE) -> Artifact:
    """`COMPONENT/*.deb`: what the roles install from the distribution and a node does not have yet."""

    def build(out: Path, run: Shell) -> None:
        for component, packages in FROM_DISTRIBUTION.items():
            (out / component).mkdir()
            _download(out / component, run, node, packages, suite, everything=component != "main")

    return Artifact(f"distribution-packages-{suite}", build, sources=(THIS,), needs=(node,), expected=15)


def driver_packages(node: Artifact, suite: str) -> Artifact:
    """`*.deb`: Debian's own NVIDIA driver, and what its kernel module is built with and for."""

    def build(out: Path, run: Shell) -> None:
        _download(out, run, node, DRIVERS[suite], suite, everything=True)

    return Artifact(f"driver-packages-{suite}", build, sources=(THIS,), needs=(node,), expected=60)


def _download(
    out: Path, run: Shell, node: Artifact, packages: list[str], suite: str, *, everything: bool = False
) -> None:
    """Packages with what they depend on and a node does not have yet."""
    with _Apt(out / ".apt", suite, everything=everything) as apt:
        status = apt.home / "status"
        run("tar", "-xf", node.path / "root.tar", "-C", apt.home, "--transform=s,.*/,,", "./var/lib/dpkg/status")
        install = ("install", "--yes", "--download-only", "--no-install-recommends")
        run("apt-get", *apt.options, "-o", f"Dir::State::status={status}", *install, *packages)
        for package in apt.archives.glob("*.deb"):
            package.rename(out / package.name)


class _Apt:
    """An apt that shares nothing with the machine's own but the mirror; gone when left."""

    def __init__(self, home: Path, suite: str, *, everything: bool = False) -> None:
        self.home = home
        self.archives = home / "cache" / "archives"
        self.sources = _sources(suite, everything=everything)

    @property
    def options(self) -> list[str]:
        settings = {
            "Dir::Etc::sourcelist": self.home / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::Etc::preferencesparts": "-",
            "Dir::State": self.home / "state",
            "Dir::State::status": self.home / "status",
            "Dir::Cache": self.home / "cache",
            "APT::Sandbox::User": "root",
            "Acquire::Retries": "3",
            "APT::Get::List-Cleanup": "false",
            "Debug::NoLocking": "true",
        }
        return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]

    def __enter__(self) -> _Apt:
        for folder in (self.home / "state" / "lists" / "partial", self.archives / "partial"):
            folder.mkdir(parents=True)
        (self.home / "status").touch()
        (self.home / "sources.list").write_text("\n".join([*self.sources, ""]))
        subprocess.run(["apt-get", *self.options, "update", "--quiet"], check=True, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.home)


def _sources(suite: str, *, everything: bool) -> list[str]:
    """Lines of a sources.list: a suite's main component, or all components and the security updates as well."""
    if not everything:
        return [f"deb [signed-by={KEYRING}] {mirror()} {suite} main"]
    components = "main contrib non-free non-free-firmware"
    security = _listed("Debian-Security") or "http://security.debian.org/debian-security"
    return [
        f"deb [signed-by={KEYRING}] {mirror()} {suite} {components}",
        f"deb [signed-by={KEYRING}] {security} {suite}-security {components}",
    ]


def mirror() -> str:
    """The Debian mirror: LAB_DEBIAN_MIRROR, else that of the machine's own sources, else Debian's redirector."""
    return os.environ.get("LAB_DEBIAN_MIRROR") or _listed("Debian") or "http://deb.debian.org/debian"


@cache
def _listed(label: str) -> str:
    """Where the machine's own sources have the archive of this label; empty when nowhere."""
    argv = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    return next((uri for name, _, uri in (line.partition(" ") for line in lines) if name == label), "")
