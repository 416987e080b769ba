"""What the lab's servers can run beside Debian 12, built only on demand.

The mirror for them is that of Debian 12, by hard links, and what is new beside.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lab import debian, packages
from lab.artifacts import Artifact, Shell
from lab.versions import recipe

HERE = Path(__file__).parent
DEFAULT = "debian-12"


@cache
def systems() -> dict[str, dict[str, str]]:
    """By name: `suite` of the Debian below; `codename` of the Ubuntu that it is made to look like."""
    return yaml.safe_load((HERE / "systems.yml").read_text())


def apt_mirror(first: Artifact, key: Artifact, contents: Mapping[str, Artifact]) -> Artifact:
    """The apt mirror, with the repositories of the other systems."""
    suites = sorted({row["suite"] for row in systems().values()} - {debian.SUITE})
    distributions = {suite: debian.distribution_packages(debian.node_filesystem(suite), suite) for suite in suites}

    def build(out: Path, run: Shell) -> None:
        shutil.copytree(first.path, out, copy_function=os.link, symlinks=True, dirs_exist_ok=True)
        packages.add_repositories(out, _recipes(), key, contents, run)
        for suite, distribution in distributions.items():
            packages.add_distribution(out, suite, distribution, key, run)

    needs = (first, key, *distributions.values(), *contents.values())
    return Artifact("apt-systems", build, sources=(HERE / "packages.yml",), needs=needs, expected=15)


def with_driver(first: Artifact, key: Artifact, system: str) -> Artifact:
    """The apt mirror, with Debian's own NVIDIA driver for servers that run this Debian."""
    suite = systems()[system]["suite"]
    driver = debian.driver_packages(debian.node_filesystem(suite), suite)

    def build(out: Path, run: Shell) -> None:
        shutil.copytree(first.path, out, copy_function=os.link, symlinks=True, dirs_exist_ok=True)
        packages.add_distribution(out, suite, driver, key, run, component="non-free")

    return Artifact(f"apt-driver-{suite}", build, needs=(first, key, driver), expected=10)


def _recipes() -> dict[str, Any]:
    known = recipe(packages.HERE / "packages.yml")["packages"]
    recipes = recipe(HERE / "packages.yml")
    return recipes | {"packages": {name: known.get(name, {}) | row for name, row in recipes["packages"].items()}}
