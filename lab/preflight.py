"""Checks whether this machine can run a target, before anything changes, and installs what is missing.

    preflight.py fits                exit status 0: this Python can make the virtual environment
    preflight.py env REQUIREMENTS    the virtual environment, on any system
    preflight.py gates REQUIREMENTS  a browser as well
    preflight.py lab REQUIREMENTS    the machine of the lab as well: Debian packages, kernel modules, podman

The Makefile runs it with the machine's Python, so it only uses the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
VENV = CHECKOUT / ".venv"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubegpu-lab"
# podman's settings: those of lab/nodes, and the runtime that this machine has.
ENGINE = CHECKOUT / "build" / "containers.conf"

PYTHON = ((3, 11), (3, 13))  # oldest and newest that the tests were run on, by the pins of requirements-lab.txt
MEMORY_GIB = 6
# Disk space in GiB. A cold build leaves 4 of compiled packages, 2.3 of modules and 2.3 of artifacts. A full cache still
# changes. A lab of two servers writes 6, and its containers may be on another disk.
CACHE_GIB = 9
CACHE_CHANGES_GIB = 4
CONTAINERS_GIB = 6
# Minutes of a first build: with one processor, and the part that more processors do not shorten.
BUILD_MINUTES, FIXED_MINUTES = 20, 3
# Number of bytecode files, some 5 KiB each, to limit outdated ones. A run of all tests needs some 2,000.
MOST_KEPT = 10_000

# Debian package -> a file or program that shows that it is installed: container engine and tools, and what builds
# artifacts.
PODMAN = {
    "podman": "podman",
    "netavark": "/usr/lib/podman/netavark",
    "aardvark-dns": "/usr/lib/podman/aardvark-dns",
    "iptables": "iptables",
    "openssh-client": "ssh",
}
BUILDERS = {
    "mmdebstrap": "mmdebstrap",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "dpkg-dev": "dpkg-scanpackages",
    "apt-utils": "apt-ftparchive",
    "gpg": "gpg",
    "gcc": "gcc",
    "libc6-dev": "/usr/include/stdio.h",
    "git": "git",
}
# Programs of a browser's package or another one; one of each is enough.
BROWSER = {
    "chromium": ("chromium", "google-chrome", "chromium-browser"),
    "chromium-driver": ("chromedriver",),
    "fonts-dejavu-core": ("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",),
}
# Container runtimes; the first is installed if there is none. Docker's packages include one, and another
# package with it would remove Docker.
RUNTIMES = ("runc", "crun")

# The first release with podman 4 and its network programs.
FIRST_RELEASES = {"debian": (12,), "ubuntu": (24, 4)}

# Kernel modules that servers cannot load themselves -> a file that exists once one is loaded.
KERNEL = {
    "overlay": "/sys/module/overlay",
    "br_netfilter": "/proc/sys/net/bridge/bridge-nf-call-iptables",
    "nf_conntrack": "/proc/sys/net/netfilter/nf_conntrack_max",
}

# AppArmor's, with their modes.
PROFILES = Path("/sys/kernel/security/apparmor/profiles")

APT = ("-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300")


CONFINED = (
    "AppArmor enforces the profile unix-chkpwd: if logins to servers with Debian 13 or ubuntu-26.04 fail with "
    '"Authentication service cannot retrieve authentication info", run `aa-disable unix-chkpwd`'
)


class Refusal(Exception):
    """Why it is not possible: the thing, the reason, the next step. One sentence per line."""


@dataclass(frozen=True)
class Machine:
    """Facts of a machine.

    release:       ID and VERSION_ID of os-release.
    free_gib:      free space by disk; `cache_disk` and `containers_disk` are two of them, or one twice.
    overlay_below: whether podman's storage itself lies on an overlay, as in a container.
    drops:         whether the firewall drops forwarded packets by default, as with Docker and ufw.
    confines_pam:  whether AppArmor confines the helper of PAM, in the servers' containers as well.
    locked:        chains of nftables that filter forwarded packets and accept no rule, with the kernel's reason.
    """

    system: str = "Linux"
    architecture: str = "x86_64"
    python: tuple[int, ...] = (3, 11)
    root: bool = True
    release: tuple[str, str] = ("debian", "12")
    apt: bool = True
    missing: Sequence[str] = ()
    cores: int = 2
    memory_gib: float = 16.0
    cache_disk: str = "/"
    cache_filled: bool = False
    containers_disk: str = "/"
    free_gib: Mapping[str, float] = field(default_factory=lambda: {"/": 100.0})
    overlay_below: bool = False
    drops: bool = False
    confines_pam: bool = False
    locked: Mapping[str, str] = field(default_factory=dict)


def python_refusals(machine: Machine) -> list[str]:
    """Why no virtual environment can be created; empty if it can."""
    oldest, newest = (".".join(map(str, version)) for version in PYTHON)
    found = []
    if not PYTHON[0] <= machine.python[:2] <= PYTHON[1]:
        has = ".".join(map(str, machine.python))
        found.append(f"Python {oldest} to {newest} is needed, this is {has}: call make with PYTHON=python{newest}")
    return found


def fits() -> bool:
    """Whether this Python can create the virtual environment without installing anything."""
    return PYTHON[0] <= sys.version_info[:2] <= PYTHON[1] and importlib.util.find_spec("ensurepip") is not None


def lab_refusals(machine: Machine) -> list[str]:
    """All reasons why the lab cannot run here, each with the next step; empty if it can."""
    if (machine.system, machine.architecture) != ("Linux", "x86_64"):
        return [
            f"the lab needs Linux on x86_64, this is {machine.system} on {machine.architecture}: "
            "run it on such a machine or a virtual one; `make quick` runs anywhere"
        ]
    found = []
    if not machine.root:
        found.append("the lab boots servers in containers and needs root: run it with sudo or as root")
    name, version = machine.release
    first = FIRST_RELEASES.get(name)
    if first and version and tuple(map(int, version.split("."))) < first:  # Debian's next release has no number yet
        needed = ".".join(f"{part:02}" for part in first)
        found.append(
            f"{name} {version} has neither podman 4 nor netavark: "
            f"use {name} {needed} or newer, or a virtual machine with it"
        )
    if machine.missing and not machine.apt:
        found.append(
            f"{', '.join(machine.missing)} not found, and no apt-get to install with: "
            "install them, or use Debian 12 or Ubuntu 24.04"
        )
    if machine.overlay_below:
        found.append(
            "what the lab's containers write lies on an overlay file system, on which no other can be put: "
            "mount a volume at /var/lib/containers, or without podman at ~/.cache, of the container that this runs in"
        )
    found += [
        f"the chain {chain} filters the packets of the lab's pods, and a rule cannot be added ({reason}): "
        "stop the firewall that owns it while the lab is up, for example by `systemctl stop firewalld`"
        for chain, reason in machine.locked.items()
    ]
    return found + _disk_refusals(machine) + _memory_refusals(machine)


def _disk_refusals(machine: Machine) -> list[str]:
    needs: dict[str, float] = {}
    for disk, gib in (
        (machine.cache_disk, CACHE_CHANGES_GIB if machine.cache_filled else CACHE_GIB),
        (machine.containers_disk, CONTAINERS_GIB),
    ):
        needs[disk] = needs.get(disk, 0) + gib
    return [
        f"{gib} GiB of disk are needed on {disk}, {machine.free_gib[disk]:.0f} are free: "
        "free some, or move the cache (XDG_CACHE_HOME) or podman's storage (storage.conf)"
        for disk, gib in needs.items()
        if machine.free_gib[disk] < gib
    ]


def _memory_refusals(machine: Machine) -> list[str]:
    if machine.memory_gib >= MEMORY_GIB:
        return []
    return [f"{MEMORY_GIB} GiB of memory are needed, {machine.memory_gib:.1f} are available: stop what uses it"]


def announcement(machine: Machine, modules: Sequence[str]) -> list[str]:
    """What a first build takes and changes; empty if the cache is filled.

    modules: kernel modules that will be loaded.
    """
    if machine.cache_filled:
        return []
    minutes = FIXED_MINUTES + round(BUILD_MINUTES / machine.cores)
    changes = [
        *([f"installs {', '.join(machine.missing)}"] if machine.missing else []),
        *([f"loads the kernel modules {', '.join(modules)}"] if modules else []),
        "adds a rule for each lab to iptables"
        + (", since the policy of FORWARD is DROP here (Docker, ufw)" if machine.drops else ""),
    ]
    return [
        f"first run here: builds Kubernetes and the rest in some {minutes} minutes ({machine.cores} processors), "
        f"up to {CACHE_GIB} GiB in {CACHE}; later runs start from there",
        f"it {', '.join(changes)}; docs/lab.md lists all. "
        "`make lab-down` removes a lab, `make lab-clean` the cache as well",
        *([CONFINED] if machine.confines_pam else []),
    ]


def removals(simulated: str) -> list[str]:
    """The packages that apt would remove, read from what `apt-get --simulate` prints."""
    return re.findall(r"^Remv (\S+)", simulated, re.MULTILINE)


def kernel_lacks(there: Mapping[str, bool]) -> list[str]:
    """The modules to load; `there` says of each file of KERNEL whether it exists."""
    return [module for module, file in KERNEL.items() if not there[file]]


def look() -> Machine:
    """This machine."""
    system, architecture = platform.system(), platform.machine()
    if (system, architecture) != ("Linux", "x86_64"):
        return Machine(system=system, architecture=architecture, python=sys.version_info[:3])
    storage = _existing(_storage())
    cache = _existing(CACHE)
    return Machine(
        python=sys.version_info[:3],
        root=os.geteuid() == 0,
        release=_release(),
        apt=bool(program("apt-get")),
        missing=missing(),
        cores=os.cpu_count() or 1,
        memory_gib=memory_gib(),
        cache_disk=_mount(cache),
        cache_filled=(CACHE / "go-build").exists() or any(CACHE.glob("images-*")),
        containers_disk=_mount(storage),
        free_gib={_mount(path): shutil.disk_usage(path).free / 2**30 for path in (cache, storage)},
        overlay_below=_file_system(cache if bare() else storage) == "overlay",
        drops=_drops(),
        confines_pam=_confines_pam(),
        locked=_locked(),
    )


def program(name: str) -> str | None:
    """Path of a program: after a plain `su`, root's PATH lacks the folders of root."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))


def _confines_pam() -> bool:
    with contextlib.suppress(OSError):
        return "unix-chkpwd (enforce)" in PROFILES.read_text().splitlines()
    return False


def _drops() -> bool:
    tool = program("iptables")
    listed = subprocess.run([tool, "--list-rules", "FORWARD"], capture_output=True, text=True).stdout if tool else ""
    return "-P FORWARD DROP" in listed.splitlines()


def _locked() -> dict[str, str]:
    nft = program("nft")
    tried = {chain: nft_insert(nft, chain, "kubegpu", "try", "--check") for chain in nft_chains(nft)} if nft else {}
    return {" ".join(chain): done.stderr.strip() for chain, done in tried.items() if done.returncode}


def nft_chains(nft: str) -> list[tuple[str, str, str]]:
    """Family, table and name of the chains for forwarded packets, but for those of iptables and of podman."""
    return [
        (chain["family"], chain["table"], chain["name"])
        for chain in nft_objects(nft, "chain", "chains")
        if chain.get("hook") == "forward"
        and chain.get("type") == "filter"
        and chain["family"] in ("ip", "inet")
        and (chain["family"], chain["table"], chain["name"]) != ("ip", "filter", "FORWARD")
        and chain["table"] != "netavark"
    ]


def nft_objects(nft: str, kind: str, *what: str) -> list[dict[str, Any]]:
    """The objects of a kind that `nft list` prints."""
    done = subprocess.run([nft, "--json", "--handle", "list", *what], capture_output=True, text=True)
    listed = json.loads(done.stdout)["nftables"] if done.returncode == 0 else []
    return [row[kind] for row in listed if kind in row]


def nft_insert(
    nft: str, chain: tuple[str, str, str], bridge: str, comment: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """Insert a rule that accepts packets which stay on a bridge."""
    rule = ("iifname", bridge, "oifname", bridge, "accept", "comment", f'"{comment}"')
    return subprocess.run([nft, *options, "insert", "rule", *chain, *rule], capture_output=True, text=True)


def runtime() -> str | None:
    """Name of the container runtime."""
    return next(filter(program, RUNTIMES), None)


def bare() -> bool:
    """Whether the lab runs without a container engine: on request, or after unpacking if there is none."""
    wish = os.environ.get("LAB_ENGINE")
    return wish == "bare" or (not wish and unpacked() and not program("podman"))


def unpacked() -> bool:
    """Whether `make lab-unpack` has filled the cache, so that nothing must be built."""
    return (CACHE / "unpacked").exists()


def missing() -> list[str]:
    needed = ({} if bare() else PODMAN) | ({} if unpacked() else BUILDERS)
    found = [
        package
        for package, sign in needed.items()
        if not (Path(sign).exists() if sign.startswith("/") else program(sign))
    ]
    if not bare() and not runtime():
        found.append(RUNTIMES[0])
    return found if unpacked() or importlib.util.find_spec("ensurepip") else [*found, "python3-venv"]


def browser_missing() -> list[str]:
    return [
        package
        for package, signs in BROWSER.items()
        if not any(Path(sign).exists() if sign.startswith("/") else program(sign) for sign in signs)
    ]


def get_browser(machine: Machine) -> None:
    """Raises: Refusal if it is missing and cannot be installed."""
    if lacking := browser_missing():
        if not (machine.root and machine.apt):
            raise Refusal(
                f"{', '.join(lacking)} not found, to show pages and reports in a browser: "
                f"run `apt-get install {' '.join(lacking)}` as root"
            )
        install(lacking)


def install(packages: Sequence[str]) -> None:
    """Install Debian packages, without removing any."""
    call = ("apt-get", *APT, "install", "--yes", "--no-install-recommends")
    print(f"installing system packages: {' '.join(packages)}", flush=True)
    _run(("apt-get", *APT, "update", "-qq"), "apt-get could not read its mirrors' lists", "see that they answer")
    simulated = subprocess.run((*call, "--simulate", *packages), capture_output=True, text=True)
    if going := removals(simulated.stdout):
        raise Refusal(
            f"apt would remove {', '.join(going)} to install {', '.join(packages)}, and the lab removes nothing: "
            "install them in a way that keeps both, or use another machine"
        )
    _run(
        (*call, "--quiet", "--quiet", "--no-remove", *packages),
        f"apt-get could not install {', '.join(packages)}",
        "see that its mirrors answer and have them",
    )


def load(modules: Sequence[str]) -> None:
    """Load kernel modules until the machine restarts, because servers in containers cannot."""
    print(f"loading kernel modules: {' '.join(modules)}", flush=True)
    for module in modules:
        done = subprocess.run([program("modprobe") or "modprobe", module], capture_output=True, text=True)
        if done.returncode:
            raise Refusal(
                f"the kernel {platform.release()} has no module {module} ({done.stderr.strip()}): "
                "install the kernel's modules (Ubuntu: linux-modules-extra-$(uname -r)), "
                "or load it on the machine that this container runs on"
            )


def engine() -> None:
    """Write podman's settings with the installed runtime. New ones are tested first: see _try."""
    settings = (CHECKOUT / "lab" / "nodes" / "containers.conf").read_text()
    settings = settings.replace("[engine]\n", f'[engine]\nruntime = "{runtime() or RUNTIMES[0]}"\n')
    if ENGINE.exists() and ENGINE.read_text() == settings:
        return
    fresh = ENGINE.with_suffix(".new")
    fresh.write_text(settings)
    _try(fresh)
    fresh.replace(ENGINE)


def _try(settings: Path) -> None:
    """Start one container like the lab's servers: privileged, with a network and its own cgroup.

    In a container or on a hardened machine, this shows a problem in a second, not after minutes of compiling.
    """
    with tempfile.TemporaryDirectory() as root:
        for folder in ("bin", "sbin", "lib", "lib64"):
            if Path("/", folder).is_symlink():
                Path(root, folder).symlink_to(f"usr/{folder}")
        container = ("run", "--rm", "--privileged", "--cgroupns=private", "--systemd=false", "--volume=/usr:/usr:ro")
        done = subprocess.run(
            ["podman", *container, "--rootfs", root, "/usr/bin/true"],
            env=os.environ | {"CONTAINERS_CONF": str(settings)},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Refusal(
            f"podman cannot start a privileged container with a network here ({reason}): "
            "if this is a container, start it with --privileged; "
            "else see `podman info`, and that the kernel has NAT (nf_tables or iptable_nat)"
        )


def filled(requirements: Path) -> bool:
    """Whether the virtual environment has these requirements already."""
    stamp = VENV / f".{requirements.stem}"
    return stamp.exists() and stamp.read_text() == _resolved(requirements)


def fill(requirements: Path) -> None:
    """Make the virtual environment with these requirements."""
    if not importlib.util.find_spec("ensurepip"):
        raise Refusal(
            f"{sys.executable} makes no virtual environments: install python3-venv, or name another by PYTHON="
        )
    print(f"filling .venv from {requirements.name}, about a minute", flush=True)
    if not (VENV / "bin" / "pip").exists():
        venv.create(VENV, with_pip=True)
    pip = (VENV / "bin" / "pip", "--disable-pip-version-check", "--retries", "5", "--timeout", "30")
    _run(
        (*pip, "install", "--quiet", "--no-compile", "--requirement", requirements),  # what is used is compiled then
        f"pip could not install {requirements.name}",
        "see that the package index answers (PIP_INDEX_URL names another)",
    )
    stamp(requirements)


def stamp(requirements: Path) -> None:
    """Record that the virtual environment has these requirements."""
    (VENV / f".{requirements.stem}").write_text(_resolved(requirements))


def link_collection() -> None:
    """Link the checkout as a collection in the virtual environment."""
    collection = VENV / "collections" / "ansible_collections" / "kubegpu" / "autoscale"
    collection.parent.mkdir(parents=True, exist_ok=True)
    if not collection.is_symlink():
        collection.symlink_to(CHECKOUT)


def keep_bytecode() -> None:
    """Bytecode of Ansible's modules, here and on the lab's servers, and of its templates, only here."""
    for name in ("zip-bytecode", "template-bytecode"):
        (VENV / name).mkdir(exist_ok=True)
        kept = list((VENV / name).iterdir())
        for file in kept if len(kept) > MOST_KEPT else []:
            file.unlink(missing_ok=True)
    text = f"{CHECKOUT / 'lab' / 'nodes' / 'python'}\nimport zip_bytecode\nimport template_bytecode\n"
    for packages in (VENV / "lib").glob("python*/site-packages"):
        file = packages / "zip_bytecode.pth"
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def _resolved(requirements: Path) -> str:
    """The text of a requirements file, with that of the files it names."""
    text = requirements.read_text()
    named = re.findall(r"^-r (\S+)", text, re.MULTILINE)
    return "".join([text, *(_resolved(requirements.parent / name) for name in named)])


def _run(argv: Sequence[str | Path], failed: str, step: str) -> None:
    """Run a command that needs the network. Raises Refusal when it fails."""
    done = subprocess.run(
        argv,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        said = [line for line in done.stderr.strip().splitlines() if re.match(r"E:|ERROR:", line)]
        raise Refusal(f"{failed} ({(said or ['no reason given'])[-1]}): {step}, and run it again")


def _release() -> tuple[str, str]:
    with contextlib.suppress(OSError):
        lines = Path("/etc/os-release").read_text().splitlines()
        fields = dict(line.split("=", 1) for line in lines if "=" in line)
        return fields.get("ID", "").strip('"'), fields.get("VERSION_ID", "").strip('"')
    return "", ""


def _storage() -> Path:
    if program("podman"):
        env = {name: value for name, value in os.environ.items() if name != "CONTAINERS_CONF"}  # not written yet
        asked = subprocess.run(
            ["podman", "info", "--format", "{{.Store.GraphRoot}}"], env=env, capture_output=True, text=True
        )
        if asked.returncode == 0:
            return Path(asked.stdout.strip())
    return Path("/var/lib/containers")


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _mount(path: Path) -> str:
    path = path.resolve()
    return str(path) if path.is_mount() or path == path.parent else _mount(path.parent)


def _file_system(path: Path) -> str:
    """The type of the file system that a path lies on, as /proc/mounts calls it."""
    mount = _mount(path)
    types = [line.split()[2] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[1] == mount]
    return types[-1] if types else ""


def memory_gib() -> float:
    """Available memory, of the machine and of its cgroup."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) / 2**20
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):
            cgroup = Path("/sys/fs/cgroup")
            left = int((cgroup / limit).read_text()) - int((cgroup / used).read_text())
            available = min(available, left / 2**30)
    return available


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Two parallel runs of make must fill an environment one after the other."""
    ENGINE.parent.mkdir(exist_ok=True)
    with (ENGINE.parent / "preflight.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def prepare(machine: Machine) -> None:
    """Prepare this machine for the lab. Raises Refusal."""
    modules = kernel_lacks({file: Path(file).exists() for file in KERNEL.values()})
    for line in announcement(machine, modules):
        print(line, flush=True)
    if machine.missing:
        install(machine.missing)
    if modules:
        load(modules)
    if not bare():
        engine()


def main(what: str, name: str) -> None:
    requirements = CHECKOUT / name
    machine = look()
    try:
        with _alone():
            reasons = [] if filled(requirements) else python_refusals(machine)
            if reasons := reasons + (lab_refusals(machine) if what == "lab" else []):
                raise Refusal("\n".join(reasons))
            if what == "lab":
                prepare(machine)
            if what == "gates":
                get_browser(machine)
            if not filled(requirements):
                fill(requirements)
            link_collection()
            keep_bytecode()
    except Refusal as refused:
        sys.exit("\n".join(f"preflight: {line}" for line in str(refused).splitlines()))


if __name__ == "__main__":
    if sys.argv[1:] == ["fits"]:
        sys.exit(not fits())
    main(*sys.argv[1:])
