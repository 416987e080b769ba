"""Sources of apt that somebody has already, and a source of ours that apt does not take."""

from __future__ import annotations

import json
import os
import shutil
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from role_values import RoleValues

URL = "https://download.example/linux/debian"
APT = {"name": "docker", "url": URL, "suite": "bookworm", "components": "stable", "packages": ["containerd.io"]}


def refusal(*components: str, **source: str) -> str:
    """What is said where a server has the repository with these components."""
    theirs = {
        "uri": URL,
        "suite": "bookworm",
        "file": "/etc/apt/sources.list.d/docker.list",
        "components": [*components],
    }
    told = {"_common_apt": APT, "_common_server": {"result": {"apt_sources": [theirs | source]}}}
    said: str = RoleValues("_common", {"inventory_hostname": "gpu1"}, told)["_common_apt_refusal"]
    return said


def test_a_source_of_others_that_lacks_a_component_is_refused() -> None:
    said = refusal("test")
    assert f"gpu1: /etc/apt/sources.list.d/docker.list has {URL} bookworm without the component stable" in said
    assert said.endswith("Nothing was changed. Next, on the node: add the component there, or remove that source.")


@pytest.mark.parametrize("source", [{}, {"suite": "trixie"}, {"uri": "https://other.example"}], ids=str)
def test_a_source_that_is_complete_or_of_something_else_is_not(source: dict[str, str]) -> None:
    assert refusal(*(() if source else ("edge", "stable")), **source) == ""


def files(apt: dict[str, Any], found: list[dict[str, Any]], **variables: str) -> RoleValues:
    """What is to be written for a repository of a server that has these files."""
    told = {
        "_common_apt": {**APT, "version": "2.1-*", "fingerprint": "ABC", **apt},
        "_common_apt_found": {"files": found},
    }
    told |= {"_common_server": {"result": {"apt_sources": []}}}
    return RoleValues("_common", {"inventory_hostname": "gpu1", **variables}, told)


def test_source_pins_and_settings_are_those_of_the_repository() -> None:
    moved_together = [{"packages": ["runc", "cri-tools"], "version": "1.*"}]
    seen = files({"also_pinned": moved_together, "unattended": ["^containerd"]}, [], kubegpu_apt_proxy="http://proxy:1")
    source, pins, settings = (row["content"] for row in seen["_common_apt_files"])
    assert source.splitlines()[1:] == [
        "Types: deb", f"URIs: {URL}", "Suites: bookworm", "Components: stable",
        "Signed-By: /etc/apt/keyrings/kubegpu-docker.asc",
    ]  # fmt: skip
    assert pins.split("\n", 1)[1] == (
        "Package: containerd.io\nPin: version 2.1-*\nPin-Priority: 1000\n\n"
        "Package: runc cri-tools\nPin: version 1.*\nPin-Priority: 1000\n"
    )
    assert 'Acquire::https::Proxy::download.example "http://proxy:1";\n' in settings
    assert 'Package-Blacklist {\n    "^containerd";\n};\n' in settings


def test_what_is_there_as_it_should_be_is_known_and_not_written() -> None:
    before = files({}, [])
    written = before["_common_apt_compared.differing"]
    assert [Path(row["path"]).name for row in written] == ["kubegpu-docker.sources", "kubegpu-docker.pref"]
    assert not before["_common_apt_compared.known"]
    found = [
        {"path": row["path"], "checksum": sha1(row["content"].encode()).hexdigest(), "mode": "0644", "uid": 0, "gid": 0}
        for row in written
    ]
    others = [before["_common_apt_key_file"], f"/var/lib/apt/lists/{before['_common_apt_index']}"]
    found += [{"path": path, "checksum": "0"} for path in others]
    left = [{"path": before["_common_apt_config_file"], "checksum": "0"}]
    after = files({}, found + left)["_common_apt_compared"]
    assert after == {"known": True, "differing": [], "unwanted": [left[0]["path"]]}
    assert files({}, found)["_common_apt_compared.unwanted"] == []
    for needed in (before["_common_apt_source_file"], *others):
        without = [row for row in found if row["path"] != needed]
        assert not files({}, without)["_common_apt_compared.known"]


# An apt of its own, whatever Python asks it: folders of this machine are neither read nor written.
APT_CONFIG = """
Dir "{folder}";
Dir::State::status "{folder}/status";
Dir::Etc::sourceparts "{folder}/sources.list.d";
Dir::Etc::sourcelist "/dev/null";
"""
SOURCE = "Types: deb\nURIs: {url}\nSuites: bookworm\nComponents: stable\nSigned-By: {folder}/{key}.asc\n"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("apt-get"), reason="takes root and apt")
@pytest.mark.parametrize("was_there", [False, True], ids=["new", "there before"])
def test_a_source_that_apt_does_not_take_goes_again(tmp_path: Path, was_there: bool) -> None:
    """With two keys for one repository apt works for nobody on this server: docker/for-linux#1349."""
    sources = tmp_path / "sources.list.d"
    for folder in (sources, tmp_path / "var/lib/apt/lists/partial", tmp_path / "var/cache/apt/archives/partial"):
        folder.mkdir(parents=True)
    (tmp_path / "status").touch()
    (tmp_path / "apt.conf").write_text(APT_CONFIG.format(folder=tmp_path))
    (sources / "theirs.sources").write_text(SOURCE.format(url=URL, folder=tmp_path, key="theirs"))
    source = sources / "kubegpu-docker.sources"
    ours = SOURCE.format(url=URL, folder=tmp_path, key="ours")
    known: dict[str, Any] = {
        "_common_apt": APT,
        "_common_apt_source_file": str(source),
        "_common_apt_now": {"differing": [{"path": str(source), "content": ours, "mode": "0644"}], "unwanted": []},
        "_common_apt_checksums": {str(source): "0"} if was_there else {},
    }
    role = {"name": "kubegpu.autoscale._common", "tasks_from": "apt_files"}
    task = {"ansible.builtin.include_role": role}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = ansible_playbook(
        "-i", "localhost,", "play.yml", "-e", json.dumps(known), cwd=tmp_path,
        env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "APT_CONFIG": str(tmp_path / "apt.conf")},
    )  # fmt: skip
    said = " ".join((done.stdout + done.stderr).split())

    assert done.returncode != 0
    assert "apt repository docker -> localhost: apt does not read its lists." in said
    assert "Conflicting values set for option Signed-By" in said
    assert ("Our source was taken away again." in said) != was_there
    assert source.exists() == was_there
