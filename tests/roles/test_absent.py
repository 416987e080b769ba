"""A removal keeps packages that this collection did not install. In check mode, so that apt stays on this machine."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from driver_machines import BARE, DEBIAN
from own_apt import apt_paths, installed_alone

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="no apt on this machine")


def run(folder: Path, part: str) -> str:
    """What a part of the role says of the package apt, in check mode."""
    asked = {"name": "kubegpu.autoscale._common", "tasks_from": part}
    apt = {
        "name": "none",
        "url": "",
        "suite": "/",
        "fingerprint": "",
        "key_url": "",
        "packages": ["apt"],
        "version": "*",
    }
    files = {
        "_common_server": BARE,
        "_common_apt_paths": apt_paths(folder),
    }
    facts = {"ansible.builtin.set_fact": {**DEBIAN, "cacheable": True}}
    task = {"ansible.builtin.include_role": asked, "vars": {"_common_apt": apt, **files}}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [facts, task]}
    (folder / "play.yml").write_text(json.dumps([play]))
    settings = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "ANSIBLE_NOCOLOR": "1", **installed_alone(folder)}
    done = ansible_playbook("-i", "localhost,", "--check", "--diff", "play.yml", cwd=folder, env=settings)
    return done.stdout + done.stderr


def removal(folder: Path, marked: bool) -> str:
    """What the task that purges apt itself says first. marked: whether the pin of these packages is there."""
    if marked:
        (folder / "kubegpu.pin").touch()
    said = run(folder, "apt_absent")
    found = re.search(r"Purge apt\] \**\n(?:\[ERROR\]: )?(\w+)", said)
    assert found, said
    return found[1]


@pytest.mark.parametrize("pinned", [False, True])
def test_what_was_there_before_is_remembered(tmp_path: Path, pinned: bool) -> None:
    """At the first run alone: later, what is there is ours."""
    if pinned:
        (tmp_path / "kubegpu.pin").touch()

    said = run(tmp_path, "apt_repository")

    assert ("\n+apt\n" in said) is not pinned, said


def test_packages_that_were_there_before_stay(tmp_path: Path) -> None:
    (tmp_path / "kubegpu.before").write_text("# Written by kubegpu.autoscale\napt\n")

    assert removal(tmp_path, marked=True) == "skipping"


def test_packages_of_others_stay(tmp_path: Path) -> None:
    assert removal(tmp_path, marked=False) == "skipping"


def test_packages_that_it_brought_go(tmp_path: Path) -> None:
    """Without python3-apt on this machine Ansible ends there; it has tried."""
    assert removal(tmp_path, marked=True) in ("changed", "fatal", "Task")
