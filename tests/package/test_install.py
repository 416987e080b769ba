"""The ways to install the collection without Galaxy, by the lines of README.md in an empty home."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from collection import ROOT
from readme import FROM_GIT, INSTALL, README, Home, blocks

[SITE] = blocks("You have bare servers", "sh")
[TARBALL] = re.findall(rf"`({INSTALL} \S+)`", README.partition("\n## Install without Galaxy\n")[2])
# From Git by the lines until the one that installs it.
COMMANDS = {"git": SITE[: SITE.index(FROM_GIT) + len(FROM_GIT)], "tarball": TARBALL}
REPOSITORY = "git+https://github.com/kubegpu/autoscale"


def module_names() -> set[str]:
    """Of the last commit, which is what Git hands out."""
    tree = subprocess.check_output(["git", "ls-tree", "--name-only", "HEAD", "plugins/modules/"], cwd=ROOT, text=True)
    return {f"kubegpu.autoscale.{Path(path).stem}" for path in tree.split()}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_of_the_readme_installs_the_collection(tmp_path: Path, command: str) -> None:
    """Git has this checkout in the place of the address. `make tarball` writes what Home has built."""
    home = Home(tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "release").rename(tmp_path / "build" / "release")

    installed = home.paste(command.replace(REPOSITORY, f"git+file://{ROOT}"))

    assert installed.returncode == 0
    assert (tmp_path / ".ansible/collections/ansible_collections/kubegpu/autoscale/inventories/cluster").is_dir()
    shown = home.paste(f"ansible-doc --json --type module {' '.join(sorted(module_names()))}")
    assert json.loads(shown.stdout).keys() == module_names()
