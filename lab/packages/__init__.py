"""The apt mirror: upstream's packages, the real programs inside, and the distribution's, signed by the lab's key."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from lab import upstream
from lab.artifacts import Artifact, Shell
from lab.programs import go, go_env
from lab.versions import CHECKOUT, names, recipe

HERE = Path(__file__).parent
KEY_OWNER = "kubegpu lab mirror"
DEBIAN = Path("ftp.debian.org/debian")


def apt_key() -> Artifact:
    """`home/`: a GnuPG home with a key of this machine; `key.asc`: its public half."""

    def build(out: Path, run: Shell) -> None:
        home = out / "home"
        home.mkdir(mode=0o700)
        gpg = ("gpg", "--homedir", home, "--batch", "--yes")
        run(*gpg, "--passphrase", "", "--quick-generate-key", KEY_OWNER, "ed25519", "sign", "never")
        run(*gpg, "--armor", "--output", out / "key.asc", "--export", KEY_OWNER)
        run("gpgconf", "--homedir", home, "--kill", "all")

    return Artifact("apt-key", build, facts=(KEY_OWNER,), expected=2)


def toolkit_units() -> Artifact:
    """The container toolkit's systemd units, as its Go module has them."""
    folder = CHECKOUT / "lab" / "programs" / "nvidia"
    module = "github.com/NVIDIA/nvidia-container-toolkit"

    def build(out: Path, run: Shell) -> None:
        answer = subprocess.run(
            [go(), "mod", "download", "-json", f"{module}@v{names()['nvidia-container-toolkit']}"],
            cwd=folder,
            env=os.environ | go_env(),
            check=True,
            capture_output=True,
            text=True,
        )
        for unit in (Path(json.loads(answer.stdout)["Dir"]) / "deployments" / "systemd").glob("*.*"):
            shutil.copyfile(unit, out / unit.name)

    return Artifact("toolkit-units", build, facts=(module, names()["nvidia-container-toolkit"]), expected=2)


def apt_mirror(
    name: str,
    repositories: Iterable[str],
    key: Artifact,
    contents: Mapping[str, Artifact],
    *,
    distribution: Artifact | None = None,
    suite: str = "",
    first: Artifact | None = None,
) -> Artifact:
    """`<upstream host>/<path>`: a signed repository each, and Debian's `suite` with the packages of `distribution`.

    What `first` has, another mirror, is there as well, by hard links. `contents` are the artifacts that recipes name.
    """
    wanted = sorted(name for name in repositories if upstream.repositories()[name].path)

    def build(out: Path, run: Shell) -> None:
        if first:
            shutil.copytree(first.path, out, copy_function=os.link, symlinks=True, dirs_exist_ok=True)
        for repository in (upstream.repositories()[name] for name in wanted):
            suite_of = Path("dists", repository.suite) if repository.suite else Path()
            if not (out / repository.path / suite_of / "InRelease").exists():
                _add_repository(out, repository, key, contents, run)
        if distribution and not (out / DEBIAN / "dists" / suite / "InRelease").exists():
            _add_distribution(out, suite, distribution, key, run)

    needs = tuple(filter(None, (key, first, distribution, *contents.values())))
    return Artifact(
        name,
        build,
        sources=(HERE, *sorted(upstream.HERE.glob("*.yml"))),
        facts=(*wanted, suite),
        needs=needs,
        expected=15,
    )


@cache
def recipes() -> dict[str, Any]:
    """What goes into a package, by its name."""
    return recipe(HERE / "packages.yml")["packages"]


def carried() -> list[upstream.Package]:
    """Upstream's packages that a mirror has: those of a release that a recipe makes."""
    return [
        package
        for package in upstream.packages()
        if package.name in recipes()
        and package.upstream in recipes()[package.name].get("releases", [package.upstream])
        and upstream.repositories()[package.repository].path
    ]


def _add_repository(
    out: Path, repository: upstream.Repository, key: Artifact, contents: Mapping[str, Artifact], run: Shell
) -> None:
    pool = out / repository.path / _place(repository.suite)
    pool.mkdir(parents=True, exist_ok=True)
    for package in carried():
        if package.repository == repository.name:
            row = _of_release(recipes()[package.name], package.upstream)
            start = [unit for unit, state in package.units.items() if state == "enabled"]
            fields = _fields(package, row)
            _make_package(package.name, package.version, fields, row, start, pool, contents, run)
    for name, row in recipe(HERE / "packages.yml")["ours"].items():
        if row["repository"] == repository.name:
            _make_package(name, "1", {}, row, [], pool, contents, run)
    _index(out / repository.path, repository.suite, {repository.component: _place(repository.suite)}, {}, key, run)


def _fields(package: upstream.Package, row: Mapping[str, Any]) -> dict[str, str]:
    """Upstream's fields, but for what the recipe leaves out of Depends and adds to it."""
    depends = [
        relation.strip()
        for relation in package.fields.get("Depends", "").split(",")
        if relation.strip() and relation.split()[0] not in row.get("without", [])
    ]
    depends += filter(None, [row.get("besides")])
    rest = {name: text for name, text in package.fields.items() if name != "Depends"}
    return rest | ({"Depends": ", ".join(depends)} if depends else {})


def _add_distribution(out: Path, suite: str, distribution: Artifact, key: Artifact, run: Shell) -> None:
    """Debian's own repository: a folder of the artifact is a component."""
    root = out / DEBIAN
    components = {}
    for folder in sorted(distribution.path.iterdir()):
        components[folder.name] = f"pool/{suite}/{folder.name}"
        pool = root / components[folder.name]
        pool.mkdir(parents=True)
        for package in folder.glob("*.deb"):
            os.link(package, pool / package.name)
    _index(root, suite, components, {"Origin": "Debian", "Label": "Debian"}, key, run)


def driver_mirror(first: Artifact, key: Artifact, driver: Artifact, suite: str) -> Artifact:
    """A mirror, and beside Debian's own repository one with its NVIDIA driver: of all components that this needs."""

    def build(out: Path, run: Shell) -> None:
        shutil.copytree(first.path, out, copy_function=os.link, symlinks=True, dirs_exist_ok=True)
        root = out / "ftp.debian.org" / "debian-non-free"
        pool = root / "pool" / suite
        pool.mkdir(parents=True)
        for package in driver.path.glob("*.deb"):
            os.link(package, pool / package.name)
        components = dict.fromkeys(("contrib", "non-free", "non-free-firmware"), f"pool/{suite}")
        _index(root, suite, components, {"Origin": "Debian", "Label": "Debian"}, key, run)

    return Artifact(f"apt-driver-{suite}", build, needs=(first, key, driver), expected=10)


def _place(suite: str) -> str:
    """Where a repository has its packages: those of one suite apart from those of others."""
    return f"pool/{suite}" if suite else "."


def _of_release(recipe: Any, release: str) -> Any:
    """The recipe with each `@` in its strings replaced."""
    match recipe:
        case str():
            return recipe.replace("@", release)
        case list():
            return [_of_release(value, release) for value in recipe]
        case dict():
            return {_of_release(key, release): _of_release(value, release) for key, value in recipe.items()}
    return recipe


def _make_package(
    name: str,
    version: str,
    fields: Mapping[str, str],
    row: Mapping[str, Any],
    start: list[str],
    pool: Path,
    contents: Mapping[str, Artifact],
    run: Shell,
) -> None:
    tree = pool / f".{name}"
    control = {
        "Package": name,
        "Version": version,
        "Architecture": "amd64",
        "Maintainer": KEY_OWNER,
        "Description": f"stand-in for {name}",
        **fields,
    }
    _write(tree / "DEBIAN" / "control", "".join(f"{field}: {value}\n" for field, value in control.items()))
    for path, source in row.get("files", {}).items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_origin(source, contents), tree / path)
    for path, text in row.get("texts", {}).items():
        _write(tree / path, text)
    for path, target in row.get("links", {}).items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).symlink_to(target)
    if "conffiles" in row:
        _write(tree / "DEBIAN" / "conffiles", "".join(f"{path}\n" for path in row["conffiles"]))
    has_units = any((tree / folder / "systemd" / "system").is_dir() for folder in ("lib", "usr/lib"))
    more = {script: _origin(source, contents).read_text() for script, source in row.get("scripts", {}).items()}
    for script, text in _scripts(start, has_units, more).items():
        _write(tree / "DEBIAN" / script, text, mode=0o755)
    archive = pool / f"{name}_{version.replace(':', '%3a')}_amd64.deb"
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, archive)  # unpacked on the same machine
    shutil.rmtree(tree)


def _origin(source: str, contents: Mapping[str, Artifact]) -> Path:
    artifact, _, inner = source.partition("/")
    return HERE / "files" / inner if artifact == "here" else contents[artifact].path / inner


def _scripts(start: list[str], has_units: bool, more: Mapping[str, str]) -> dict[str, str]:
    """What debhelper would write, and `more`: systemd knows the units, and those of `start` run until the removal.

    An upgrade restarts none of them. Here the persistence daemon is the driver, and a driver stays loaded.
    """
    booted = "if [ -d /run/systemd/system ]; then"
    reload = f"{booted} systemctl daemon-reload; fi\n" if has_units else ""
    scripts = {"postinst": f"ldconfig\n{reload}", "postrm": f"ldconfig\n{reload}"}
    if start:
        listed = " ".join(start)
        scripts["postinst"] += f"{booted} systemctl enable --quiet {listed}; systemctl start {listed} || true; fi\n"
        scripts["prerm"] = f'if [ "$1" = remove ]; then\n{booted} systemctl disable --now --quiet {listed}; fi\nfi\n'
    for script, text in more.items():
        scripts[script] = scripts.get(script, "") + text
    return {script: f"#!/bin/sh\nset -e\n{text}" for script, text in scripts.items()}


def _index(
    root: Path, suite: str, components: Mapping[str, str], labels: Mapping[str, str], key: Artifact, run: Shell
) -> None:
    """Write the lists of each component, which is a folder below `root`, and sign them. Without a suite it is flat."""
    release = root / "dists" / suite if suite else root
    for component, place in components.items():
        lists = release / component / "binary-amd64" if suite else root
        lists.mkdir(parents=True, exist_ok=True)
        _write(lists / "Packages", _output("apt-ftparchive", "packages", place, cwd=root))
    settings = {"Architectures": "amd64", **labels}
    if suite:
        settings |= {"Suite": suite, "Codename": suite, "Components": " ".join(components)}
    options = [
        word for field, value in settings.items() for word in ("-o", f"APT::FTPArchive::Release::{field}={value}")
    ]
    _write(release / "Release", _output("apt-ftparchive", *options, "release", ".", cwd=release))
    home = ("gpg", "--homedir", key.path / "home", "--batch", "--yes")
    run(*home, "--clearsign", "--output", release / "InRelease", release / "Release")
    run("gpgconf", "--homedir", key.path / "home", "--kill", "all")


def _output(*argv: str, cwd: Path) -> str:
    return subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True).stdout


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
