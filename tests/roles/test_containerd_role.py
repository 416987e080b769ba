"""The proxy and the registry mirrors of containerd, in a folder of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH

PROXY = "http://user:pass%40word@127.0.0.1:3128"
OURS = '# Written by kubegpu.autoscale\nserver = "https://ours"\n'


def part(name: str, when: str) -> dict[str, Any]:
    return {
        "ansible.builtin.include_role": {"name": "kubegpu.autoscale.containerd", "tasks_from": name, "public": True},
        "when": when,
    }


# The last task fails, so that no handler restarts anything.
TASKS: list[dict[str, Any]] = [
    part("see", "true"),
    part("proxy", "__containerd_proxy_differs"),
    part("mirrors_absent", "__containerd_mirrors_unwanted | length > 0"),
    {"ansible.builtin.fail": {"msg": "the end is reached"}},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a mirror of ours and one of somebody else."""
    for registry, text in (("docker.io", OURS), ("ghcr.io", 'server = "https://theirs"\n')):
        (tmp_path / "certs" / registry).mkdir(parents=True)
        (tmp_path / "certs" / registry / "hosts.toml").write_text(text)
    return tmp_path


def run(folder: Path, **variables: Any) -> str:
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": TASKS}
    (folder / "play.yml").write_text(json.dumps([play]))
    known = {
        "__containerd_config_file": str(folder / "config.toml"),
        "__containerd_registries_folder": str(folder / "certs"),
        "__containerd_proxy_path": str(folder / "unit" / "kubegpu-proxy.conf"),
        **variables,
    }
    words = ("-i", "localhost,", "-vvv", "--diff", "play.yml", "-e", json.dumps(known))
    done = ansible_playbook(*words, cwd=folder, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})
    assert "the end is reached" in done.stdout, done.stdout + done.stderr
    return done.stdout


def test_the_proxy_is_a_part_of_the_unit_as_long_as_there_is_one(folder: Path) -> None:
    options = {"kubegpu_proxy": PROXY, "kubegpu_no_proxy": [".corp"]}
    written = folder / "unit" / "kubegpu-proxy.conf"

    first = run(folder, **options)

    # systemd takes % for a beginning of its own.
    assert '"HTTPS_PROXY=http://user:pass%%40word@127.0.0.1:3128"' in written.read_text()
    assert '"NO_PROXY=localhost,127.0.0.1,.corp"' in written.read_text()
    assert written.stat().st_mode & 0o777 == 0o600
    assert "pass%40word" not in first
    assert "pass%%40word" not in first
    assert "changed=0" in run(folder, **options)
    run(folder)
    assert not written.exists()


def test_a_mirror_that_is_given_up_goes_and_that_of_somebody_else_stays(folder: Path) -> None:
    run(folder)

    assert [path.parent.name for path in sorted(folder.rglob("hosts.toml"))] == ["ghcr.io"]
    assert "changed=0" in run(folder)


@pytest.mark.parametrize("stays", [True, False])
def test_images_of_a_containerd_that_stays_are_not_removed(tmp_path: Path, stays: bool) -> None:
    """That of a distribution, of Docker or by hand: its package is not ours to purge, nor what it has pulled."""
    programs, data, main = tmp_path / "bin", tmp_path / "data", tmp_path / "config.toml"
    for folder in (programs, data):
        folder.mkdir()
    main.touch()
    if stays:
        (programs / "containerd").symlink_to("elsewhere")
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.include_role": {"name": "kubegpu.autoscale.containerd", "tasks_from": "purge"}}],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    known = {
        "__containerd_apt": dict.fromkeys(("name", "url", "suite", "version", "fingerprint", "key_url"), "none")
        | {"packages": ["none"]},
        "_common_apt_pin_file": str(tmp_path / "none.pref"),
        "_common_apt_files": [],
        "_common_apt_key_file": str(tmp_path / "none.asc"),
        "__containerd_config_file": str(main),
        "__containerd_packaged": str(tmp_path / "packaged"),
        "__containerd_bin_folders": [str(programs)],
        "__containerd_data": [str(data)],
    }
    words = ("-i", "localhost,", "play.yml", "-e", json.dumps(known))
    done = ansible_playbook(*words, cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})

    assert done.returncode == 0, done.stdout + done.stderr
    assert (data.exists(), main.exists()) == (stays, stays)
    assert ("this collection did not bring" in done.stdout) == stays
