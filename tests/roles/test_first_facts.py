"""What is checked before the first task that needs root: whether Ansible can answer sudo."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from task_walk import PLAYBOOKS, read

# Programs that become root, by how they end. sudo-rs has its own words for the prompt and for its absence.
ASKS = """case "$*" in
*' -n '*) echo 'sudo: interactive authentication is required' >&2; exit 1 ;;
esac
printf '[sudo: authenticate] Password: ' >&2; exec sleep 20
"""
RUNS = """while [ "$1" != root ]; do shift; done; shift
exec "$@"
"""
SU = 'while [ "$1" != -c ]; do shift; done\nexec /bin/sh -c "$2"\n'
RS, WS = "sudo-rs 0.2.10", "Sudo version 1.9.17p2"
FACTS = {"name": "kubegpu.autoscale._common", "tasks_from": "facts"}
PASSWORD = {"ansible_become_password": "pass"}


def gather(folder: Path, programs: dict[str, str], *flags: str, **variables: str) -> tuple[int, str]:
    """Its status and output. programs: the first of the PATH. Variables that begin with ANSIBLE are environment."""
    (folder / "bin").mkdir()
    for name, text in programs.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}")
        (folder / "bin" / name).chmod(0o755)
    tasks = [{"ansible.builtin.include_role": FACTS}]
    play = {"hosts": "localhost", "connection": "local", "become": True, "gather_facts": False, "tasks": tasks}
    (folder / "play.yml").write_text(json.dumps([play]))
    environment = {name: text for name, text in variables.items() if name.startswith("ANSIBLE")}
    given = {name: text for name, text in variables.items() if name not in environment}
    words = json.dumps({"ansible_local_become_success_timeout": 2, **given})
    done = ansible_playbook(
        "-i", "localhost,", "play.yml", "-e", words, *flags, cwd=folder,
        env={
            "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH,
            "ANSIBLE_BECOME_ALLOW_SAME_USER": "true",
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            **environment,
        },
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def sudo(version: str, then: str) -> str:
    return f"[ \"$1\" = --version ] && {{ echo '{version}'; exit 0; }}\n{then}"


def test_a_prompt_that_ansible_does_not_know_is_named(tmp_path: Path) -> None:
    """ansible/ansible#86849: otherwise a timeout that makes the server unreachable, without a reason."""
    status, said = gather(tmp_path, {"sudo": sudo(RS, ASKS)}, **PASSWORD)
    assert status != 0
    assert "Timed out waiting for become success" in said, "what Ansible says of it"
    assert "localhost has sudo-rs, which asks for a password" in said
    assert "ansible_become_exe: sudo.ws" in said
    assert "Gather facts" not in said


@pytest.mark.parametrize(
    ("flags", "variables"),
    [
        ((), {"ansible_become_exe": "sudo.ws"}),
        ((), {"ansible_sudo_exe": "sudo.ws"}),
        ((), {"ANSIBLE_BECOME_EXE": "sudo.ws"}),
        ((), {"ANSIBLE_SUDO_EXE": "sudo.ws"}),
        (("--become-method", "su"), {}),
        ((), {"ansible_become_method": "su"}),
        ((), {"ansible_become": "false"}),
    ],
    ids=str,
)
def test_a_login_that_works_beside_sudo_rs_is_not_refused(
    tmp_path: Path, flags: tuple[str, ...], variables: dict[str, str]
) -> None:
    programs = {"sudo": sudo(RS, ASKS), "sudo.ws": sudo(WS, RUNS), "su": SU}
    status, said = gather(tmp_path, programs, *flags, **PASSWORD, **variables)
    assert (status, "ok: [localhost]" in said) == (0, True), said


@pytest.mark.parametrize("version", [RS, WS])
def test_a_sudo_that_asks_for_no_password_is_not_refused(tmp_path: Path, version: str) -> None:
    status, said = gather(tmp_path, {"sudo": sudo(version, RUNS)})
    assert status == 0, said


def test_the_other_sudo_fails_in_the_words_of_ansible(tmp_path: Path) -> None:
    status, said = gather(tmp_path, {"sudo": sudo(WS, "echo 'sudo: a password is required' >&2; exit 1\n")})
    assert status != 0
    assert "a password is required" in said
    assert "sudo.ws" not in said


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
