"""The lab as an archive, for a machine without registries and without a container engine.

    python -m lab.pack pack FOLDER      what the lab is made from, in pieces; the Python packages for --python
    python3 -m lab.pack unpack FOLDER   into the cache and into .venv; the standard library is enough

Both need the same commit: artifacts are found by a name made from their inputs, so another checkout
finds none.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

from lab import preflight
from lab.artifacts import CACHE

NAME = "lab-pack"
PIECE = "50MB"
# Collections of the lab's and the site's playbooks, and of the benchmarks. The package `ansible` is ten times as large.
COLLECTIONS = ("kubernetes/core", "containers/podman", "ansible/posix")
REQUIREMENTS = preflight.CHECKOUT / "requirements-lab.txt"


def pack(folder: Path, python: str, more: list[str], images: list[str]) -> None:
    """Write `lab-pack.NN` and the program that unpacks them.

    python: Python version of the other machine, for example 3.12.
    more:   additional Python packages.
    images: images that `python -m lab add` adds to a running lab.
    """
    from lab.graph import Graph, added_images, make

    made_from = Graph()
    known = added_images()
    if unknown := sorted({*images} - {*known}):
        sys.exit(f"lab: unknown image {', '.join(unknown)}. Known images: {', '.join(known)}.")
    added = {name: known[name] for name in images}
    if code := made_from.build() or make(artifact for made in added.values() for artifact in made):
        sys.exit(code)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    site = CACHE / f"site-{python}"
    _python_packages(site, python, more)
    # Equal content is adjacent: packages and images contain the same programs.
    order = ("images", "apt", "userland", "node", "charts", "apt_key")
    paths = [Path(made_from.mounted()[name]).name for name in order] + [made[-1].path.name for made in added.values()]
    with subprocess.Popen(
        ["tar", "--create", "--directory", CACHE, "--sort=name", "--numeric-owner", *paths, site.name],
        stdout=subprocess.PIPE,
    ) as archive:
        squeeze = ["zstd", "--quiet", "--stdout", "-T0", "-9", "--long=30"]
        with subprocess.Popen(squeeze, stdin=archive.stdout, stdout=subprocess.PIPE) as squeezed:
            cut = ["split", f"--bytes={PIECE}", "--numeric-suffixes", "-", str(folder / f"{NAME}.")]
            subprocess.run(cut, check=True, stdin=squeezed.stdout)
    if archive.returncode or squeezed.returncode:
        sys.exit("lab: the archive could not be written")
    shutil.copy(shutil.which("zstd") or "zstd", folder / "zstd")
    pieces = sorted(folder.glob(f"{NAME}.*"))
    print(f"{len(pieces)} pieces, {sum(piece.stat().st_size for piece in pieces) / 1e6:.0f} MB: {folder}")


def _python_packages(site: Path, python: str, more: list[str]) -> None:
    """Packages of requirements-lab.txt for that Python. For `ansible`, this ansible-core and its collections."""
    core = f"ansible-core=={importlib.metadata.version('ansible-core')}"
    others = [line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith(("#", "ansible=="))]
    shutil.rmtree(site, ignore_errors=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site), "--python-version", python),
            *("--only-binary=:all:", "--no-compile", core, *others, *more),
        ],
        check=True,
    )
    here = next(Path(path) for path in sys.path if Path(path, "ansible_collections").is_dir())
    for name in COLLECTIONS:
        copied = site / "ansible_collections" / name
        shutil.copytree(here / "ansible_collections" / name, copied, ignore=shutil.ignore_patterns("tests", "docs"))


def unpack(folder: Path) -> None:
    """Fill the cache and the virtual environment."""
    began = time.monotonic()
    pieces = sorted(folder.glob(f"{NAME}.*"))
    if not pieces:
        sys.exit(f"lab: {folder} has no {NAME}.00: name the folder that `make lab-pack` wrote")
    CACHE.mkdir(parents=True, exist_ok=True)
    program = shutil.which("zstd") or str((folder / "zstd").resolve())
    whole = subprocess.Popen(["cat", *pieces], stdout=subprocess.PIPE)
    plain = subprocess.Popen([program, "-dc", "--long=30"], stdin=whole.stdout, stdout=subprocess.PIPE)
    subprocess.run(["tar", "--extract", "--directory", CACHE, "--no-same-owner"], check=True, stdin=plain.stdout)
    if plain.wait() or whole.wait():
        sys.exit(f"lab: {NAME} in {folder} cannot be read: see that all its pieces are there")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    site = CACHE / f"site-{version}"
    if not site.exists():
        has = ", ".join(sorted(path.name.removeprefix("site-") for path in CACHE.glob("site-*")))
        sys.exit(f"lab: this is Python {version}, and the archive is for {has}: name that one by PYTHON=python{has}")
    _environment(site, version)
    (CACHE / "unpacked").touch()
    print(f"unpacked in {time.monotonic() - began:.0f} s")


def _environment(site: Path, version: str) -> None:
    """A virtual environment with these packages, as in preflight."""
    venv.create(preflight.VENV, symlinks=True, clear=True)
    shutil.copytree(site, preflight.VENV / "lib" / f"python{version}" / "site-packages", dirs_exist_ok=True)
    for script in (site / "bin").iterdir():
        text = re.sub(r"\A#!.*", f"#!{preflight.VENV / 'bin' / 'python'}", script.read_text())
        target = preflight.VENV / "bin" / script.name
        target.write_text(text)
        target.chmod(0o755)
    preflight.stamp(REQUIREMENTS)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="lab.pack", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    packs = commands.add_parser("pack")
    packs.add_argument("folder", type=Path)
    packs.add_argument("--python", default="{}.{}".format(*sys.version_info), help="version on the other machine")
    packs.add_argument("--image", action="append", default=[], help="an image that is added later, such as locust")
    packs.add_argument("--also", action="append", default=[], help="a Python package that goes along")
    commands.add_parser("unpack").add_argument("folder", type=Path)
    args = parser.parse_args()
    if args.command == "pack":
        pack(args.folder, args.python, args.also, args.image)
    else:
        unpack(args.folder)


if __name__ == "__main__":
    os.umask(0o022)
    main()
