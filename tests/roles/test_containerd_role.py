"""What the role containerd writes and removes, in a folder of this machine. tests/unit/nodes has the plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from driver_machines import BARE, DEBIAN
from own_apt import apt_paths

PROXY = "http://user:pass%40word@127.0.0.1:3128"
OURS = '# Written by kubegpu.autoscale\nserver = "https://ours"\n'


def part(name: str, when: str = "true") -> dict[str, Any]:
    return {
        "ansible.builtin.include_role": {"name": "kubegpu.autoscale.containerd", "tasks_from": name, "public": True},
        "when": when,
    }


# The last task fails, so that no handler restarts anything.
TASKS: list[dict[str, Any]] = [
    part("survey"),
    part("plan"),
    part("proxy", "__containerd_plan.steps.set_proxy or __containerd_plan.steps.remove_proxy"),
    part("mirrors", "__containerd_plan.files.mirrors | length > 0"),
    part("mirrors_absent", "__containerd_plan.files.mirrors_unwanted | length > 0"),
    {"ansible.builtin.fail": {"msg": "the end is reached"}},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a mirror of this collection and one that somebody has written."""
    for registry, text in (("docker.io", OURS), ("ghcr.io", 'server = "https://theirs"\n')):
        (tmp_path / "certs" / registry).mkdir(parents=True)
        (tmp_path / "certs" / registry / "hosts.toml").write_text(text)
    (tmp_path / "socket").mkdir()
    return tmp_path


def paths(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "config": str(folder / "config.toml"),
        "drop_ins": str(folder / "conf.d"),
        "registries": str(folder / "certs"),
        "proxy": str(folder / "unit" / "kubegpu-proxy.conf"),
        "socket": str(folder / "socket" / "containerd.sock"),
        "pod_network": str(folder / "socket" / "10-kubegpu.conflist"),
        "programs": [str(folder / "bin")],
        "data": [str(folder / "data")],
    } | more


def play(folder: Path, tasks: list[dict[str, Any]], **variables: Any) -> Any:
    facts = {"ansible.builtin.set_fact": {**DEBIAN, "cacheable": True}}
    rows = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [facts, *tasks]}
    rows["environment"] = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
    (folder / "play.yml").write_text(json.dumps([rows]))
    known = {"__containerd_paths": paths(folder), "_common_server": BARE, **variables}
    words = ("-i", "localhost,", "-vvv", "--diff", "play.yml", "-e", json.dumps(known))
    return ansible_playbook(*words, cwd=folder, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})


def run(folder: Path, **variables: Any) -> str:
    done = play(folder, TASKS, **variables)
    assert "the end is reached" in done.stdout, done.stdout + done.stderr
    return str(done.stdout)


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


def test_mirrors_are_written_once(folder: Path) -> None:
    options = {"kubegpu_image_mirror": "http://mirror.example", "containerd_mirrored_registries": "quay.io,docker.io"}
    run(folder, **options)

    assert 'server = "http://mirror.example/v2/quay.io"' in (folder / "certs" / "quay.io" / "hosts.toml").read_text()
    assert "changed=0" in run(folder, **options)


@pytest.mark.parametrize("stays", [True, False])
def test_images_of_a_containerd_that_stays_are_not_removed(tmp_path: Path, stays: bool) -> None:
    """That of a distribution, of Docker or by hand: its package is not ours to purge, nor what it has pulled."""
    programs, data, main = tmp_path / "bin", tmp_path / "data", tmp_path / "config.toml"
    for folder in (programs, data):
        folder.mkdir()
    main.touch()
    if stays:
        (programs / "containerd").symlink_to("elsewhere")
    done = play(
        tmp_path,
        [part("plan"), part("purge")],
        containerd_state="absent",
        _common_apt_paths=apt_paths(tmp_path),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert (data.exists(), main.exists()) == (stays, stays)


def test_a_drop_in_is_written_and_its_secret_is_not_shown(folder: Path) -> None:
    """By the containerd of a file: nothing of this machine is asked."""
    (folder / "bin").mkdir()
    (folder / "bin" / "containerd").write_text("#!/bin/sh\necho 'version = 3'\n")
    (folder / "bin" / "containerd").chmod(0o755)
    config = {
        "plugins": {"io.containerd.cri.v1.images": {"registry": {"configs": {"x": {"auth": {"password": "tre5or"}}}}}}
    }
    settings = {"2": {}, "3": {"debug": {"level": "info"}}}
    tasks = [
        {
            **part("drop_in"),
            "vars": {"__containerd_drop_in": {"name": "10-kubegpu.toml", "settings": settings, "config": config}},
        },
        {"ansible.builtin.fail": {"msg": "the end is reached"}},
    ]
    first, second = play(folder, tasks), play(folder, tasks)
    written = folder / "conf.d" / "10-kubegpu.toml"

    assert "the end is reached" in first.stdout, first.stdout + first.stderr
    assert 'password = "tre5or"' in written.read_text()
    assert written.stat().st_mode & 0o777 == 0o600
    assert "tre5or" not in first.stdout.partition("PLAY [")[2]
    assert "version = 3" in (folder / "config.toml").read_text()
    assert "changed=0" in second.stdout


@pytest.mark.parametrize("main", ["", '# comments\ndisabled_plugins = ["cri"]\n', 'version = 3\nroot = "/data"\n'])
def test_with_the_drop_in_the_main_file_is_as_it_was(folder: Path, main: str) -> None:
    """None, the package's, and one with settings."""
    (folder / "bin").mkdir()
    (folder / "bin" / "containerd").write_text("#!/bin/sh\necho 'version = 3'\n")
    (folder / "bin" / "containerd").chmod(0o755)
    if main:
        (folder / "config.toml").write_text(main)
    (folder / "theirs.txt").touch()  # so that the folder stays
    drop_in = {"name": "10-kubegpu.toml", "settings": {"2": {}, "3": {"debug": {"level": "info"}}}}
    written = {**part("drop_in"), "vars": {"__containerd_drop_in": drop_in}}
    removed = {**part("drop_in_absent"), "vars": {"__containerd_drop_in": {"name": drop_in["name"], "state": "absent"}}}

    first = play(folder, [written, {"ansible.builtin.fail": {"msg": "the end is reached"}}])
    imports = (folder / "config.toml").read_text()
    second = play(folder, [removed, {"ansible.builtin.fail": {"msg": "the end is reached"}}])

    assert "the end is reached" in first.stdout, first.stdout + first.stderr
    assert "the end is reached" in second.stdout, second.stdout + second.stderr
    assert f"{folder}/conf.d/*.toml" in imports
    assert ((folder / "config.toml").read_text() if main else (folder / "config.toml").exists()) == (main or False)
    assert not (folder / "conf.d").exists()
    assert [path.name for path in folder.glob("*before-kubegpu")] == []
