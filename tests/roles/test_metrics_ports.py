"""Who reaches the metrics of the control plane: the script for the node's firewall, on a server with a neighbour."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import jinja2
import pytest
from collection import ROOT

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("iptables") or not shutil.which("ip"), reason="takes root, ip and iptables"
)

TEMPLATE = ROOT / "roles/kubernetes/templates/etc/kubegpu-metrics.j2"
UNIT = ROOT / "roles/kubernetes/files/etc/systemd/system/kubegpu-metrics.service"
# A server, and a neighbour with three addresses: of a pod, of a node, of nobody in the cluster.
SERVER = """
set -e
unshare --net sleep 60 & beside=$!
trap 'kill $beside $listener' EXIT
until [ "$(readlink /proc/$beside/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add eth0 type veth peer name eth0 netns $beside
ip address add 192.0.2.1/24 dev eth0; ip -6 address add 2001:db8::1/64 dev eth0 nodad
ip link set eth0 up; ip link set lo up
for address in 10.244.3.7/32 192.0.2.9/24 192.0.2.66/24; do nsenter -t $beside -n ip address add $address dev eth0; done
nsenter -t $beside -n ip -6 address add 2001:db8::66/64 dev eth0 nodad
nsenter -t $beside -n ip link set eth0 up
ip route add 10.244.3.7/32 dev eth0
{python} -c '{listen}' & listener=$!
until ss -lnt | grep -q :2381; do sleep 0.05; done
dropped() {{ # packets
    {{ iptables -nvxL KUBEGPU-METRICS; ip6tables -nvxL KUBEGPU-METRICS; }} 2>/dev/null |
        awk '$3 == "DROP" {{ n += $1 }} END {{ print n + 0 }}'
}}
from() {{ # ADDRESS TARGET PORT; "not" once the firewall has dropped a packet of it: a slow machine is no firewall
    was=$(dropped)
    nsenter -t $beside -n {python} -c 'import socket, sys
address, target, port = sys.argv[1:]
socket.create_connection((target, int(port)), timeout=50, source_address=(address, 0))
print("reached")' "$@" & client=$!
    while kill -0 $client 2>/dev/null; do
        if [ "$(dropped)" -gt "$was" ]; then
            kill $client
            echo not
            break
        fi
        sleep 0.05
    done
    wait $client || true
}}
"""
LISTENING = """
import socket, time
kept = [socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True) for port in (2381, 22)]
time.sleep(60)
"""


def script(folder: Path, *sources: str, ports: tuple[int, ...] = (10249, 2381)) -> Path:
    text = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined).from_string(TEMPLATE.read_text())
    ipv4, ipv6 = ([row for row in sources if (":" in row) is is_ipv6] for is_ipv6 in (False, True))
    path = folder / f"metrics-{len(sources)}-{len(ports)}"
    rendered = text.render(__kubernetes_plan={"metrics": {"ports": ports, "ipv4": ipv4, "ipv6": ipv6}})
    path.write_text(rendered)
    path.chmod(0o755)
    return path


def run(*commands: str) -> list[list[str]]:
    """Lines of what each command prints, one after the other on one server."""
    server = SERVER.format(python=sys.executable, listen=LISTENING)
    lines = [server, *(f"echo ---; {command}" for command in commands)]
    done = subprocess.run(["unshare", "--net", "bash", "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [[line.strip() for line in part.splitlines() if line] for part in done.stdout.split("---")[1:]]


def test_pods_and_nodes_reach_them_and_nobody_else(tmp_path: Path) -> None:
    asked = [
        ("10.244.3.7", "192.0.2.1", 2381),
        ("192.0.2.9", "192.0.2.1", 2381),
        ("192.0.2.66", "192.0.2.1", 2381),
        ("2001:db8::66", "2001:db8::1", 2381),
        ("192.0.2.66", "192.0.2.1", 22),
    ]
    words = [f"from {address} {target} {port}" for address, target, port in asked]
    before, _, after = run(
        "; ".join(words), f"{script(tmp_path, '10.244.0.0/16', '192.0.2.1', '192.0.2.9')} start", "; ".join(words)
    )

    assert before == ["reached"] * 5
    assert after == ["reached", "reached", "not", "not", "reached"]


def test_the_server_itself_reaches_them(tmp_path: Path) -> None:
    connect = 'import socket; socket.create_connection(("127.0.0.1", 2381), timeout=2); print("ok")'
    _, reached = run(f"{script(tmp_path, '10.244.0.0/16')} start", f"{sys.executable} -c '{connect}'")

    assert reached == ["ok"]


def test_a_change_leaves_one_rule_for_the_ports_that_are_wanted(tmp_path: Path) -> None:
    first, later = script(tmp_path, "10.244.0.0/16"), script(tmp_path, "10.244.0.0/16", "192.0.2.9", ports=(10249,))
    *_, rules, chain = run(
        f"{first} start; {later} start; {later} start", "iptables -S INPUT", "iptables -S KUBEGPU-METRICS"
    )

    assert [rule for rule in rules if "KUBEGPU" in rule] == [
        "-A INPUT ! -i lo -p tcp -m multiport --dports 10249 -j KUBEGPU-METRICS"
    ]
    assert [rule.split()[-1] for rule in chain[1:]] == ["RETURN", "RETURN", "DROP"]


def test_stop_takes_all_of_it_back(tmp_path: Path) -> None:
    path, before = script(tmp_path, "10.244.0.0/16"), "{ iptables-save; ip6tables-save; } | grep -e ^-A -e KUBEGPU"
    was, _, _, now = run(
        f"iptables -I INPUT -p tcp --dport 80 -j DROP; {before}", f"{path} start", f"{path} stop; {path} stop", before
    )

    assert now == was == ["-A INPUT -p tcp -m tcp --dport 80 -j DROP"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_the_unit_follows_each_firewall_that_flushes_all_rules(tmp_path: Path) -> None:
    """systemd reads the unit. Which one a restart or a reload of the firewall reaches, its dependencies say."""
    units = ["nftables.service", "iptables.service", "netfilter-persistent.service", "firewalld.service"]
    unit = tmp_path / "kubegpu-metrics.service"
    unit.write_text(UNIT.read_text().replace("/etc/kubegpu-metrics", "/bin/true"))
    settings = ConfigParser(strict=False)
    settings.optionxform = str  # type: ignore[assignment]
    settings.read(unit)
    for name in ("After", "PartOf", "ReloadPropagatedFrom"):
        assert settings["Unit"][name].split() == units
    assert settings["Install"]["WantedBy"].split() == ["multi-user.target", *units]
    verified = subprocess.run(["systemd-analyze", "verify", unit], check=False, capture_output=True, text=True)
    assert "kubegpu-metrics.service:" not in verified.stderr


def test_a_flush_opens_the_ports_and_a_reload_closes_them(tmp_path: Path) -> None:
    path, ask = script(tmp_path, "10.244.0.0/16"), "from 192.0.2.66 192.0.2.1 2381"
    closed, opened, again = run(f"{path} start; {ask}", f"iptables -F; iptables -X; {ask}", f"{path} start; {ask}")
    assert (closed, opened, again) == (["not"], ["reached"], ["not"])


def test_it_is_a_script_as_shellcheck_wants_it(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("shellcheck")
    path = script(tmp_path, "10.244.0.0/16", "2001:db8::/64")
    assert subprocess.run([program, path], check=False, capture_output=True, text=True).stdout == ""
