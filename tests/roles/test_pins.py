"""Errors about packages that apt does not find, with the apt of this machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, ROOT
from driver_machines import BARE, DEBIAN
from role_values import RoleValues

UPGRADE = ROOT / "playbooks/upgrade_kubernetes.yml"
pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="no apt on this machine")
PACKAGES = "".join(
    f"Package: kubegpu1\nVersion: {version}\nArchitecture: all\nFilename: ./1.deb\nSize: 1\nSHA256: {0:064}\n\n"
    for version in ("2.3.6-1", "2.3.7-1")
)
SET = {"name": "runtime", "suite": "./", "key_url": "", "fingerprint": ""}


def said(folder: Path, uri: str, packages: list[str], version: str, **variables: Any) -> str:
    """What a run on this machine says that would get these packages."""
    asked = {"name": "kubegpu.autoscale._common", "tasks_from": "pins"}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    brings = [{**SET, "url": uri, "packages": packages, "version": version}]
    known = {
        "_common_roles": ["runtime"],
        "__runtime_plan": {"packages": {"sources": brings}},
        "_common_server": BARE,
        **variables,
    }
    facts = {"ansible.builtin.set_fact": {**DEBIAN, "cacheable": True}}
    task = {"ansible.builtin.include_role": asked, "vars": known}
    (folder / "play.yml").write_text(json.dumps([{**play, "tasks": [facts, task]}]))
    settings = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH}
    done = ansible_playbook("-i", "localhost,", "play.yml", cwd=folder, env=settings)
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def there(tmp_path: Path) -> str:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "Packages").write_text(PACKAGES)
    return f"file:{tmp_path}/there"


def test_what_apt_finds_is_no_reason(tmp_path: Path, there: str) -> None:
    assert "failed=0" in said(tmp_path, there, ["kubegpu1"], "2.3.6-*")


def test_versions_that_there_are_are_told(tmp_path: Path, there: str) -> None:
    text = said(tmp_path, there, ["kubegpu1"], "2.1.9-*")

    assert f"apt: localhost would get kubegpu1=2.1.9-* from {there}, and apt finds 2.3.7-1, 2.3.6-1 there." in text
    assert "Nothing was changed. Next: set runtime_version to an available version (" in text


def test_headers_that_are_gone_are_not_looked_for_in_the_drivers_repository(tmp_path: Path, there: str) -> None:
    headers = ["linux-headers-6.1.0-1"]
    brings = [{**SET, "url": there, "packages": ["kubegpu1"], "version": "2.3.6-*", "extra": headers}]
    text = said(tmp_path, there, [], "", __runtime_plan={"packages": {"sources": brings}})

    assert "localhost would get linux-headers-6.1.0-1, and none of its own repositories has it." in text
    assert "boot it, and run this again" in text
    assert "curl" not in text
    assert "runtime_version" not in text


def test_a_repository_that_is_not_there_is_told(tmp_path: Path) -> None:
    text = said(tmp_path, f"file:{tmp_path}/gone", ["kubegpu1", "kubegpu2"], "2.1.9-*")

    assert "would get kubegpu1=2.1.9-*, kubegpu2=2.1.9-* from" in text
    assert "apt finds none of that name there (" in text


def test_a_role_that_refuses_by_itself_says_nothing_more(tmp_path: Path) -> None:
    gone = {**SET, "url": f"file:{tmp_path}/gone", "packages": ["kubegpu1"], "version": "1"}
    refused = {"refused": ["a runtime exists"], "packages": {"sources": [gone]}}

    assert "failed=0" in said(tmp_path, "", [], "", __runtime_plan=refused)


def test_another_version_is_looked_up_before_an_upgrade() -> None:
    """The role itself refuses it, and nothing is reported for a role that refuses."""
    tasks = [task for play in yaml.safe_load(UPGRADE.read_text()) for task in play.get("tasks", ())]
    [pins] = [task for task in tasks if task["name"] == "Fail if apt does not have the version"]
    plan = {"refused": ["a cluster is upgraded node by node"], "upgrade": {"refused": []}, "packages": {}}
    wanted = pins["vars"]["_common_plans"]["kubernetes"]

    assert RoleValues("kubernetes", {}, {"__kubernetes_plan": plan})[wanted.strip("{} ")] == {**plan, "refused": []}
