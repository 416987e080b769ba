"""From a bare server to a pod with a GPU: one command, by ssh as a user with sudo, and one reboot for nouveau."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from server import EPHEMERAL, SYSTEM, USER_ENVIRONMENT, Server
from testinfra.host import Host

testinfra_hosts = ["ansible://kube_node"]

# The lab's comes last, so it wins: it has a mirror.
INVENTORIES = ("-i", EPHEMERAL / "my-servers", "-i", EPHEMERAL / "lab")
# What site.yml begins with; the rest of it is on the cluster, whatever the servers run.
PLAYBOOKS = [f"kubegpu.autoscale.{name}" for name in ("nodes", "cluster", "gpu")]
PLAY = (Path(sys.executable).with_name("ansible-playbook"), *INVENTORIES)
COMMAND = (*PLAY, *PLAYBOOKS)
# What is its user's own: a key, a list of known hosts, and no ansible.cfg.
CONTROLLER = USER_ENVIRONMENT | {
    "ANSIBLE_PRIVATE_KEY_FILE": str(EPHEMERAL / "login"),
    "ANSIBLE_SSH_COMMON_ARGS": f"-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={EPHEMERAL}/known_hosts",
    "ANSIBLE_SSH_CONTROL_PATH_DIR": str(EPHEMERAL / "sessions"),
    "ANSIBLE_PIPELINING": "false",
}
IMAGE = "docker.io/library/python:3.11-slim"
LOOK = "import os; print([name for name in os.listdir('/dev') if name[:6] == 'nvidia' and name[6:].isdigit()])"
POD = {
    "spec": {
        "runtimeClassName": "nvidia",
        "containers": [
            {
                "name": "look",
                "image": IMAGE,
                "command": ["python", "-c", LOOK],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }
        ],
    }
}


@dataclass(frozen=True)
class FirstRun:
    """How it ended, and how often the server shut down meanwhile."""

    code: int
    shutdowns: int


@pytest.fixture(scope="module")
def bare(host: Host) -> dict[str, str]:
    """What the server shows before anything is done to it."""
    shown = {
        "system": ". /etc/os-release; echo $ID-$VERSION_ID",
        "nouveau": "readlink /sys/bus/pci/devices/*/driver | xargs basename --multiple | sort --unique",
        "swap": "cat /proc/swaps",
    }
    return {name: host.check_output(command) for name, command in shown.items()}


@pytest.fixture(scope="module")
def first_run(host: Host, bare: dict[str, str]) -> FirstRun:
    log = EPHEMERAL / "first_run.log"  # no pipe: ssh's session in the background would hold it for a minute
    with Server(host).bootable() as shutdowns, log.open("w") as out:
        code = subprocess.run(COMMAND, cwd=EPHEMERAL / "my-servers", env=CONTROLLER, stdout=out, stderr=out).returncode
    print(log.read_text())
    return FirstRun(code, len(shutdowns))


def test_it_begins_with_nouveau_and_swap(bare: dict[str, str]) -> None:
    assert bare["system"] == SYSTEM
    assert bare["nouveau"] == "nouveau"
    assert "/swap.img" in bare["swap"]


def test_one_command_and_one_reboot_are_enough(first_run: FirstRun) -> None:
    assert first_run.code == 0
    assert first_run.shutdowns == 1


def test_it_went_by_ssh_as_a_user_who_is_not_root(host: Host, first_run: FirstRun) -> None:
    accepted = host.check_output("journalctl --unit ssh --grep 'Accepted publickey' --output cat")

    assert set(re.findall(r"for (\S+) from", accepted)) == {"ubuntu"}


def test_nouveau_and_swap_are_gone(host: Host, first_run: FirstRun) -> None:
    assert not host.file("/sys/bus/pci/devices/0000:10:00.0/driver").exists
    assert host.check_output("cat /proc/swaps") == "Filename"
    assert host.check_output("cat /run/swapped") == "/usr/local/sbin/swapoff --all"


def test_a_pod_gets_the_gpu_that_it_asks_for(host: Host, first_run: FirstRun) -> None:
    kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
    host.check_output(f"{kubectl} run look --image {IMAGE} --restart Never --overrides {shlex.quote(json.dumps(POD))}")
    host.check_output(f"{kubectl} wait --for=jsonpath='{{.status.phase}}'=Succeeded --timeout=120s pod/look")

    assert re.fullmatch(r"\['nvidia\d'\]", host.check_output(f"{kubectl} logs look"))


def test_each_playbook_by_itself_finds_what_the_others_have_left(host: Host, first_run: FirstRun) -> None:
    """In a process of its own a playbook knows of the servers what it asks them. `gpu` finds their GPUs by PCI."""
    kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
    label = f"{kubectl} get node --selector nvidia.com/gpu.present=true --output name"
    host.check_output(f"{kubectl} label node --all nvidia.com/gpu.present-")
    log = EPHEMERAL / "alone.log"
    for playbook in PLAYBOOKS:
        with log.open("a") as out:
            where = {"cwd": EPHEMERAL / "my-servers", "env": CONTROLLER}
            code = subprocess.run((*PLAY, playbook), **where, stdout=out, stderr=out).returncode
        assert code == 0, log.read_text()

    assert re.search(r"Detect the GPUs\] \*+\nok: ", log.read_text())
    assert re.findall(r"changed=(\d+)", log.read_text()).count("0") >= 3, "servers have all that they are to have"
    assert host.check_output(label).startswith("node/")
