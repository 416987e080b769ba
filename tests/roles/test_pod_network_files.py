"""The script that connects the pods of nodes, in a separate network: what it adds, keeps and removes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jinja2
import pytest
from collection import ROOT

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("iptables") or not shutil.which("ip"), reason="takes root, ip and iptables"
)

TEMPLATE = ROOT / "roles/kubernetes/templates/etc/kubegpu-pod-network.j2"
SERVER = """
set -e
ip link add eth0 type bridge; ip address add 192.0.2.1/24 dev eth0; ip link set eth0 up; ip link set lo up
ip route add 198.51.100.0/24 via 192.0.2.9
iptables --policy FORWARD DROP; iptables --append FORWARD --jump DROP
"""
ROUTES, FORWARD, NAT = "ip route show proto 117", "iptables --list-rules FORWARD", "iptables -t nat -S POSTROUTING"


def script(folder: Path, *others: int) -> Path:
    """The script of gpu1 in a cluster with these others."""
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    text = environment.from_string(TEMPLATE.read_text()).render(
        __kubernetes_plan={
            "network": {
                "routes": [f"10.244.{number}.0/24 via 192.0.2.{number}" for number in others],
                "pod_cidr": "10.244.1.0/24",
            }
        },
        kubernetes_pod_subnet="10.244.0.0/16",
        kubernetes_service_subnet="10.96.0.0/12",
    )
    path = folder / "-".join(["network", *map(str, others)])
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(*commands: str) -> list[list[str]]:
    """Lines of what each command prints, one after the other on one server."""
    lines = [SERVER, *(f"echo ---; {command}" for command in commands)]
    done = subprocess.run(["unshare", "--net", "sh", "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [[line.strip() for line in part.splitlines() if line] for part in done.stdout.split("---")[1:]]


def test_pods_of_other_nodes_are_reached_whatever_the_firewall_forwards(tmp_path: Path) -> None:
    """Docker and ufw forward nothing that they do not know."""
    _, routes, forward, nat = run(f"{script(tmp_path, 2, 3)} start", ROUTES, FORWARD, NAT)

    assert routes == ["10.244.2.0/24 via 192.0.2.2 dev eth0", "10.244.3.0/24 via 192.0.2.3 dev eth0"]
    assert [rule.split()[-1] for rule in forward] == ["DROP", "ACCEPT", "ACCEPT", "DROP"]
    assert [rule for rule in nat if "MASQUERADE" in rule and "-s 10.244.1.0/24 ! -d 10.244.0.0/16" in rule]


def test_a_service_without_endpoints_is_left_to_kube_proxy(tmp_path: Path) -> None:
    """kube-proxy rejects the connection. Where another rule accepts it first, it leaves the cluster."""
    _, forward = run(f"{script(tmp_path, 2)} start", FORWARD)

    accepted = [rule for rule in forward if rule.endswith("ACCEPT")]
    assert [rule for rule in accepted if "-d 10.244.0.0/16" not in rule and "! -d 10.96.0.0/12" not in rule] == []


def test_a_new_node_changes_nothing_for_the_others(tmp_path: Path) -> None:
    """Their routes are not away for a moment, nor is a rule there twice."""
    program = tmp_path / "bin" / "ip"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\nexec {shutil.which("ip")} "$@"\n')
    program.chmod(0o755)
    later = f"PATH={program.parent}:$PATH {script(tmp_path, 2, 3, 4)} start; cat {tmp_path}/asked"
    _, asked, routes, forward, nat = run(f"{script(tmp_path, 2, 3)} start", later, ROUTES, FORWARD, NAT)

    assert [line for line in asked if line.split()[1] not in {"replace", "-4"} and "show" not in line] == []
    assert len(routes) == 3
    assert sum("kubegpu" in rule for rule in forward + nat) == 3


def test_a_node_that_left_is_forgotten_and_routes_of_others_stay(tmp_path: Path) -> None:
    first, later = script(tmp_path, 2, 3), script(tmp_path, 3)
    _, routes, theirs = run(f"{first} start; {later} start", ROUTES, "ip route show 198.51.100.0/24")

    assert routes == ["10.244.3.0/24 via 192.0.2.3 dev eth0"]
    assert theirs == ["198.51.100.0/24 via 192.0.2.9 dev eth0"]


def test_it_is_a_script_as_shellcheck_wants_it(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("shellcheck")
    assert subprocess.run([program, script(tmp_path, 2, 3)], check=False, capture_output=True, text=True).stdout == ""


def test_stop_takes_all_of_it_back(tmp_path: Path) -> None:
    path = script(tmp_path, 2, 3)
    before = "ip route; iptables-save | grep '^-A'"
    was, _, _, now = run(before, f"{path} start", f"{path} stop", before)

    assert now == was
