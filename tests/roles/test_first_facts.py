"""What is checked before the first task that needs root: whether Ansible can answer sudo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from task_walk import PLAYBOOKS, read

# As the two programs of Ubuntu 26.04 introduce themselves.
SUDO = """#!/bin/sh
[ "$1" = --version ] && {{ echo '{version}'; exit 0; }}
[ "$1" = --non-interactive ] && {{ echo 'sudo: interactive authentication is required' >&2; exit {rc}; }}
"""
FACTS = {"name": "kubegpu.autoscale._common", "tasks_from": "facts"}


@pytest.mark.parametrize(
    ("version", "rc", "refused"),
    [("sudo-rs 0.2.10", 1, True), ("sudo-rs 0.2.10", 0, False), ("Sudo version 1.9.17p2", 1, False)],
    ids=["asks for a password", "asks for none", "the other sudo"],
)
def test_a_prompt_that_ansible_does_not_know_is_named(tmp_path: Path, version: str, rc: int, refused: bool) -> None:
    """ansible/ansible#86849: otherwise a timeout that makes the server unreachable, without a reason."""
    (sudo := tmp_path / "sudo").write_text(SUDO.format(version=version, rc=rc))
    sudo.chmod(0o755)
    tasks = [{"ansible.builtin.include_role": FACTS}]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = ansible_playbook(
        "-i", "localhost,", "play.yml", "-e", json.dumps({"ansible_become_exe": str(sudo)}), cwd=tmp_path,
        env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH},
    )  # fmt: skip
    said = " ".join((done.stdout + done.stderr).split())
    assert (done.returncode != 0) is refused, said
    assert ("ansible_become_exe: sudo.ws" in said) is refused


# Their own tasks connect to no server.
NOTHING_YET = ("ansible.builtin.assert", "ansible.builtin.debug")
PREPARATION = ("left_out",)
# An unreachable server is a finding of the doctor.
EXAMINED = {"doctor"}


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_the_first_play_with_root_asks_first(playbook: Path) -> None:
    plays = [play for play in read(playbook) if play.get("become") is True]
    assert bool(plays) is ("become: true" in playbook.read_text())
    if not plays or playbook.stem in EXAMINED:
        return
    play = next(play for play in plays if "localhost" not in play["hosts"])  # the removal is confirmed there, too
    tasks = [*play.get("pre_tasks", []), *play.get("tasks", [])]
    connecting = (task for task in tasks if not any(name in task for name in NOTHING_YET))
    roles = (task.get("ansible.builtin.include_role", {}) for task in connecting)
    first = next(role for role in roles if role.get("tasks_from") not in PREPARATION)
    assert {name: first[name] for name in FACTS} == FACTS
