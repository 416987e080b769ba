"""The lab's way through the machine's firewall.

br_netfilter, which the servers need, has the machine's iptables judge what goes from server to server as well. Docker
and ufw set the policy of FORWARD to DROP: servers reach each other by what podman allows, and their pods do not.
One rule a lab accepts what stays on its bridge. It carries the lab's name, so that whoever comes next can remove it.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Collection

from lab import preflight

MARK = "kubegpu-lab:"
# Docker never touches the first one, and evaluates it before its own chains.
CHAINS = ("DOCKER-USER", "FORWARD")


def allow(lab: str, bridge: str) -> bool:
    """Accept what stays on the lab's bridge. Returns whether a rule was added."""
    chain = next((chain for chain in CHAINS if _iptables("--list-rules", chain).returncode == 0), None)
    rule = ("--in-interface", bridge, "--out-interface", bridge)
    marked = (*rule, "--match", "comment", "--comment", f"{MARK}{lab}", "--jump", "ACCEPT")
    if not chain or _iptables("--check", chain, *marked).returncode == 0:
        return False
    _iptables("--insert", chain, *marked).check_returncode()
    return True


def forbid(lab: str) -> None:
    """Remove the lab's rules."""
    for chain, rule in _rules():
        if _lab(rule) == lab:
            _iptables("--delete", chain, *rule).check_returncode()


def sweep(living: Collection[str]) -> list[str]:
    """Remove the rules of labs that do not run: what a killed session leaves. Returns their names."""
    dead = sorted({name for _, rule in _rules() if (name := _lab(rule)) and name not in living})
    for name in dead:
        forbid(name)
    return dead


def _rules() -> list[tuple[str, list[str]]]:
    """Each chain's rules as `--delete` takes them. A machine without iptables has none."""
    found = []
    for chain in CHAINS:
        for line in _iptables("--list-rules", chain).stdout.splitlines():
            verb, _, *rule = shlex.split(line)
            if verb == "-A":
                found.append((chain, rule))
    return found


def _lab(rule: list[str]) -> str:
    """The lab whose rule this is; empty for everybody else's."""
    return next((word.removeprefix(MARK) for word in rule if word.startswith(MARK)), "")


def _iptables(*argv: str) -> subprocess.CompletedProcess[str]:
    tool = preflight.program("iptables")
    if not tool:
        return subprocess.CompletedProcess(argv, 1, "", "no iptables")
    return subprocess.run([tool, "--wait", "10", *argv], capture_output=True, text=True)
