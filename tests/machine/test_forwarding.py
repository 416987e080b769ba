"""Pods of two servers reach each other through firewalls that drop, as Docker's does. No rule of the lab stays."""

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


DOCKER = "iptables -N DOCKER-USER; iptables -I FORWARD -j DOCKER-USER"
LEGACY = "iptables-nft -P FORWARD ACCEPT; iptables-legacy -P FORWARD DROP"
NFT = "nft add table inet site; nft add chain inet site forward '{ type filter hook forward priority 0; policy drop; }'"
# Not installed for a test: it would be a firewall of the machine.
HAS_UFW = shutil.which("ufw") is not None
# ufw itself, with a copy of its settings that is gone with the machine.
UFW = (
    "ufw --version >/dev/null; mount -t tmpfs tmpfs /mnt; cp -a /etc/ufw /mnt; mount --bind /mnt/ufw /etc/ufw; "
    "ufw --force enable >/dev/null"
)
FIREWALLS = {
    "a policy": ("true", "iptables -S FORWARD"),
    "Docker": (DOCKER, "iptables -S DOCKER-USER"),
    "iptables-legacy beside iptables-nft": (LEGACY, "iptables-legacy -S FORWARD"),
    "a chain of nft": (NFT, "nft list chain inet site forward"),
}
if HAS_UFW:
    FIREWALLS["ufw"] = (UFW, "iptables -S FORWARD")


@pytest.mark.parametrize("firewall", FIREWALLS)
def test_pods_of_two_servers_reach_each_other_while_the_lab_is_up(firewall: str) -> None:
    prepare, listed = FIREWALLS[firewall]
    for tool in {prepare.split()[0], listed.split()[0]} - {"true"}:
        if not shutil.which(tool):
            pytest.skip(f"takes {tool}")
    rules = f"iptables -S; {listed}"

    _, before, dropped, added, during, allowed, again, _, after, blocked = run(
        prepare,
        rules,
        "probe",
        'lab \'allow("mine", "lab0")\'',
        listed,
        "probe",
        'lab \'allow("mine", "lab0")\'',
        "lab 'forbid(\"mine\")'",
        rules,
        "probe",
    )

    assert (dropped, allowed, blocked) == ("not", "reached", "not")
    assert (added, again) == ("True", "False")
    assert during.count("kubegpu-lab:mine") == 1
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


def test_a_clean_machine_has_no_rule_of_a_lab(tmp_path: Path) -> None:
    """Nothing but its rule may be left of a lab."""
    podman = tmp_path / "podman"
    podman.write_text('#!/bin/sh\ncase "$*" in *json*) echo "[]" ;; esac\n')
    podman.chmod(0o755)
    environment = f"PATH={tmp_path}:$PATH XDG_CACHE_HOME={tmp_path} LAB=mine LAB_INVENTORY={tmp_path}/hosts.yml"

    _, cleaned, rules = run(
        'lab \'allow("killed", "lab9")\'',
        f"{environment} {sys.executable} -m lab clean",
        "iptables -S FORWARD",
    )

    assert cleaned == ""
    assert "kubegpu-lab:" not in rules
    assert "another owner" in rules


@pytest.mark.parametrize(
    "firewall", ["iptables -P INPUT ACCEPT", "iptables -P INPUT DROP", *([UFW] if HAS_UFW else [])]
)
def test_servers_reach_the_name_server_of_their_machine(firewall: str) -> None:
    """podman's answers on the bridge, and ufw drops what comes in. A machine that accepts it keeps its chain."""
    if not shutil.which(firewall.split()[0]):
        pytest.skip(f"takes {firewall.split()[0]}")
    accepts = firewall.endswith("ACCEPT")
    ask = f"""{sys.executable} -c 'import socket
try: socket.create_connection(("192.0.2.254", 53), 1); print("reached")
except OSError: print("not")'"""
    listen = f"""{sys.executable} -c 'import socket, time
kept = socket.create_server(("192.0.2.254", 53)); time.sleep(60)' & names=$!
trap 'kill ${{pids[1]}} ${{pids[2]}} $listener $names' EXIT
until ss -lnt | grep -q :53; do sleep 0.05; done"""
    _, before, asked, _, during, again, _, after = run(
        f"ip address add 192.0.2.254/24 dev lab0; {listen}; {firewall}",
        "iptables -S INPUT",
        f"nsenter -t ${{pids[1]}} -n {ask}",
        'lab \'allow("mine", "lab0")\'',
        "iptables -S INPUT",
        f"nsenter -t ${{pids[1]}} -n {ask}",
        "lab 'forbid(\"mine\")'",
        "iptables -S INPUT",
    )

    assert asked == ("reached" if accepts else "not")
    assert again == "reached"
    assert during.count("kubegpu-lab:mine") == (0 if accepts else 2)
    assert after == before
