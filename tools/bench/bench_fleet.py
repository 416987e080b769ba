"""Fifty servers by ssh, with the limits that sshd has by default and as many forks: do all of them stay reachable, and
do three that fail in different steps hold up the others? And how does the time grow from five servers to fifty?

The servers are containers of a lab of its own. The others are copies of the first one, on which the roles have run
unless `--fresh` is given, and each has an sshd as its package configures it. The node roles, their checks and the joins
run as they are. kubeadm is a stand-in that writes down what it is called for, because fifty kubelets are too much for
one machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import bench_servers
import yaml
from bench_servers import ANSIBLE_PLAYBOOK, call, within
from bench_site import CALLBACK, CHECKOUT, SiteRun, _cpu_s, summary

PLAYBOOK = str(CHECKOUT / "tools/bench/fleet.yml")
LOGIN = str(CHECKOUT / "molecule/shared/tasks/login.yml")
LEADER = bench_servers.FIRST
# Where each of three servers fails: before a change, in a node role, at its join.
FULL, WITHOUT_RUNTIME, WITHOUT_JOIN = "node7", "node19", "node33"
FAILING = (FULL, WITHOUT_RUNTIME, WITHOUT_JOIN)
GROWTH = 0.6
# With fewer the machine's own processors decide, since they are those of all servers as well.
CORES = 32
TOKEN = "abcdef.0123456789abcdef"
KUBEADM = f"""#!/bin/sh
echo "$1 $2" >> /var/log/kubeadm-calls
case "$*" in
  "token create"*) echo "kubeadm join cp:6443 --token {TOKEN} --discovery-token-ca-cert-hash sha256:{"0" * 64}" ;;
  join*) [ ! -e /etc/kubegpu-fails ] || {{ echo "the test wants it" >&2; exit 1; }} ;;
esac
"""


@dataclass(frozen=True)
class FleetRun:
    """A run on so many servers.

    run:         what it cost; cpu_s is the controller's alone.
    unreachable: servers that the controller lost.
    failed:      servers on which a task failed.
    joined:      servers whose join succeeded.
    left_out:    what plays on the cluster were told to do without.
    tokens:      how often the control plane was asked for one.
    """

    servers: int
    run: SiteRun
    unreachable: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    joined: int = 0
    left_out: list[str] = field(default_factory=list)
    tokens: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forks", type=int, default=50, help="(default: %(default)s)")
    parser.add_argument("--servers", default="5,50", help="how many, 50 at most (default: %(default)s)")
    parser.add_argument("--fresh", action="store_true", help="no role has run on the servers before their first run")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.servers.split(",")]
    with fleet(fresh=arguments.fresh) as inventory:
        runs = [run(inventory, count, arguments.forks) for count in counts]
    growth = {what: power(runs[0], runs[-1], what) for what in ("seconds", "cpu_s") if len(runs) > 1}
    print(json.dumps({"runs": [asdict(run) for run in runs], "growth": growth, "cores": os.cpu_count()}, indent=1))
    if faults := [*(fault for run in runs for fault in faults_of(run)), *slow(growth, os.cpu_count() or 1)]:
        sys.exit("\n".join(faults))


def faults_of(run: FleetRun) -> Iterator[str]:
    """What a run should not have done, a sentence each."""
    failing = sorted(name for name in FAILING if name in names(run.servers))
    if run.unreachable:
        yield f"{run.servers} servers: lost {', '.join(run.unreachable)}"
    if sorted(run.failed) != failing:
        failed, wanted = (", ".join(names) or "none" for names in (run.failed, failing))
        yield f"{run.servers} servers: {failed} failed, and {wanted} should"
    if sorted(run.left_out) != failing:
        yield f"{run.servers} servers: the cluster goes on without {', '.join(run.left_out) or 'none'}"
    if run.joined != run.servers - 1 - len(failing):
        yield f"{run.servers} servers: {run.joined} joined"
    if run.tokens != 1:
        yield f"{run.servers} servers: {run.tokens} tokens were made"


def power(few: FleetRun, many: FleetRun, what: str) -> float:
    """By which power of the number of servers something grows."""
    return round(math.log(getattr(many.run, what) / getattr(few.run, what)) / math.log(many.servers / few.servers), 2)


def slow(growth: Mapping[str, float], cores: int) -> Iterator[str]:
    if cores >= CORES and growth.get("seconds", 0) > GROWTH:
        yield f"the time grows by a power of {growth['seconds']}, and {GROWTH} is allowed"


def names(servers: int) -> list[str]:
    return [f"node{number + 1}" for number in range(servers)]


def run(inventory: Path, servers: int, forks: int) -> FleetRun:
    within(LEADER, "truncate --size 0 /var/log/kubeadm-calls")
    environment = {
        "ANSIBLE_STDOUT_CALLBACK": CALLBACK,
        "ANSIBLE_FORKS": str(forks),
        # As the ansible.cfg of the example inventories has it.
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=300s -o ServerAliveInterval=30",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(inventory.parent / "sessions"),
        "ANSIBLE_SSH_COMMON_ARGS": "-o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no -o LogLevel=ERROR",
    }
    began, cpu = time.monotonic(), _cpu_s()
    limit = ",".join(["localhost", *names(servers)])
    done = subprocess.run(
        [ANSIBLE_PLAYBOOK, "-i", inventory, PLAYBOOK, "--limit", limit, "-e", "kubegpu_fail_fast=false"],
        cwd=CHECKOUT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    seconds, cpu_s = time.monotonic() - began, _cpu_s() - cpu
    told = json.loads(done.stdout[done.stdout.index("{") :])
    (inventory.parent / f"{servers}.json").write_text(done.stdout)
    stats = told["stats"]
    print(f"{servers} servers: {seconds:.1f} s, {cpu_s:.1f} s of processor", file=sys.stderr, flush=True)
    return FleetRun(
        servers=servers,
        run=summary(told, seconds, cpu_s),
        unreachable=[host for host, row in stats.items() if row["unreachable"]],
        failed=[host for host, row in stats.items() if row["failures"]],
        joined=joined(told),
        left_out=next(iter(results(told, "Report what the cluster goes on without")), {}).get("_common_left_out") or [],
        tokens=within(LEADER, "cat /var/log/kubeadm-calls").count("token create"),
    )


def joined(told: Mapping[str, Any]) -> int:
    """How many servers joined. A command that fails has changed something as well."""
    return sum(bool(result.get("changed")) and not result.get("failed") for result in results(told, "Join"))


def results(told: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Of the tasks with this name, one for each host."""
    for play in told["plays"]:
        for task in play["tasks"]:
            if task["task"]["name"].endswith(name):
                yield from task["hosts"].values()


@contextmanager
def fleet(*, fresh: bool) -> Iterator[Path]:
    """The inventory of fifty servers by ssh; they are gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with bench_servers.servers(lambda inventory: prepare(inventory, folder), fresh=fresh) as lab:
            yield with_ssh(lab, folder)


def prepare(inventory: Path, folder: Path) -> None:
    """Give the server that all are copied from a login by ssh, and a kubeadm that is none."""
    tasks = [
        {"ansible.builtin.include_tasks": LOGIN, "vars": {"login_key": str(folder / "login")}},
        {"ansible.builtin.file": {"path": "/etc/kubernetes/kubegpu", "state": "directory", "mode": "0700"}},
        {"ansible.builtin.copy": {"content": KUBEADM, "dest": "/usr/local/bin/kubeadm", "mode": "0755"}},
        {"ansible.builtin.copy": {"content": "", "dest": "/var/log/kubeadm-calls", "mode": "0644"}},
    ]
    playbook = folder / "login.yml"
    playbook.write_text(json.dumps([{"hosts": "kube_node", "gather_facts": False, "tasks": tasks}]))
    call(ANSIBLE_PLAYBOOK, "-i", str(inventory), str(playbook))


def with_ssh(lab: Path, folder: Path) -> Path:
    """The lab's inventory with the servers' addresses; three of them get what makes them fail."""
    inventory: dict[str, Any] = yaml.safe_load(lab.read_text())
    groups = inventory["all"]["children"]
    for group in groups.values():
        for name in group["hosts"]:
            group["hosts"][name] = {
                "ansible_host": within(name, "hostname --all-ip-addresses").split()[0],
                "ansible_user": "ubuntu",
                "ansible_ssh_private_key_file": str(folder / "login"),
                "ansible_python_interpreter": "/usr/bin/python3",
            }
    groups["kube_node"]["hosts"][FULL]["kubegpu_free_gib"] = {"/var/lib": 1_000_000}
    within(WITHOUT_RUNTIME, "systemctl mask --now containerd.service")
    within(WITHOUT_JOIN, "touch /etc/kubegpu-fails")
    (folder / "group_vars").symlink_to(CHECKOUT / "inventories/lab/group_vars")
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    return folder / "hosts.yml"


if __name__ == "__main__":
    main()
