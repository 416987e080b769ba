# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The plan of the playbook maintain: what is due on a node, and whether it may reboot into its next kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..survey.files import slurped
from ..survey.gpu_facts import GpuFacts
from ..survey.host import Host
from ..survey.program_output import Answer, lines_of

# Packages that follow the kernel: images, headers, what belongs to them, and their flavours' own.
_KERNEL = re.compile(
    r"linux-(?:image|headers|modules|generic|virtual|lowlatency|aws|azure|gcp|oracle|kvm|nvidia)(?:-.*)?"
)
# Those of one kernel alone, which have its release: linux-image-6.8.0-45-generic.
_RELEASE = re.compile(r"-[0-9]+\.[0-9]+\.[0-9]+")
_UPGRADED = re.compile(r"Inst (\S+) ")


@dataclass(frozen=True)
class Maintenance:
    """What was read of one node.

    packages:  installed packages linux-*.
    upgrades:  lines of apt's simulation of their upgrade; None until it was asked.
    reboots:   whether the system asks for a reboot.
    runtime:   whether containerd or the toolkit gets another release.
    marked:    whether an earlier run has cordoned the node and has not returned it.
    installed_at: Unix seconds at which the pending kernel's image was written; 0 if unknown.
    booted_at: those of the last boot; 0 if unknown.
    """

    host: Host
    facts: GpuFacts
    packages: Sequence[str]
    upgrades: Answer | None
    reboots: bool
    runtime: bool
    in_cluster: bool
    marked: bool
    installed_at: float = 0
    booted_at: float = 0

    @property
    def pending_kernel(self) -> str:
        """The kernel that a reboot would start; empty if the running one stays."""
        return "" if self.skipped_kernel else self.facts.pending_kernel or ""

    @property
    def skipped_kernel(self) -> str:
        """A newer kernel that the last boot has not started although it was installed: the next would not, either."""
        is_older = 0 < self.installed_at < self.booted_at
        return self.facts.pending_kernel or "" if is_older else ""

    @property
    def kernel_packages(self) -> list[str]:
        """Meta packages, by which a server gets new kernels."""
        return [name for name in self.packages if _KERNEL.fullmatch(name) and not _RELEASE.search(name)]

    @property
    def upgraded(self) -> list[str]:
        found = (_UPGRADED.match(line) for line in lines_of(self.upgrades))
        return [match[1] for match in found if match]

    @property
    def reboot_reason(self) -> str:
        """Empty if no reboot is due."""
        if self.pending_kernel:
            return f"kernel {self.pending_kernel} is installed, {self.host.kernel} runs"
        if self.facts.reboot_reason:
            return self.facts.reboot_reason
        return "/run/reboot-required exists" if self.reboots else ""

    @property
    def due(self) -> list[str]:
        """What is due, a clause each."""
        return [
            *(["containerd or the container toolkit has a newer release"] if self.runtime else []),
            *([f"apt has newer {', '.join(self.upgraded)}"] if self.upgraded else []),
            *([self.reboot_reason] if self.reboot_reason else []),
            *(["an earlier run has not returned it to service"] if self.marked else []),
        ]

    @property
    def refused(self) -> Iterator[str]:
        if not self.in_cluster:
            yield (
                f"maintain -> {self.host.name}: it is no node of the cluster of kubegpu_kubeconfig, so its pods cannot "
                "be moved. Nothing was changed. Next: check kubegpu_kubeconfig, set kubernetes_node_name if the node "
                "has another name, or leave the host out with --limit"
            )
        elif self.due and self.host.is_local:
            yield (
                f"maintain -> {self.host.name}: Ansible runs on it, and a playbook does not reboot its own machine. "
                "Nothing was changed. Next: run the playbook on another machine, or leave the host out with --limit"
            )

    @property
    def no_boot(self) -> list[str]:
        """Why the node must not reboot now. Any reboot may start the kernel that was skipped before."""
        kernel = self.facts.pending_kernel
        if not self.facts.next_boot_problem or not kernel or not self.reboot_reason:
            return []
        return [
            f"driver -> kernel: {self.host.name} was not rebooted: {self.facts.next_boot_problem}. It stays cordoned. "
            f"Next, on the node: `dkms status`, `apt-get install linux-headers-{kernel}`, `dkms autoinstall -k "
            f"{kernel}`; or remove that kernel with `apt-get purge linux-image-{kernel}`. Then run this again"
        ]

    @property
    def notices(self) -> Iterator[str]:
        if self.skipped_kernel:
            yield (
                f"WARNING: kernel -> {self.host.name}: {self.skipped_kernel} is installed, and the boot loader started "
                f"{self.host.kernel}. The node is not rebooted for that kernel again. Next, on the node: check "
                "GRUB_DEFAULT in /etc/default/grub and `grub-editenv list`, run `update-grub`, and reboot with this "
                "playbook after the next kernel; or remove the kernel with `apt-get purge linux-image-"
                f"{self.skipped_kernel}`"
            )


def maintain_plan(survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, the fact gpu_facts, and results of the tasks that have run."""
    rows = [row.split() for row in lines_of(Answer.of(survey.get("packages")))]
    node = Maintenance(
        host=Host.of(survey["host"]),
        facts=GpuFacts.of(survey.get("gpu_facts", {})),
        packages=[name for name, *state in rows if state == ["installed"]],
        upgrades=Answer.of(survey.get("upgrades")),
        reboots=bool((survey.get("reboot_required", {}).get("stat") or {}).get("exists")),
        runtime=survey.get("runtime", False),
        in_cluster=survey["in_cluster"],
        marked=survey.get("marked", False),
        installed_at=float((survey.get("image", {}).get("stat") or {}).get("ctime") or 0),
        booted_at=_boot_time(slurped(survey.get("boot"))),
    )
    return {
        "refused": [*node.refused],
        "broken": node.no_boot,
        "notices": [*node.notices],
        "due": node.due,
        "packages": {"kernel": node.kernel_packages, "upgraded": node.upgraded},
        "reboot": {"required": bool(node.reboot_reason), "reason": node.reboot_reason},
        "steps": {"maintain": bool(node.due), "ask_apt": bool(node.kernel_packages)},
        "gpus": len(node.facts.gpus),
    }


def _boot_time(text: str) -> float:
    """From /proc/stat, in Unix seconds; 0 if it is missing."""
    found = re.search(r"^btime ([0-9]+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0
