"""The steps of a restore: all servers take each one before the next, and none after one has failed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, ROOT
from upkeep_servers import PROGRAM as PROGRAM_OF_SERVERS

TASKS = yaml.safe_load((ROOT / "roles/kubernetes/tasks/restore.yml").read_text())
STEPS = ["restore-prepare", "restore-stop", "restore-swap"]
# What the program does is not looked at here. One server is slow.
PROGRAM = """import json, pathlib, sys, time
host, log, fails, step = sys.argv[1:5]
time.sleep(0.3 if host == "cp2" else 0)
with open(log, "a") as file: file.write(f"{step} {host}\\n")
if f"{step} {host}" == fails: sys.exit("damaged")
print(json.dumps({"changed": True}))
"""


def test_the_role_has_all_steps_of_the_program_in_their_order() -> None:
    """A step that it lacks would be left out without a word."""
    (loop,) = (task["loop"] for task in TASKS if "loop" in task)
    assert loop == re.findall(r'command\("(restore-\w+)"', PROGRAM_OF_SERVERS.read_text())


@pytest.mark.parametrize("fails", ["", "restore-stop cp2"])
def test_all_servers_take_each_step_before_the_next(tmp_path: Path, fails: str) -> None:
    log = tmp_path / "log"
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["python3", f"{tmp_path}/program.py", "{{ inventory_hostname }}", str(log), fails or "none"]
    given = {
        "kubernetes_restore_state": "absent",
        "__kubernetes_upkeep": words,
        "__kubernetes_upkeep_differing": [],
        "__kubernetes_plan": {"upkeep": {"enabled": True}},
        # As with a folder of backups that differs between servers.
        "__kubernetes_restore": {
            "copied_to": [],
            "commands": [[step, "--backup", "/backups/{{ inventory_hostname }}"] for step in STEPS],
        },
    }
    role = {"name": "kubegpu.autoscale.kubernetes", "tasks_from": "restore"}
    tasks = [{"ansible.builtin.include_role": role, "vars": given}]
    play = {"hosts": "all", "gather_facts": False, "any_errors_fatal": True, "tasks": tasks}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    (tmp_path / "inventory").write_text("cp1\ncp2\ncp3\n[all:vars]\nansible_connection=local\n")

    environment = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH}
    done = ansible_playbook("-i", "inventory", "play.yml", cwd=tmp_path, env=environment)

    ran = [line.split()[0] for line in log.read_text().splitlines()]
    assert ran == [step for step in (STEPS[:2] if fails else STEPS) for _ in range(3)], done.stdout
    assert (done.returncode != 0) is bool(fails)
