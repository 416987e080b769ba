"""The digits that helm's archive is checked against."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, ROOT

PIN = yaml.safe_load((ROOT / "roles/_common/defaults/main/versions.yml").read_text())["kubegpu_pinned_versions"]
HELM = PIN["archives"]["helm"]
BESIDE = "sha256:https://get.helm.sh/helm-v3.22.0-linux-amd64.tar.gz.sha256sum"
OWN = "0" * 64


def checksum(folder: Path, **variables: Any) -> str:
    """What the role would check the archive against; a helm that is there already is left alone."""
    role = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.helm", "public": True}}
    shown = {"ansible.builtin.debug": {"msg": "checked: {{ helm_checksum }}"}}
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [role, shown]}]
    (folder / "play.yml").write_text(json.dumps(play))
    known = {"kubegpu_helm_binary": sys.executable, "helm_platform": "linux-amd64", **variables}
    words = ("-i", "localhost,", "play.yml", "-e", json.dumps(known))
    done = ansible_playbook(*words, cwd=folder, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.partition("checked: ")[2].split()[0].strip('"')


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ({}, f"sha256:{HELM['sha256']['linux-amd64']}"),
        ({"version": "v3.22.0"}, BESIDE),
        ({"version": "v3.22.0", "sha256": {"linux-amd64": OWN}}, f"sha256:{OWN}"),
    ],
    ids=["pinned", "another_release", "another_release_with_its_digits"],
)
def test_the_archive_is_checked_against_the_digits_of_its_release(
    tmp_path: Path, override: dict[str, Any], expected: str
) -> None:
    assert checksum(tmp_path, kubegpu_versions_override={"archives": {"helm": override}}) == expected
