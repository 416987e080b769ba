"""README.md as its reader pastes it: the blocks below a heading, by a shell with an empty home."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import tarball
from collection import ROOT

README = (ROOT / "README.md").read_text()
OWN = Path(sys.executable)
PACKAGES = next(OWN.parents[1].glob("lib/python*/site-packages"))
INSTALL = "ansible-galaxy collection install"
FROM_GIT = f"{INSTALL} git+https://github.com/kubegpu/autoscale"
# A new virtual environment has the packages of the tests: pip has nothing to fetch, and still checks each name.
PYTHON = f"""#!/bin/sh
{OWN} "$@" || exit
test "$1 $2" = "-m venv" || exit 0
for folder in "$3"/lib/python*/site-packages; do echo {PACKAGES} > "$folder/tests.pth"; done
"""


def blocks(heading: str, language: str) -> list[str]:
    """Those below a heading of the second level."""
    section = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


class Home:
    """An empty home folder, but for the collections that Galaxy would add."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tarball = tarball.build(folder / "release")
        shutil.copytree(
            PACKAGES / "ansible_collections" / "kubernetes" / "core",
            folder / ".ansible" / "collections" / "ansible_collections" / "kubernetes" / "core",
        )
        self._programs = folder / "programs"
        self._programs.mkdir()
        self.program("python3", PYTHON)

    def program(self, name: str, text: str) -> None:
        """Add a program to the PATH."""
        path = self._programs / name
        path.write_text(text)
        path.chmod(0o755)

    def paste(self, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the lines until one fails. The tarball replaces the repository."""
        settings = {
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PYTHON_INTERPRETER": str(OWN),
            "PIP_QUIET": "1",
        }
        path = f"{self._programs}:{OWN.parent}:/usr/bin:/bin:/usr/sbin:/sbin"
        done = subprocess.run(
            ["bash", "-ec", text.replace(FROM_GIT, f"{INSTALL} {self._tarball}")],
            cwd=self.folder,
            env={"HOME": str(self.folder), "PATH": path, **settings, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        print(done.stdout, done.stderr)  # pytest shows it when the test fails
        return done
