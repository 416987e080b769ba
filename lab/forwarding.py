"""The lab's rules in the machine's firewalls.

br_netfilter, which the servers need, sends bridged packets through the machine's firewall. Docker and ufw set the
policy of FORWARD to DROP: servers reach each other by the rules that podman adds, but their pods do not.
A lab inserts one rule, which accepts packets that stay on its bridge. The comment names the lab, so that `lab-down`, a
later `lab-up` and `lab-clean` find the rule.

ufw also drops packets to the machine itself, where podman's name server is: two more rules accept its queries.

A packet must pass every firewall of the kernel: iptables on nf_tables, iptables on its own tables (legacy), and
chains of nft or firewalld. So the rule is added to each that filters forwarded packets. Networks of the lab have
no IPv6.
"""

from __future__ import annotations

import shlex
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from lab import preflight

MARK = "kubegpu-lab:"
# Docker does not change the first one, and evaluates it before its own chains.
CHAINS = ("DOCKER-USER", "FORWARD")
# For packets to the machine itself, which is the name server of its containers. ufw drops them.
INPUT = "INPUT"
# Tables of legacy iptables in this network namespace. Listing a missing one would create it.
LEGACY_TABLES = Path("/proc/net/ip_tables_names")


@dataclass(frozen=True)
class Rule:
    """A rule of a lab: its name, and the arguments that delete the rule."""

    lab: str
    deletion: tuple[str, ...]


class Firewall(ABC):
    """A firewall of the kernel that filters forwarded packets."""

    @abstractmethod
    def rules(self) -> list[Rule]: ...

    @abstractmethod
    def insert(self, lab: str, bridge: str) -> None: ...

    @abstractmethod
    def delete(self, rule: Rule) -> None: ...


@dataclass(frozen=True)
class Iptables(Firewall):
    """The tables that one iptables program manages: those of nf_tables, or its own."""

    program: str

    def chains(self) -> dict[str, list[list[str]]]:
        """The rules of each chain, as lists of words."""
        listed = {chain: self._run("--list-rules", chain) for chain in (*CHAINS, INPUT)}
        return {
            chain: [shlex.split(line) for line in done.stdout.splitlines()]
            for chain, done in listed.items()
            if done.returncode == 0
        }

    def filters(self) -> bool:
        """Whether packets can be dropped: by a rule, or by the policy."""
        return any(rules != [["-P", chain, "ACCEPT"]] for chain, rules in self.chains().items())

    def rules(self) -> list[Rule]:
        return [
            Rule(lab, (chain, *words))
            for chain, rules in self.chains().items()
            for verb, _, *words in rules
            if verb == "-A" and (lab := _lab(words))
        ]

    def insert(self, lab: str, bridge: str) -> None:
        chains, inside = self.chains(), ("--in-interface", bridge)
        if chain := next((chain for chain in CHAINS if chain in chains), None):
            self._accept(lab, chain, *inside, "--out-interface", bridge)
        if ["-P", INPUT, "DROP"] in chains.get(INPUT, ()):
            for protocol in ("udp", "tcp"):
                self._accept(lab, INPUT, *inside, "--protocol", protocol, "--dport", "53")

    def _accept(self, lab: str, chain: str, *rule: str) -> None:
        comment = ("--match", "comment", "--comment", MARK + lab)
        self._run("--insert", chain, *rule, *comment, "--jump", "ACCEPT").check_returncode()

    def delete(self, rule: Rule) -> None:
        self._run("--delete", *rule.deletion).check_returncode()

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, "--wait", "10", *argv], capture_output=True, text=True)


@dataclass(frozen=True)
class Nft(Firewall):
    """One chain of forwarded packets that nft, firewalld or the like made."""

    program: str
    chain: tuple[str, str, str]

    def rules(self) -> list[Rule]:
        listed = preflight.nft_objects(self.program, "rule", "chain", *self.chain)
        return [
            Rule(lab, (*self.chain, "handle", str(rule["handle"])))
            for rule in listed
            if (lab := _lab([rule.get("comment", "")]))
        ]

    def insert(self, lab: str, bridge: str) -> None:
        done = preflight.nft_insert(self.program, self.chain, bridge, MARK + lab)
        done.check_returncode()

    def delete(self, rule: Rule) -> None:
        subprocess.run([self.program, "delete", "rule", *rule.deletion], check=True, capture_output=True, text=True)


def firewalls() -> list[Firewall]:
    """Firewalls that may drop forwarded packets. The machine's iptables always counts: Docker may start later."""
    own, nft = preflight.program("iptables"), preflight.program("nft")
    found: list[Firewall] = [Iptables(own)] if own else []
    found += [other for other in _other_iptables(own) if other.filters()]
    return [*found, *(Nft(nft, chain) for chain in preflight.nft_chains(nft))] if nft else found


def _other_iptables(own: str | None) -> list[Iptables]:
    """The programs for the tables that the machine's own iptables does not manage."""
    real = Path(own).resolve() if own else None
    names = ["iptables-nft"] if not _legacy_in_use() else ["iptables-nft", "iptables-legacy"]
    programs = filter(None, map(preflight.program, names))
    return [Iptables(program) for program in programs if Path(program).resolve() != real]


def _legacy_in_use() -> bool:
    return LEGACY_TABLES.exists() and "filter" in LEGACY_TABLES.read_text().split()


def allow(lab: str, bridge: str) -> bool:
    """Accept packets that stay on the lab's bridge. Returns whether a rule was added."""
    lacking = [firewall for firewall in firewalls() if lab not in {rule.lab for rule in firewall.rules()}]
    for firewall in lacking:
        firewall.insert(lab, bridge)
    return bool(lacking)


def forbid(lab: str) -> None:
    """Remove the lab's rules."""
    for firewall in firewalls():
        for rule in firewall.rules():
            if rule.lab == lab:
                firewall.delete(rule)


def sweep(living: Collection[str]) -> list[str]:
    """Remove rules of labs that no longer run, which a killed session leaves. Returns the names of these labs."""
    dead = sorted({rule.lab for firewall in firewalls() for rule in firewall.rules()} - set(living))
    for lab in dead:
        forbid(lab)
    return dead


def _lab(words: list[str]) -> str:
    """The lab that a rule's words name; empty for rules that no lab made."""
    return next((word.removeprefix(MARK) for word in words if word.startswith(MARK)), "")
