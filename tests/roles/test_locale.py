"""What the driver's role reads of programs does not depend on the language of the login. apt-get is a stand-in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import ROOT

# dpkg's words in German, unless it is asked for others.
APT_GET = """#!/bin/sh
case "$LC_ALL" in
  C*) printf 'Unpacking x\\nSetting up nvidia-driver-cuda (580) ...\\n' ;;
  *) printf 'Entpacken von x\\nnvidia-driver-cuda (580) wird eingerichtet ...\\n' ;;
esac
"""


@pytest.mark.parametrize("language", ["de_DE.UTF-8", "C.UTF-8"])
def test_a_change_of_packages_is_seen_in_any_language(tmp_path: Path, language: str) -> None:
    """A driver that moved and counts as unchanged is not loaded, and blamed for packages that are gone."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apt-get").write_text(APT_GET)
    (tmp_path / "bin/apt-get").chmod(0o755)
    play: dict[str, Any] = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": _tasks()}
    play["vars"] = {"__nvidia_driver_plan": {"packages": {"move": ["a=1"]}}, "kubegpu_apt_lock_timeout": 1}
    play["vars"] |= {"_common_apt_job_seconds": 60, "_common_apt_jobs": str(tmp_path / "jobs")}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    play["environment"] = {"LANG": language, "LC_ALL": language}  # of a login there
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = ansible_playbook("-i", "localhost,", "play.yml", cwd=tmp_path, env=environment)

    assert done.returncode == 0, done.stdout
    assert "changed=1" in done.stdout


def _tasks() -> object:
    """Those that change the packages."""
    path = ROOT / "roles/nvidia_driver/tasks/move.yml"
    _report, change = yaml.safe_load(path.read_text())
    return change["block"][-2:]
