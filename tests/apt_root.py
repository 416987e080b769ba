"""An empty root for the real apt: an index made of upstream's rows, a dpkg status, and simulated transactions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.upstream import Package, names_in

# Only they are made up for names that no row has: of the system, not of the driver.
_OF_DRIVERS = re.compile("nvidia|cuda|nvlsm|xnvctrl")
_RELATIONS = ("Pre-Depends", "Depends")
_CONFIG = """
Dir "{root}";
Dir::Etc::preferencesparts "preferences.d";
Dir::State::status "{root}/var/lib/dpkg/status";
Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";
APT::Architecture "amd64"; APT::Architectures {{ "amd64"; "i386"; }};
Acquire::Languages "none"; APT::Sandbox::User ""; Debug::NoLocking "true";
"""
_DONE = re.compile(r"^(Inst|Remv|Purg) (\S+?)(?::(\S+))? (?:\[\S+\] )?(?:\((\S+) .*\[(\S+)\]\))?", re.MULTILINE)


@dataclass(frozen=True)
class Installed:
    """One package of the dpkg status."""

    package: Package
    architecture: str = "amd64"
    want: str = "install"
    state: str = "installed"

    @property
    def key(self) -> tuple[str, str]:
        return self.package.name, self.architecture


@dataclass(frozen=True)
class Outcome:
    """What apt would do. problem: its message if it cannot; empty otherwise."""

    installs: Mapping[tuple[str, str], str]
    removes: frozenset[tuple[str, str]]
    problem: str = ""


class AptRoot:
    """A folder that apt takes for the system, with one repository."""

    def __init__(self, folder: Path, packages: Iterable[Package]) -> None:
        self.folder = folder
        self.packages = [*packages]
        self.packages += stubs(self.packages)
        self._by_version = {(package.name, package.version): package for package in self.packages}
        for part in (
            "etc/apt/apt.conf.d",
            "etc/apt/preferences.d",
            "etc/apt/sources.list.d",
            "var/lib/apt/lists/partial",
            "var/lib/dpkg",
            "var/cache/apt/archives/partial",
            "pool",
        ):
            (folder / part).mkdir(parents=True)
        (folder / "apt.conf").write_text(_CONFIG.format(root=folder))
        (folder / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{folder}/pool ./\n")
        (folder / "pool/Packages").write_text(
            "\n".join(_indexed(package, arch) for package in self.packages for arch in package.architectures)
        )
        self.status(())
        told = self.run("apt-get", "update")
        assert told.returncode == 0, told.stdout + told.stderr

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "APT_CONFIG": str(self.folder / "apt.conf"), "LC_ALL": "C.UTF-8"}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    def status(self, installed: Iterable[Installed]) -> str:
        text = "\n".join(_status(row) for row in installed)
        (self.folder / "var/lib/dpkg/status").write_text(text)
        return text

    def pin(self, text: str) -> None:
        (self.folder / "etc/apt/preferences.d/pin").write_text(text)

    def simulate(self, argv: Sequence[str]) -> Outcome:
        """Of an `apt-get ... install ...`."""
        told = self.run(argv[0], "--simulate", *argv[1:])
        if told.returncode:
            reasons = told.stdout.partition("unmet dependencies:\n")[2] or told.stdout
            return Outcome({}, frozenset(), f"{reasons}{told.stderr}".strip())
        installs, removes = {}, set()
        for verb, name, arch, version, of in _DONE.findall(told.stdout):
            key = (name, arch or (of if of in ("amd64", "i386") else "amd64"))
            if verb == "Inst":
                installs[key] = version
            else:
                removes.add(key)
        return Outcome(installs, frozenset(removes - installs.keys()))

    def after(self, installed: Iterable[Installed], outcome: Outcome) -> tuple[Installed, ...]:
        """The status when that is done."""
        rows = {row.key: row for row in installed if row.key not in outcome.removes}
        for (name, arch), version in outcome.installs.items():
            package = self._by_version[name, version]
            old = rows.get((name, arch))
            rows[name, arch] = Installed(package, arch, old.want if old else "install")
        fixed = (replace(row, state="installed") for row in rows.values())
        return tuple(sorted(fixed, key=lambda row: row.key))

    def closure(self, wanted: Iterable[tuple[str, str]], installed: Iterable[Installed] = ()) -> list[Installed]:
        """Packages by name and version, and what they depend on: the first alternative, of the same version if any."""
        rows = {row.key: row for row in installed}
        todo = [(self._by_version[key], "amd64") for key in wanted]
        while todo:
            package, arch = todo.pop()
            arch = arch if arch in package.architectures else package.architectures[0]
            if (package.name, arch) in rows:
                continue
            rows[package.name, arch] = Installed(package, arch)
            there = {name for row in rows.values() for name in (row.package.name, *row.package.provides)}
            for relation in _RELATIONS:
                for choice in names_in(package.fields.get(relation, "")):
                    if not there.intersection(choice):
                        todo.append((self._best(choice, package.version), "amd64"))
        return list(rows.values())

    def _best(self, choice: Sequence[str], version: str) -> Package:
        found = [
            package for name in choice for package in self.packages if name == package.name or name in package.provides
        ]
        assert found, f"nothing is {' or '.join(choice)}"
        return next((package for package in found if package.version == version), found[-1])


def stubs(packages: Iterable[Package]) -> list[Package]:
    """Packages of the system that others depend on."""
    there = {name for package in packages for name in (package.name, *package.provides)}
    wanted = {
        choice[0]
        for package in packages
        for relation in _RELATIONS
        for choice in names_in(package.fields.get(relation, ""))
        if not there.intersection(choice)
    }
    missing = sorted(name for name in wanted if _OF_DRIVERS.search(name) and not name.startswith("linux-"))
    assert not missing, f"no row has {', '.join(missing)}"
    return [stub(name) for name in sorted(wanted)]


def stub(name: str, version: str = "99:1", **fields: str) -> Package:
    given = {field.replace("_", "-"): text for field, text in fields.items()}
    return Package(
        name=name, version=version, repository="", source="", date="", mark="", fields={"Multi-Arch": "foreign"} | given
    )


def is_there() -> bool:
    return all(shutil.which(program) for program in ("apt-get", "apt-cache", "dpkg-query"))


def _indexed(package: Package, arch: str) -> str:
    where = {"Filename": f"./{package.name}_{arch}.deb", "Size": "1", "SHA256": "0" * 64}
    return _stanza(package, arch, where)


def _status(row: Installed) -> str:
    return _stanza(row.package, row.architecture, {"Status": f"{row.want} ok {row.state}"})


def _stanza(package: Package, arch: str, more: Mapping[str, str]) -> str:
    fields = {"Package": package.name, "Version": package.version, "Architecture": arch, "Maintainer": "upstream"}
    own = package.i386 if arch == "i386" else {}
    text = {**fields, **more, "Description": "of upstream", **package.fields, **own}
    return "".join(f"{field}: {' '.join(value.split())}\n" for field, value in text.items() if value)
