"""apt runs in the background, so that a server whose packages take minutes holds no fork of Ansible."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from own_apt import installed_alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("apt-get"), reason="takes root and apt")


def install(folder: Path, package: str, *words: str) -> tuple[Any, dict[str, Any]]:
    """What the role makes of a package, on this machine: nothing is installed that is not there."""
    known: dict[str, Any] = {
        "_common_apt": {"name": "test", "packages": [package]},
        "_common_apt_plan": {"packages": {"asked": [package]}, "steps": {"update_cache": False, "install": True}},
        "_common_apt_jobs": str(folder / "jobs"),
    }
    role = {"name": "kubegpu.autoscale._common", "tasks_from": "apt_install"}
    seen = {"begun": "{{ _common_apt_begun }}", "installed": "{{ _common_apt_installed }}"}
    tasks = [
        {"ansible.builtin.include_role": role},
        {
            "ansible.builtin.copy": {"content": "{{ seen | to_json }}", "dest": str(folder / "seen.json")},
            "check_mode": False,
        },
    ]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": {"seen": seen}, "tasks": tasks}
    (folder / "play.yml").write_text(json.dumps([play]))
    environment = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, **installed_alone(folder)}
    done = ansible_playbook(
        "-i", "localhost,", "play.yml", "-e", json.dumps(known), *words, cwd=folder, env=environment
    )
    file = folder / "seen.json"
    return done, json.loads(file.read_text()) if file.exists() else {}


def test_a_job_is_waited_for_and_reports_what_it_has_done(tmp_path: Path) -> None:
    done, seen = install(tmp_path, "tar")

    assert done.returncode == 0, done.stdout
    assert seen["begun"]["ansible_job_id"]
    assert (seen["installed"]["finished"], seen["installed"]["changed"], seen["begun"]["changed"]) == (1, False, False)
    assert [*(tmp_path / "jobs").iterdir()], "in the folder that a boot clears"


def test_what_apt_says_of_a_failure_is_what_the_task_says(tmp_path: Path) -> None:
    done, _seen = install(tmp_path, "no-such-package")

    assert done.returncode != 0
    assert "No package matching 'no-such-package' is available" in done.stdout


def test_check_mode_knows_no_background(tmp_path: Path) -> None:
    done, seen = install(tmp_path, "tar", "--check")

    assert done.returncode == 0, done.stdout
    assert "ansible_job_id" not in seen["begun"]
    assert seen["installed"]["skipped"]
