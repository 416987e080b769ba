"""A removal leaves packages that this collection did not bring. In check mode, so that apt stays on this machine."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from own_apt import installed_alone

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="no apt on this machine")


def removal(folder: Path, marked: bool) -> str:
    """What the task that purges apt itself says first. marked: whether the pin of these packages is there."""
    pin = folder / "kubegpu.pref"
    if marked:
        pin.touch()
    asked = {"name": "kubegpu.autoscale._common", "tasks_from": "apt_absent"}
    apt = {
        "name": "none",
        "url": "",
        "suite": "/",
        "fingerprint": "",
        "key_url": "",
        "packages": ["apt"],
        "version": "*",
    }
    task = {"ansible.builtin.include_role": asked, "vars": {"_common_apt": apt, "_common_apt_pin_file": str(pin)}}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task]}
    (folder / "play.yml").write_text(json.dumps([play]))
    settings = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "ANSIBLE_NOCOLOR": "1", **installed_alone(folder)}
    done = ansible_playbook("-i", "localhost,", "--check", "play.yml", cwd=folder, env=settings)
    found = re.search(r"Purge apt\] \**\n(?:\[ERROR\]: )?(\w+)", done.stdout + done.stderr)
    assert found, done.stdout + done.stderr
    return found[1]


def test_packages_of_others_stay(tmp_path: Path) -> None:
    assert removal(tmp_path, marked=False) == "skipping"


def test_packages_that_it_brought_go(tmp_path: Path) -> None:
    """Without python3-apt on this machine Ansible ends there; it has tried."""
    assert removal(tmp_path, marked=True) in ("changed", "fatal", "Task")
