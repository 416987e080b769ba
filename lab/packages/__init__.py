"""The apt mirror: stand-in packages with the real programs inside, and the distribution's, signed by the lab's key."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.artifacts import Artifact, Shell
from lab.debian import SUITE
from lab.versions import recipe

HERE = Path(__file__).parent
KEY_OWNER = "kubegpu lab mirror"


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


def apt_mirror(key: Artifact, distribution: Artifact, contents: Mapping[str, Artifact]) -> Artifact:
    """`<upstream host>/<path>`: a signed repository each. `contents` are the artifacts that recipes name."""

    def build(out: Path, run: Shell) -> None:
        add_repositories(out, recipe(HERE / "packages.yml"), key, contents, run)
        add_distribution(out, SUITE, distribution, key, run)

    return Artifact("apt", build, sources=(HERE,), needs=(key, distribution, *contents.values()), expected=15)


def add_repositories(
    out: Path, recipes: Mapping[str, Any], key: Artifact, contents: Mapping[str, Artifact], run: Shell
) -> None:
    """The repositories of a recipe file. One that is `like` another, a path, has its packages, too."""
    repositories = recipes["repositories"]
    pools = {name: _pool(out, row) for name, row in repositories.items()}
    for name, row in recipes["packages"].items():
        for release in row.get("releases", [""]):
            package = _of_release(row, release)
            _package(name, package, pools[package["repository"]], contents, run)
    for name, row in repositories.items():
        if "like" in row:
            _link(out / row["like"], pools[name])
        _index(out, row, key, run)


def add_distribution(
    out: Path, suite: str, distribution: Artifact, key: Artifact, run: Shell, *, component: str = "main"
) -> None:
    """The distribution's own repository, with the packages of one suite; another component than main beside it."""
    path = "ftp.debian.org/debian" if component == "main" else f"ftp.debian.org/debian-{component}"
    repository = {"path": path, "suite": suite, "component": component}
    _link(distribution.path, _pool(out, repository))
    _index(out, repository, key, run)


def _link(packages: Path, pool: Path) -> None:
    for package in packages.glob("*.deb"):
        os.link(package, pool / package.name)


def _pool(out: Path, repository: Mapping[str, str]) -> Path:
    pool = out / repository["path"] / _place(repository)
    pool.mkdir(parents=True, exist_ok=True)
    return pool


def _place(repository: Mapping[str, str]) -> str:
    """Where a repository has its packages: those of one suite apart from those of others."""
    return f"pool/{repository['suite']}" if "suite" in repository else "."


def _of_release(recipe: Any, release: str) -> Any:
    """The recipe with each `@` in its strings replaced."""
    match recipe:
        case str():
            return recipe.replace("@", release)
        case list():
            return [_of_release(each, release) for each in recipe]
        case dict():
            return {_of_release(key, release): _of_release(value, release) for key, value in recipe.items()}
    return recipe


def _package(name: str, row: Mapping[str, Any], pool: Path, contents: Mapping[str, Artifact], run: Shell) -> None:
    tree = pool / f".{name}"
    control = {
        "Package": name,
        "Version": row["version"],
        "Architecture": "amd64",
        "Maintainer": KEY_OWNER,
        "Description": f"stand-in for {name}",
    }
    if "depends" in row:
        control["Depends"] = row["depends"]
    _write(
        tree / "DEBIAN" / "control",
        "".join(f"{field}: {value}\n" for field, value in (control | row.get("fields", {})).items()),
    )
    for path, source in row.get("files", {}).items():
        artifact, _, inner = source.partition("/")
        origin = HERE / "files" / inner if artifact == "here" else contents[artifact].path / inner
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(origin, tree / path)
    for path, text in row.get("texts", {}).items():
        _write(tree / path, text)
    for path, target in row.get("links", {}).items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).symlink_to(target)
    if "conffiles" in row:
        _write(tree / "DEBIAN" / "conffiles", "".join(f"{path}\n" for path in row["conffiles"]))
    has_units = (tree / "usr" / "lib" / "systemd" / "system").is_dir()
    for script, text in _scripts(row.get("start", []), has_units).items():
        _write(tree / "DEBIAN" / script, text, mode=0o755)
    # Uncompressed: it is built and unpacked on the same machine.
    run(
        "dpkg-deb",
        "--root-owner-group",
        "-Znone",
        "--build",
        tree,
        pool / f"{name}_{row['version'].replace(':', '%3a')}_amd64.deb",
    )
    shutil.rmtree(tree)


def _scripts(start: list[str], has_units: bool) -> dict[str, str]:
    """What debhelper would write: systemd knows the units, and those of `start` run until the package is removed."""
    ldconfig = "#!/bin/sh\nset -e\nldconfig\n"
    booted = "if [ -d /run/systemd/system ]; then"
    reload = f"{booted} systemctl daemon-reload; fi\n" if has_units else ""
    scripts = {"postinst": ldconfig + reload, "postrm": ldconfig + reload}
    if start:
        listed = " ".join(start)
        scripts["postinst"] += f"{booted} systemctl enable --now --quiet {listed}; fi\n"
        scripts["prerm"] = f"#!/bin/sh\nset -e\n{booted} systemctl disable --now --quiet {listed}; fi\n"
    return scripts


def _index(out: Path, repository: Mapping[str, str], key: Artifact, run: Shell) -> None:
    root = out / repository["path"]
    if "suite" in repository:
        release = root / "dists" / repository["suite"]
        lists = release / repository["component"] / "binary-amd64"
        lists.mkdir(parents=True)
        settings = {
            "Suite": repository["suite"],
            "Codename": repository["suite"],
            "Components": repository["component"],
            "Architectures": "amd64",
        }
    else:
        release = lists = root
        settings = {"Architectures": "amd64"}
    _write(lists / "Packages", _output("apt-ftparchive", "packages", _place(repository), cwd=root))
    options = [
        word for field, value in settings.items() for word in ("-o", f"APT::FTPArchive::Release::{field}={value}")
    ]
    _write(release / "Release", _output("apt-ftparchive", *options, "release", ".", cwd=release))
    run(
        "gpg",
        "--homedir",
        key.path / "home",
        "--batch",
        "--yes",
        "--clearsign",
        "--output",
        release / "InRelease",
        release / "Release",
    )
    run("gpgconf", "--homedir", key.path / "home", "--kill", "all")


def _output(*argv: str, cwd: Path) -> str:
    return subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True).stdout


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
