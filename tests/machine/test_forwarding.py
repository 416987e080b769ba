"""Pods of two servers reach each other through a firewall that drops, as Docker's does. No rule of the lab stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or not shutil.which("iptables")
    or not shutil.which("ip")
    or not Path("/proc/sys/net/bridge/bridge-nf-call-iptables").exists(),
    reason="takes root, ip, iptables and br_netfilter",
)

CHECKOUT = Path(__file__).parents[2]
# A machine with a bridge and two servers on it. Each has a pod's address, which is not of the bridge's network.
MACHINE = """
set -e
for server in 1 2; do
    unshare --net sleep 60 & pids[$server]=$!
    until [ "$(readlink /proc/${pids[$server]}/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
done
trap 'kill ${pids[1]} ${pids[2]}' EXIT
sysctl -q -w net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
ip link add lab0 type bridge; ip link set lab0 up
for server in 1 2; do
    ip link add end$server type veth peer name eth0 netns ${pids[$server]}
    ip link set end$server master lab0 up
    at="nsenter -t ${pids[$server]} -n ip"
    $at link set lo up; $at link set eth0 up
    $at address add 192.0.2.$server/24 dev eth0; $at address add 10.244.$server.7/32 dev lo
    $at route add 10.244.$((3 - server)).0/24 via 192.0.2.$((3 - server))
done
nsenter -t ${pids[2]} -n {python} -c 'import socket, time
kept = socket.create_server(("10.244.2.7", 80)); time.sleep(60)' & listener=$!
trap 'kill ${pids[1]} ${pids[2]} $listener' EXIT
until nsenter -t ${pids[2]} -n ss -lnt | grep -q :80; do sleep 0.05; done
probe() { nsenter -t ${pids[1]} -n {python} -c 'import socket
try: socket.create_connection(("10.244.2.7", 80), 1, ("10.244.1.7", 0)); print("reached")
except OSError: print("not")'; }
lab() { {python} -c "from lab import forwarding; print(forwarding.$1)"; }
iptables -P FORWARD DROP
iptables -A FORWARD -i docker0 -m comment --comment "another owner" -j ACCEPT
"""


def run(*commands: str) -> list[str]:
    """What each command prints, one after the other on one machine."""
    lines = [MACHINE.replace("{python}", sys.executable), *(f"echo ---; {command}" for command in commands)]
    argv = ["unshare", "--net", "--mount-proc", "--mount", "--fork", "--pid", "bash", "-c", "\n".join(lines)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    return [part.strip() for part in done.stdout.split("---")[1:]]


@pytest.mark.parametrize("chain", ["FORWARD", "DOCKER-USER"])
def test_pods_of_two_servers_reach_each_other_while_the_lab_is_up(chain: str) -> None:
    prepare = "true" if chain == "FORWARD" else "iptables -N DOCKER-USER; iptables -I FORWARD -j DOCKER-USER"
    _, before, dropped, added, rules, allowed, again, _, after, blocked = run(
        prepare,
        "iptables -S",
        "probe",
        'lab \'allow("mine", "lab0")\'',
        f"iptables -S {chain}",
        "probe",
        'lab \'allow("mine", "lab0")\'',
        "lab 'forbid(\"mine\")'",
        "iptables -S",
        "probe",
    )

    assert (dropped, allowed, blocked) == ("not", "reached", "not")
    assert (added, again) == ("True", "False")
    assert rules.count("kubegpu-lab:mine") == 1
    assert after == before


def test_rules_of_labs_that_do_not_run_go_and_no_others() -> None:
    *_, swept, rules = run(
        'lab \'allow("killed", "lab9")\'',
        'lab \'allow("mine", "lab0")\'',
        "lab 'sweep({\"mine\"})'",
        "iptables -S FORWARD",
    )

    assert swept == "['killed']"
    assert "kubegpu-lab:killed" not in rules
    assert "kubegpu-lab:mine" in rules
    assert "another owner" in rules
