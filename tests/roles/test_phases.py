"""The callback of the shipped ansible.cfg: what is printed, and what the log has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml
from collection import ROOT

FILES = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
SHIPPED = ("airgap", "cluster", "existing-cluster", "single-node")
COPY = {"ansible.builtin.copy": {"content": "new\n", "dest": "{{ playbook_dir }}/written"}}
LOOP = {"ansible.builtin.command": {"argv": ["ls", "{{ item }}"]}, "loop": ["/", "/nowhere"], "changed_when": False}
PLAYS = [
    {
        "name": "Prepare the servers",
        "tasks": [
            {"name": "Skip", "ansible.builtin.command": "false", "when": False},
            {"name": "Show", "ansible.builtin.debug": {"msg": ["first 'line'", "second line"]}},
            {"name": "Write", **COPY},
            {"name": "Ignore", "ansible.builtin.command": "false", "changed_when": False, "ignore_errors": True},
        ],
    },
    {"name": "Skip all", "tasks": [{"name": "Skip", "ansible.builtin.command": "false", "when": False}]},
    {
        "name": "Sum up",
        "tasks": [
            {"name": "Hide", "ansible.builtin.debug": {"msg": "a secret"}, "no_log": True},
            {
                "name": "Summarize",
                "ansible.builtin.debug": {"msg": "Cluster: lab. Next: export KUBECONFIG=" + 90 * "x"},
            },
        ],
    },
]
FAILING = [
    {
        "name": "Check",
        "tasks": [
            {"name": "List", **LOOP, "ignore_errors": "{{ ignored }}"},
            {"name": "Refuse", "ansible.builtin.assert": {"that": False, "fail_msg": "a -> b: wrong. Next: fix it"}},
        ],
    }
]


def run(
    folder: Path, plays: list[dict[str, object]], *arguments: str, inventory: str = "cluster", colour: bool = False
) -> tuple[str, str]:
    """Its output without times, and its log."""
    (folder / "ansible.cfg").write_text((ROOT / "inventories" / inventory / "ansible.cfg").read_text())
    (folder / "hosts.yml").write_text("all: {hosts: {gpu1: {ansible_connection: local}}}\n")
    (folder / "play.yml").write_text(
        yaml.safe_dump([{"hosts": "gpu1", "gather_facts": False, **play} for play in plays])
    )
    return ansible(folder, "play.yml", *arguments, colour=colour)


def ansible(folder: Path, *arguments: str, colour: bool = False) -> tuple[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment["ANSIBLE_COLLECTIONS_PATH"] = str(ROOT / ".venv" / "collections")
    environment |= {"ANSIBLE_FORCE_COLOR" if colour else "ANSIBLE_NOCOLOR": "true"}
    environment["ANSIBLE_PYTHON_INTERPRETER"] = sys.executable
    playbook = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [playbook, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    text = re.sub(r"(?m)^ +\d+:\d\d  ", "TIME  ", done.stdout)
    return re.sub(r"  \d+:\d\d$", "", text, flags=re.M), (folder / ".kubegpu.log").read_text()


@pytest.mark.parametrize("path", [path for path in FILES if path.endswith("ansible.cfg")])
def test_each_configuration_prints_lines_and_keeps_a_log(path: str) -> None:
    """That of the checkout, which `make demo` and `make site` use, and those of the inventories."""
    config = ConfigParser()
    config.read(ROOT / path)
    assert config["defaults"]["stdout_callback"] == "kubegpu.autoscale.phases"
    assert config["defaults"]["log_path"].endswith(".log")


@pytest.mark.parametrize("inventory", SHIPPED)
def test_a_run_is_a_line_for_each_play_and_each_change(tmp_path: Path, inventory: str) -> None:
    output, log = run(tmp_path, PLAYS, inventory=inventory)

    assert re.sub(r"in \d+:\d\d\.", "in TIME.", output).splitlines() == [
        "TIME  Prepare the servers",
        "        changed: Write (gpu1)",
        "first 'line'",
        "second line",
        "TIME  Sum up",
        "",
        f"1 changed on 1 host in TIME. Log: {tmp_path}/.kubegpu.log",
        "Cluster: lab. Next: export KUBECONFIG=" + 90 * "x",
    ]
    assert "TASK [Skip]" in log
    assert "...ignoring" in log
    assert "a secret" not in output + log


WARNS = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({})
module.warn("HPA ml/chat belongs to inventory one, and stays")
module.exit_json()
"""


def test_warnings_of_all_plays_are_the_last_lines_in_colour(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "warns.py").write_text(WARNS)
    missing = {"name": "Warn", "ansible.builtin.debug": {"msg": "WARNING: Deployment ml/chat does not exist"}}
    plays = [{"name": "First", "tasks": [missing, {"name": "Remove", "warns": {}}]}, *PLAYS]
    output, _log = run(tmp_path, plays)

    assert output.splitlines()[-3:] == [
        "Cluster: lab. Next: export KUBECONFIG=" + 90 * "x",
        "WARNING: Deployment ml/chat does not exist",
        "WARNING: HPA ml/chat belongs to inventory one, and stays",
    ]
    coloured, _log = run(tmp_path, plays, colour=True)
    assert "\x1b[1;35mWARNING: Deployment ml/chat does not exist\x1b[0m" in coloured.splitlines()[-2]


def test_a_run_without_a_host_says_that_nothing_ran(tmp_path: Path) -> None:
    output, _log = run(tmp_path, [{**PLAYS[0], "hosts": "kube_node"}])

    assert output.splitlines()[-1].startswith("WARNING: nothing ran, because the inventory has none of the hosts.")


def test_check_mode_reports_what_would_change(tmp_path: Path) -> None:
    output, _log = run(tmp_path, PLAYS, "--check", "--diff")

    assert "        would change: Write (gpu1)\n" in output
    assert "+new\n" in output
    assert "1 would change on 1 host" in output


def test_a_failure_is_one_line(tmp_path: Path) -> None:
    output, log = run(tmp_path, FAILING, "-e", '{"ignored": true}')

    assert re.findall(r".*FAILED.*", output) == ["        FAILED: Refuse (gpu1): a -> b: wrong. Next: fix it"]
    assert output.endswith("Failed: gpu1\n")
    assert "fatal: [gpu1]" in log


def test_only_items_that_failed_are_named_with_their_error(tmp_path: Path) -> None:
    output, _log = run(tmp_path, FAILING, "-e", '{"ignored": false}')

    (failed,) = re.findall(r".*FAILED.*", output)
    # The first words are those of ansible-core: others since 2.21.
    assert re.match(r"        FAILED: List \(gpu1\): .*non-zero return code: ls: cannot access '/nowhere'", failed)


@pytest.mark.parametrize("inventory", ["airgap", "cluster", "single-node"])
def test_the_example_addresses_are_refused_before_a_connection(tmp_path: Path, inventory: str) -> None:
    shipped = ROOT / "inventories" / inventory
    output, _log = ansible(shutil.copytree(shipped, tmp_path / "my-servers"), "kubegpu.autoscale.site")

    addresses = re.findall(r"192[.]0[.]2[.]\d+", (shipped / "hosts.yml").read_text())
    refused = re.findall(r"FAILED: .*: inventory -> server: (\S+) is an address of the example inventory", output)
    assert sorted(refused) == sorted(addresses)


def test_verbose_output_is_that_of_ansible(tmp_path: Path) -> None:
    output, _log = run(tmp_path, FAILING, "-v", "-e", '{"ignored": true}')

    assert "PLAY [Check] ***" in output
    assert "fatal: [gpu1]: FAILED! =>" in output
    assert "PLAY RECAP" in output
    assert "TIME" not in output
