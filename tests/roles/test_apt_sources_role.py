"""A new source that apt rejects. tests/unit/nodes has the plans of sources."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, ROOT
from driver_machines import DEBIAN as DEBIAN_12
from own_apt import apt_paths
from task_walk import read

URL = "https://download.example/linux/debian"
APT = {"name": "docker", "url": URL, "suite": "bookworm", "components": "stable", "packages": ["containerd.io"]}
APT |= {"version": "2.1-*", "fingerprint": "AB", "key_url": f"{URL}/gpg"}


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
        "_common_apt_paths": apt_paths(tmp_path) | {"source": str(source)},
        "_common_apt_plan": {
            "files": {"differing": [{"path": str(source), "content": ours, "mode": "0644"}], "unwanted": []},
            "steps": {"source_is_new": not was_there},
        },
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
    assert ("The new source was removed again." in said) != was_there
    assert source.exists() == was_there


FLAT = "Types: deb\nURIs: file:{folder}/repository\nSuites: ./\nTrusted: yes\n"
DEAD = "deb [trusted=yes] http://127.0.0.1:9/ppa noble main\n"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("apt-get"), reason="takes root and apt")
@pytest.mark.parametrize("own_is_there", [True, False], ids=["ours is there", "ours is dead as well"])
def test_a_dead_source_of_others_does_not_stop_the_set(tmp_path: Path, own_is_there: bool) -> None:
    """A PPA that is gone is no reason to leave a server without its driver."""
    sources = tmp_path / "sources.list.d"
    for folder in (sources, tmp_path / "var/lib/apt/lists/partial", tmp_path / "var/cache/apt/archives/partial"):
        folder.mkdir(parents=True)
    (tmp_path / "status").touch()
    (tmp_path / "apt.conf").write_text(APT_CONFIG.format(folder=tmp_path) + 'Acquire::Retries "0";\n')
    (sources / "dead.list").write_text(DEAD)
    source = sources / "kubegpu-docker.sources"
    if own_is_there:
        (tmp_path / "repository").mkdir()
        (tmp_path / "repository/Packages").write_text("Package: containerd.io\nVersion: 2.1\nArchitecture: all\n")
    known: dict[str, Any] = {
        "_common_apt": APT,
        "_common_apt_paths": apt_paths(tmp_path) | {"source": str(source)},
        "_common_apt_plan": {
            "files": {
                "differing": [{"path": str(source), "content": FLAT.format(folder=tmp_path), "mode": "0644"}],
                "unwanted": [],
                "read": [str(source)],
            },
            "steps": {"source_is_new": True},
        },
    }
    role = {"name": "kubegpu.autoscale._common", "tasks_from": "apt_files"}
    task = {"ansible.builtin.include_role": role}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    environment = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "APT_CONFIG": str(tmp_path / "apt.conf")}
    done = ansible_playbook("-i", "localhost,", "play.yml", "-e", json.dumps(known), cwd=tmp_path, env=environment)
    said = " ".join((done.stdout + done.stderr).split())

    assert (done.returncode == 0) is own_is_there, said
    assert source.exists() is own_is_there
    if own_is_there:
        assert "WARNING: apt -> localhost: apt does not read all of its sources:" in said
        assert "127.0.0.1:9" in said
        offered = subprocess.run(
            ["apt-cache", "madison", "containerd.io"],
            env={**os.environ, "APT_CONFIG": str(tmp_path / "apt.conf")}, capture_output=True, text=True,
        )  # fmt: skip
        assert "2.1" in offered.stdout


def repository(folder: Path, label: str) -> str:
    """A repository with a label, and its line in apt's sources."""
    index = folder / "dists/bookworm/main/binary-amd64/Packages"
    index.parent.mkdir(parents=True)
    index.write_text("Package: hello\nVersion: 1\nArchitecture: all\n")
    checksum = f"{hashlib.sha256(index.read_bytes()).hexdigest()} {index.stat().st_size} main/binary-amd64/Packages"
    head = f"Label: {label}\nCodename: bookworm\nComponents: main\nArchitectures: amd64\n"
    release = f"{head}Date: Sat, 28 Nov 2026 10:00:00 UTC\nSHA256:\n {checksum}\n"
    (folder / "dists/bookworm/Release").write_text(release)
    return f"deb [arch=amd64 trusted=yes] file:{folder} bookworm main\n"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("apt-get"), reason="takes root and apt")
@pytest.mark.parametrize(
    ("own", "others"),
    [
        ("read", "dead"),
        ("read from a list of mirrors", "dead"),
        ("dead since", "dead"),
        ("dead since, from a list of mirrors", "dead"),
        ("dead since", "read"),
        ("missing", "dead"),
        ("missing", "read"),
    ],
)
def test_without_a_set_the_own_source_of_the_distribution_is_needed(tmp_path: Path, own: str, others: str) -> None:
    """Kernels of `maintain` and of prebuilt modules, components of Debian, and the end of a removal.

    With lists of an earlier day apt reports that nothing is newer.
    """
    sources = tmp_path / "sources.list.d"
    for folder in (sources, tmp_path / "var/lib/apt/lists/partial", tmp_path / "var/cache/apt/archives/partial"):
        folder.mkdir(parents=True)
    (tmp_path / "status").touch()
    (tmp_path / "apt.conf").write_text(APT_CONFIG.format(folder=tmp_path) + 'Acquire::Retries "0";\n')
    (sources / "dead.list").write_text(DEAD)
    environment = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "APT_CONFIG": str(tmp_path / "apt.conf")}
    if others == "read":
        (sources / "theirs.list").write_text(repository(tmp_path / "theirs", "Theirs"))
    if own != "missing":
        line = repository(tmp_path / "own", "Debian")
        if "mirrors" in own:
            (tmp_path / "mirrors").write_text(f"file:{tmp_path}/own\n")
            line = line.replace("file:", "mirror+file:").replace(str(tmp_path / "own"), str(tmp_path / "mirrors"))
        (sources / "own.list").write_text(line)
    if own.startswith("dead"):
        subprocess.run(["apt-get", "update"], env={**os.environ, **environment}, capture_output=True, check=True)
        (tmp_path / "own").rename(tmp_path / "gone")
    notify = {"ansible.builtin.command": "true", "notify": "Refresh the apt cache"}
    update = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale._common", "tasks_from": "apt_update"}}
    tasks = [{**update, "vars": {"_common_apt_needed": []}}, notify]
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_facts": DEBIAN_12},
        "tasks": tasks,
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = ansible_playbook("-i", "localhost,", "play.yml", cwd=tmp_path, env=environment)
    said = " ".join((done.stdout + done.stderr).split())

    assert (done.returncode == 0) is own.startswith("read"), said
    assert "Failed to fetch http://127.0.0.1:9/ppa" in said
    assert ("WARNING: apt -> localhost: apt does not read all of its sources:" in said) is own.startswith("read")


def test_lists_are_updated_in_one_place() -> None:
    """Elsewhere a dead source would stop the role."""
    folder = ROOT / "roles"
    files = [path for part in ("tasks", "handlers") for path in sorted(folder.glob(f"*/{part}/*.yml"))]
    assert len(files) > 100
    updating = [str(path.relative_to(folder)) for path in files if _updates(read(path))]
    assert updating == ["_common/tasks/apt_update.yml", "_common/handlers/main.yml"]


def _updates(entry: Any) -> bool:
    if isinstance(entry, (list, tuple)):
        return any(map(_updates, entry))
    if not isinstance(entry, Mapping):
        return False
    argv = entry.get("argv") or []
    return "update_cache" in entry or ("update" in argv and "apt-get" in argv) or any(map(_updates, entry.values()))
